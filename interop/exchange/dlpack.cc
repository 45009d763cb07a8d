// Maps element types to DType, and prints types and devices.
#include "interop/exchange/dlpack.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/format.h"

namespace cgtree {
namespace {

struct DlpackRow {
  DType dtype;
  std::uint8_t code;
};

constexpr DlpackRow kDlpackTypes[] = {
    {DType::kBool, dlpack::kBool},
    {DType::kInt8, dlpack::kInt},
    {DType::kInt16, dlpack::kInt},
    {DType::kInt32, dlpack::kInt},
    {DType::kInt64, dlpack::kInt},
    {DType::kUInt8, dlpack::kUInt},
    {DType::kUInt16, dlpack::kUInt},
    {DType::kUInt32, dlpack::kUInt},
    {DType::kUInt64, dlpack::kUInt},
    {DType::kFloat16, dlpack::kFloat},
    {DType::kBFloat16, dlpack::kBfloat},
    {DType::kFloat32, dlpack::kFloat},
    {DType::kFloat64, dlpack::kFloat},
    {DType::kFloat8E4M3FN, dlpack::kFloat8E4M3FN},
    {DType::kFloat8E4M3FNUZ, dlpack::kFloat8E4M3FNUZ},
    {DType::kFloat8E5M2, dlpack::kFloat8E5M2},
    {DType::kFloat8E5M2FNUZ, dlpack::kFloat8E5M2FNUZ},
    {DType::kFloat8E8M0FNU, dlpack::kFloat8E8M0FNU},
    {DType::kComplex64, dlpack::kComplex},
    {DType::kComplex128, dlpack::kComplex},
};
static_assert(std::size(kDlpackTypes) == kDTypeCount);

// Source: DLPack 1.3, DLDataTypeCode, in order.
constexpr const char* kCodes[] = {
    "int",
    "uint",
    "float",
    "opaque",
    "bfloat",
    "complex",
    "bool",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float4_e2m1fn",
};
constexpr std::uint8_t kFirstWithFixedBits = 7;

// Source: DLPack 1.3, DLDeviceType; gaps are unused numbers.
constexpr const char* kDevices[] = {
    "",       "CPU",    "CUDA",    "pinned CUDA", "OpenCL",      "",          "",
    "Vulkan", "Metal",  "VPI",     "ROCm",        "pinned ROCm", "extension", "managed CUDA",
    "oneAPI", "WebGPU", "Hexagon", "MAIA",        "Trainium",
};

int bits_of(DType dtype) {
  return static_cast<int>(8 * size_of(dtype));
}

}  // namespace

std::string to_string(dlpack::DataType type) {
  std::string text;
  if (type.code >= std::size(kCodes)) {
    text = str_format("type code {} of {} bits", type.code, type.bits);
  } else if (type.code >= kFirstWithFixedBits) {
    text = str_format("{} of {} bits", kCodes[type.code], type.bits);
  } else {
    text = str_format("{}{}", kCodes[type.code], type.bits);
  }
  return type.lanes == 1 ? text : text + str_format(" in {} lanes", type.lanes);
}

std::string to_string(dlpack::DeviceRef device) {
  const auto type = static_cast<std::size_t>(device.type);
  const bool is_known = type < std::size(kDevices) && kDevices[type][0] != '\0';
  const std::string name = is_known ? kDevices[type] : str_format("device type {}", device.type);
  return str_format("{} {}", name, device.id);
}

DType from_dlpack_type(dlpack::DataType type) {
  const auto* const row =
      std::find_if(std::begin(kDlpackTypes), std::end(kDlpackTypes), [&](const DlpackRow& known) {
        return known.code == type.code && bits_of(known.dtype) == type.bits;
      });
  if (row == std::end(kDlpackTypes) || type.lanes != 1) {
    throw BoundaryError(
        BoundaryFault::kNotSupported,
        str_format("elements are {}: expected a bool of 8 bits, an integer of 8 to 64, a float of "
                   "16 to 64, bfloat16, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, "
                   "float8_e5m2fnuz, float8_e8m0fnu, or a complex of 64 or 128, in 1 lane",
                   to_string(type)));
  }
  return row->dtype;
}

dlpack::DataType to_dlpack_type(DType dtype) noexcept {
  return {kDlpackTypes[static_cast<int>(dtype)].code, static_cast<std::uint8_t>(bits_of(dtype)), 1};
}

}  // namespace cgtree
