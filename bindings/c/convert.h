// Conversions between the values of C and those of C++: types, devices, streams, structs, options
// and JSON.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "bindings/c/c_api.h"
#include "bindings/c/sized_struct.h"
#include "cgtree/values/explanation.h"
#include "cgtree/values/options.h"
#include "cgtree/values/stats.h"
#include "extensions/sizes/precapture.h"
#include "extensions/sizes/suggest_buckets.h"
#include "interop/device/stream.h"
#include "interop/tensor/dtype.h"
#include "interop/tensor/stream_synchronization.h"

namespace cgtree::capi {

// Returns the enumerator for a number in C; the first enumerator has the number `first`. Throws
// InvalidArgument for another number; `c_last` is the name of the last constant in C.
template <typename Enum>
Enum choice_of_c(std::int32_t given, Enum last, std::string_view option, std::string_view c_last,
                 std::int32_t first = 0) {
  const std::int32_t most = static_cast<std::int32_t>(last) + first;
  if (given >= first && given <= most) return static_cast<Enum>(given - first);
  throw InvalidArgument(
      str_format("{} is {}: expected {} to {} ({})", option, given, first, most, c_last));
}

static_assert(CGT_BOOL == static_cast<int>(DType::kBool) + 1 && CGT_COMPLEX128 == kDTypeCount);
static_assert(CGT_FLOAT64 == static_cast<int>(DType::kFloat64) + 1);
static_assert(CGT_SYNC_EVENT_WAIT == static_cast<int>(SyncPolicy::kEventWait) + 1);
static_assert(CGT_SYNC_IGNORE == static_cast<int>(SyncPolicy::kIgnore) + 1);
static_assert(CGT_FROZEN_REFUSE == static_cast<int>(WhenFrozen::kThrow));
static_assert(CGT_CAPTURE_MODE_GLOBAL == static_cast<int>(CaptureMode::kGlobal));
static_assert(CGT_CAPTURE_MODE_RELAXED == static_cast<int>(CaptureMode::kRelaxed));
static_assert(CGT_REPLAYED == static_cast<int>(Outcome::kReplay) + 1);
static_assert(CGT_FAILED == static_cast<int>(Outcome::kThrow) + 1);

// The next two convert types. The number of a type is larger by one in C, so that 0 can mean none.
inline DType dtype_of_c(cgt_dtype dtype) {
  return choice_of_c(dtype, DType::kComplex128, "dtype", "CGT_COMPLEX128", CGT_BOOL);
}
inline cgt_dtype to_c(DType dtype) noexcept {
  return static_cast<cgt_dtype>(dtype) + 1;
}

// The next two convert devices unchanged: they do not check that the device exists.
inline Device device_of_c(cgt_device device) noexcept {
  return {static_cast<DeviceType>(device.type), device.id};
}
inline cgt_device to_c(Device device) noexcept {
  return {static_cast<std::int32_t>(device.type), device.id};
}

// CUDA's null stream is the legacy stream. Throws InvalidArgument if the device does not exist.
inline StreamRef stream_of_c(cgt_stream stream) {
  const auto handle = static_cast<StreamHandle>(stream.native);
  return StreamRef(device_of_c(stream.device),
                   handle == StreamHandle::kNull ? StreamHandle::kLegacy : handle);
}
inline StreamRef stream_of_c(const cgt_stream* stream) {
  return stream == nullptr ? StreamRef() : stream_of_c(*stream);
}
// A null stream has the device type 0, which no device has.
inline cgt_stream to_c(StreamRef stream) noexcept {
  if (!stream) return {{0, 0}, 0};
  return {to_c(stream.device()), static_cast<std::uintptr_t>(stream.handle())};
}

// Returns nullopt for CGT_SYNC_DEFAULT.
inline std::optional<SyncPolicy> sync_of_c(cgt_sync_policy sync) {
  if (sync == CGT_SYNC_DEFAULT) return std::nullopt;
  return choice_of_c(sync, SyncPolicy::kIgnore, "sync", "CGT_SYNC_IGNORE", CGT_SYNC_EVENT_WAIT);
}

// Caps times that a duration cannot hold, so that UINT64_MAX means no limit.
inline std::chrono::microseconds microseconds_of_c(std::uint64_t given) noexcept {
  return std::chrono::microseconds(
      static_cast<std::int64_t>(std::min<std::uint64_t>(given, INT64_MAX)));
}

// The next two read an option whose default in C is 0.
inline void read_count(std::uint64_t given, std::size_t& option) noexcept {
  if (given != 0) option = given;
}
inline void read_number(double given, double& option) noexcept {
  if (given != 0) option = given;
}

// Throws InvalidArgument if a bit is set that is not in `known`.
inline void check_flags(std::uint32_t flags, std::uint32_t known, std::string_view what) {
  if ((flags & ~known) == 0) return;
  throw InvalidArgument(
      str_format("{}: flags are {:#x}, of which this library knows {:#x}", what, flags, known));
}

// ---- Options, in options.cc ----

// NULL gives the defaults. Throws InvalidArgument. The caller's owner is released even then.
ContextOptions context_options(const cgt_context_options* given);

// The options of a function or of steps, with those that CompileOptions lacks.
struct FunctionOptions {
  CompileOptions compile;
  std::vector<std::string> axes;        // the names of axes, then of keys, as they were given
  std::vector<std::size_t> host_bytes;  // of the inputs
  std::vector<bool> copied;             // true for an input with CGT_INPUT_COPIED
  std::vector<bool> per_session;        // true for an input with CGT_INPUT_SESSION
};

// Returns the options of a function with `outputs` outputs. NULL gives the defaults. Throws
// InvalidArgument.
FunctionOptions function_options(const cgt_function_options* given, std::size_t outputs);

// ---- Keys, in function.cc ----

// Throws InvalidArgument as the constructor of Key, and for a part without a name.
Key key_of(const cgt_key_part* parts, std::size_t count);

// ---- Statistics and reports as JSON, in json.cc ----

// Returns one line of JSON, with the names that bindings/c/c_api.h states.
std::string to_json(const FunctionStats& stats);
std::string to_json(const ContextStats& stats);
std::string to_json(const std::map<std::int64_t, std::uint64_t>& histogram);
std::string to_json(std::span<const Buckets> buckets);
std::string to_json(const Precaptured& entry);
std::string to_json(const PrecaptureReport& report);

}  // namespace cgtree::capi
