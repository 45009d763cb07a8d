// The types of elements and devices as DLPack numbers them.
#pragma once

#include <string>

#include "interop/device/device.h"
#include "interop/exchange/dlpack_abi.h"
#include "interop/device/dtype.h"

namespace cgtree {

// Throws BoundaryError for elements that tensors have not: more than one lane, fewer than eight
// bits, complex, opaque, eight-bit floats.
DType from_dlpack_type(dlpack::DataType type);

dlpack::DataType to_dlpack_type(DType dtype) noexcept;

// "float16", "complex64", "float8_e4m3fn", "int32x4"; for messages.
std::string to_string(dlpack::DataType type);

// "CUDA 1"; for messages.
std::string to_string(dlpack::DeviceRef device);

// The number is DLPack's own: see DeviceType.
constexpr dlpack::DeviceRef to_dlpack_device(Device device) noexcept {
  return {static_cast<std::int32_t>(device.type), device.id};
}

}  // namespace cgtree
