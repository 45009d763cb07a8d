// From C's values to ours and back.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "cgtree/c_api.h"
#include "interop/tensor/dtype.h"
#include "interop/exchange/stream_synchronization.h"
#include "interop/device/stream.h"

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

// Throws InvalidArgument for a device that is not there.
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

// None for CGT_SYNC_DEFAULT.
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

}  // namespace cgtree::capi
