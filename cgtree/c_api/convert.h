// Conversions between the values of C and those of C++: types, devices, streams, structs, options
// and JSON.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cgtree/c_api.h"
#include "cgtree/options.h"
#include "cgtree/precapture.h"
#include "cgtree/stats.h"
#include "cgtree/suggest_buckets.h"
#include "interop/device/stream.h"
#include "interop/exchange/stream_synchronization.h"
#include "interop/tensor/dtype.h"

namespace cgtree::capi {

static_assert(CGT_BOOL == static_cast<int>(DType::kBool) + 1);
static_assert(CGT_FLOAT64 == static_cast<int>(DType::kFloat64) + 1 && CGT_FLOAT64 == kDTypeCount);

inline DType dtype_of_c(cgt_dtype dtype) {
  if (dtype >= CGT_BOOL && dtype <= CGT_FLOAT64) return static_cast<DType>(dtype - 1);
  throw InvalidArgument(fmt::format("dtype is {}: expected {} (CGT_BOOL) to {} (CGT_FLOAT64)",
                                    dtype, static_cast<int>(CGT_BOOL),
                                    static_cast<int>(CGT_FLOAT64)));
}
inline cgt_dtype to_c(DType dtype) noexcept {
  return static_cast<cgt_dtype>(dtype) + 1;
}

inline Device device_of_c(cgt_device device) noexcept {
  return {static_cast<DeviceType>(device.type), device.id};
}
inline cgt_device to_c(Device device) noexcept {
  return {static_cast<std::int32_t>(device.type), device.id};
}

// Throws InvalidArgument if the device does not exist.
inline StreamRef stream_of_c(cgt_stream stream) {
  return StreamRef(device_of_c(stream.device), static_cast<StreamHandle>(stream.native));
}
inline StreamRef stream_of_c(const cgt_stream* stream) {
  return stream == nullptr ? StreamRef() : stream_of_c(*stream);
}
inline cgt_stream to_c(StreamRef stream) noexcept {
  if (!stream) return {{0, 0}, 0};
  return {to_c(stream.device()), static_cast<std::uintptr_t>(stream.handle())};
}

// Returns nullopt for CGT_SYNC_DEFAULT.
inline std::optional<SyncPolicy> sync_of_c(cgt_sync_policy sync) {
  switch (sync) {
    case CGT_SYNC_DEFAULT:
      return std::nullopt;
    case CGT_SYNC_EVENT_WAIT:
      return SyncPolicy::kEventWait;
    case CGT_SYNC_SYNCHRONIZE:
      return SyncPolicy::kSynchronize;
    case CGT_SYNC_ENQUEUE:
      return SyncPolicy::kEnqueue;
    case CGT_SYNC_IGNORE:
      return SyncPolicy::kIgnore;
    default:
      throw InvalidArgument(
          fmt::format("sync is {}: expected 0 (CGT_SYNC_DEFAULT) to 4 "
                      "(CGT_SYNC_IGNORE)",
                      sync));
  }
}

inline std::chrono::microseconds microseconds_of_c(std::uint64_t given) noexcept {
  return std::chrono::microseconds(
      static_cast<std::int64_t>(std::min<std::uint64_t>(given, INT64_MAX)));
}

// ---- Structs with struct_size ----

// Requires: `given` has `size` bytes. `known` is the size of this version's struct, `least` that of
// the first version's. Throws InvalidArgument.
inline void check_size(const void* given, std::size_t size, std::size_t least, std::size_t known,
                       std::string_view what) {
  if (size < least) {
    throw InvalidArgument(
        fmt::format("{}: struct_size is {}: expected {}, its sizeof", what, size, known));
  }
  const auto* const bytes = static_cast<const unsigned char*>(given);
  // A wrong size must not make us read beyond the struct.
  constexpr std::size_t kMostUnknown = 4096;
  if (size > known + kMostUnknown) {
    throw InvalidArgument(
        fmt::format("{}: struct_size is {}: expected {}, its sizeof", what, size, known));
  }
  for (std::size_t i = known; i < size; ++i) {
    if (bytes[i] == 0) continue;
    throw InvalidArgument(
        fmt::format("{}: struct_size is {}, and byte {} is set, but this library "
                    "knows {} bytes of it: use a library as new as the header",
                    what, size, i, known));
  }
}

// The size of the struct in the first version of the header, if later ones have more fields.
template <typename T>
inline constexpr std::size_t kFirstSize = sizeof(T);

// Returns a copy in which what the caller's version does not have is 0. NULL gives zeros alone.
// Throws InvalidArgument.
template <typename T>
T read_struct(const T* given, std::string_view what) {
  T read = {};
  if (given == nullptr) return read;
  const std::size_t size = given->struct_size;
  check_size(given, size, kFirstSize<T>, sizeof(T), what);
  std::memcpy(&read, given, std::min(size, sizeof(T)));
  return read;
}

// Calls read(element) for each element of an array. The first states the size of all. Throws
// InvalidArgument.
template <typename T, typename Read>
void for_each_struct(const T* array, std::size_t count, std::string_view what, const Read& read) {
  if (count == 0) return;
  if (array == nullptr) throw InvalidArgument(fmt::format("the array of {} is NULL", what));
  const std::size_t size = array->struct_size;
  const auto* at = reinterpret_cast<const char*>(array);
  for (std::size_t i = 0; i < count; ++i, at += size) {
    check_size(at, size, kFirstSize<T>, sizeof(T), what);
    T element = {};
    std::memcpy(&element, at, std::min(size, sizeof(T)));
    read(element);
  }
}

// Throws InvalidArgument where write_struct() would.
template <typename T>
void expect_room(const T* to, std::string_view what) {
  if (to == nullptr) throw InvalidArgument(fmt::format("{} is NULL", what));
  if (to->struct_size >= sizeof(T)) return;
  throw InvalidArgument(fmt::format("{}: struct_size is {}: expected {}, its sizeof", what,
                                    to->struct_size, sizeof(T)));
}

// Writes all but the struct_size. Throws InvalidArgument if the caller's struct is shorter.
template <typename T>
void write_struct(T value, T* to, std::string_view what) {
  expect_room(to, what);
  value.struct_size = to->struct_size;
  std::memcpy(to, &value, sizeof(T));
}

// Throws InvalidArgument if a bit is set that is not in `known`.
inline void check_flags(std::uint32_t flags, std::uint32_t known, std::string_view what) {
  if ((flags & ~known) == 0) return;
  throw InvalidArgument(
      fmt::format("{}: flags are {:#x}, of which this library knows {:#x}", what, flags, known));
}

// ---- Options, in options.cc ----

// NULL gives the defaults. Throws InvalidArgument. The owner of the caller's is released also then.
ContextOptions context_options(const cgt_context_options* given);

struct FunctionOptions {
  CompileOptions compile;
  std::vector<std::string> axes;  // their names, in the order in which they were given
};

// Returns the options of a function with `outputs` outputs. NULL gives the defaults. Throws
// InvalidArgument.
FunctionOptions function_options(const cgt_function_options* given, std::size_t outputs);

// ---- Statistics and reports as JSON, in json.cc ----

std::string to_json(const FunctionStats& stats);
std::string to_json(const ContextStats& stats);
std::string to_json(std::span<const SizeCount> histogram);
std::string to_json(const Precaptured& entry);
std::string to_json(const PrecaptureReport& report);

}  // namespace cgtree::capi
