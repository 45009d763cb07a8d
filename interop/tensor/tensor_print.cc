// Prints the values of a tensor, shortened in the middle.
#include <fmt/format.h>

#include <cstring>

#include "base/error.h"
#include "interop/tensor/tensor.h"

namespace cgtree {
namespace {

constexpr std::int64_t kEdge = 3;  // values shown at either end of a long axis

float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  const std::uint32_t word = sign | (wide << 23) | (fraction << 13);
  float value = 0;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}

float bfloat_to_float(std::uint16_t bits) {
  const std::uint32_t word = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

std::string element(DType dtype, const std::byte* at) {
  switch (dtype) {
    // clang-format off
    case DType::kBool: return load<std::uint8_t>(at) != 0 ? "true" : "false";
    case DType::kInt8: return fmt::format("{}", static_cast<int>(load<std::int8_t>(at)));
    case DType::kInt16: return fmt::format("{}", load<std::int16_t>(at));
    case DType::kInt32: return fmt::format("{}", load<std::int32_t>(at));
    case DType::kInt64: return fmt::format("{}", load<std::int64_t>(at));
    case DType::kUInt8: return fmt::format("{}", static_cast<int>(load<std::uint8_t>(at)));
    case DType::kUInt16: return fmt::format("{}", load<std::uint16_t>(at));
    case DType::kUInt32: return fmt::format("{}", load<std::uint32_t>(at));
    case DType::kUInt64: return fmt::format("{}", load<std::uint64_t>(at));
    case DType::kFloat16: return fmt::format("{}", half_to_float(load<std::uint16_t>(at)));
    case DType::kBFloat16: return fmt::format("{}", bfloat_to_float(load<std::uint16_t>(at)));
    case DType::kFloat32: return fmt::format("{}", load<float>(at));
    case DType::kFloat64: return fmt::format("{}", load<double>(at));
      // clang-format on
  }
  return "?";
}

// Appends the values from `axis` on; `at` is the first of them.
void append(std::string& text, const Tensor& tensor, int axis, const std::byte* at) {
  if (axis == tensor.rank()) {
    text += element(tensor.dtype(), at);
    return;
  }
  const Shape& shape = tensor.shape();
  const std::int64_t count = shape.dim(axis);
  const std::size_t step = static_cast<std::size_t>(shape.stride(axis)) * size_of(tensor.dtype());
  text += '[';
  for (std::int64_t i = 0; i < count; ++i) {
    if (i > 0) text += ", ";
    if (i == kEdge && count > 2 * kEdge) {
      text += "..., ";
      i = count - kEdge;
    }
    append(text, tensor, axis + 1, at + static_cast<std::size_t>(i) * step);
  }
  text += ']';
}

}  // namespace

std::string to_string(const Tensor& tensor) {
  std::string text = describe(tensor);
  if (!tensor.defined()) return text;
  const std::size_t bytes =
      static_cast<std::size_t>(tensor.shape().extent()) * size_of(tensor.dtype());
  std::vector<std::byte> host(bytes);
  // Every element lies within the extent, so one flat copy serves any strides.
  const Tensor flat(tensor.storage(), tensor.byte_offset(), Shape{static_cast<std::int64_t>(bytes)},
                    DType::kUInt8);
  flat.copy_to_host(host.data(), bytes);
  text += ' ';
  append(text, tensor, 0, host.data());
  return text;
}

}  // namespace cgtree
