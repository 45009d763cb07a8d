// For fuzz targets of the C interface: fields from the input, and checks of failures.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "bindings/c/c_api.h"

namespace cgtree::testing {

// Reads fields from the input; zeros after its end.
struct Input {
  const std::uint8_t* data;
  std::size_t size;

  template <typename T>
  T take() {
    T value = {};
    const std::size_t bytes = std::min(size, sizeof(T));
    if (bytes > 0) std::memcpy(&value, data, bytes);  // `data` may be null
    data += bytes;
    size -= bytes;
    return value;
  }
};

// Numbers for shapes and strides: as many as the largest count that is accepted.
struct Numbers {
  std::int64_t values[64];

  explicit Numbers(Input& input) {
    for (std::int64_t& value : values) {
      const auto wide = input.take<std::int8_t>();
      value = wide == 127 ? input.take<std::int64_t>() : wide;
    }
  }
};

inline void expect_named(cgt_status status) {
  cgt_error error = {};
  error.struct_size = sizeof(error);
  CGTREE_CHECK(cgt_last_error(&error) == CGT_OK);
  CGTREE_CHECK(error.status == status && error.message[0] != '\0');
}

// The context is null if the struct ends between the function and its argument.
inline void count(void* counter) {
  if (counter != nullptr) ++*static_cast<int*>(counter);
}

inline cgt_axis_options take_axis(Input& input, const char* name, const Numbers& sizes,
                                  const cgt_axis_use* uses) {
  cgt_axis_options axis = {};
  const auto has = input.take<std::uint8_t>();
  axis.struct_size = (has & 1) != 0 ? input.take<std::uint32_t>() % sizeof(axis) : sizeof(axis);
  axis.policy = input.take<std::int8_t>() % 5;
  axis.name = (has & 2) != 0 ? nullptr : name;
  axis.inputs = (has & 4) != 0 ? nullptr : uses;
  axis.input_count = input.take<std::uint8_t>() % 3u;
  axis.outputs = (has & 8) != 0 ? nullptr : uses + 2;
  axis.output_count = input.take<std::uint8_t>() % 3u;
  axis.sizes = (has & 16) != 0 ? nullptr : sizes.values;
  axis.size_count = input.take<std::uint8_t>() % 8u;
  axis.max_sizes = input.take<std::uint8_t>();
  axis.at_max_sizes = input.take<std::int8_t>() % 4;
  axis.above_largest = input.take<std::int8_t>() % 3;
  return axis;
}

// Returns a context for the whole run.
inline cgt_context fuzzed_context() {
  static const cgt_context made = [] {
    cgt_context context = nullptr;
    cgt_context_options options = {};
    options.struct_size = sizeof(options);
    options.max_bytes = 64 << 20;  // buckets may have any size
    CGTREE_CHECK(cgt_context_create({CGT_DEVICE_HOST, 0}, &options, &context) == CGT_OK);
    return context;
  }();
  return made;
}

}  // namespace cgtree::testing
