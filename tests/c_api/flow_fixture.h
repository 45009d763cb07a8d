// Work for bodies of branches and loops through C, the same on every device.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "interop/device/graph_api.h"
#include "tests/c_api/step_fixture.h"

namespace cgtree::testing {

// Enqueues y += a * x on the current stream.
inline void add_to(cgt_tensor y, float a, cgt_tensor x) {
  const cgt_tensor_info from = info_of(x), to = info_of(y);
  const StreamRef stream = current();
  check(stream.graphs().launch_kernel(stream.handle(), axpy_kernel(), dims_for(to.elements),
                                      arguments_of(a, from.data, to.data, to.elements)),
        "axpy");
}

// Returns a copy of x in memory of the step or of the body. The handle ends with the callback.
inline cgt_tensor copy_of(cgt_tensor x) {
  const cgt_tensor_info from = info_of(x);
  cgt_tensor made = nullptr;
  EXPECT_DONE(cgt_tensor_empty(from.dtype, from.ndim, from.shape, nullptr, &made));
  EXPECT_DONE(cgt_tensor_copy(made, x, nullptr));
  return made;
}

inline cgt_tensor part_of(cgt_tensor x, std::int64_t begin, std::int64_t end) {
  cgt_tensor made = nullptr;
  EXPECT_DONE(cgt_tensor_slice(x, 0, begin, end, &made));
  return made;
}

// Shifts the flags by one place, and returns the first one: each round of a loop has a prepared
// flag.
inline cgt_tensor next_flag(cgt_tensor flags) {
  const std::int64_t count = info_of(flags).elements;
  const cgt_tensor others = copy_of(part_of(flags, 1, count));
  EXPECT_DONE(cgt_tensor_copy(part_of(flags, 0, count - 1), others, nullptr));
  return part_of(flags, 0, 1);
}

inline OwnedTensor make_flags(Device device, const std::vector<std::int32_t>& values) {
  OwnedTensor tensor = make_tensor(device, {static_cast<std::int64_t>(values.size())}, CGT_INT32);
  EXPECT_DONE(cgt_tensor_copy_from_host(tensor, values.data(), values.size() * 4));
  return tensor;
}

inline std::int32_t number_of(cgt_tensor tensor) {
  std::int32_t value = -1;
  EXPECT_DONE(cgt_tensor_copy_to_host(tensor, &value, sizeof(value)));
  return value;
}

using Enqueue = std::function<cgt_status(cgt_tensor* results, std::size_t result_count)>;

// `enqueue` must outlive the body.
inline cgt_body body_of(const Enqueue& enqueue) {
  const cgt_enqueue call = [](void* user, cgt_tensor* results, std::size_t count) {
    return (*static_cast<const Enqueue*>(user))(results, count);
  };
  return {call, const_cast<Enqueue*>(&enqueue)};
}

}  // namespace cgtree::testing
