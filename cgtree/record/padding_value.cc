// Converts a number to each element type.
#include "cgtree/record/prepare.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace cgtree {
namespace {

template <typename T>
std::array<std::byte, 8> bytes_of(T value) {
  std::array<std::byte, 8> bytes = {};
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

[[noreturn]] void refuse(double value, DType dtype) {
  throw InvalidArgument(
      fmt::format("padding with {}: {} cannot hold it; choose another value, or "
                  "Padding::last()",
                  value, name(dtype)));
}

template <typename T>
std::array<std::byte, 8> integer(double value, DType dtype) {
  // 2^digits is exact as a double, unlike the largest value.
  const double end = std::ldexp(1.0, std::numeric_limits<T>::digits);
  const double begin = std::numeric_limits<T>::is_signed ? -end : 0;
  if (!(value >= begin && value < end) || value != std::trunc(value)) refuse(value, dtype);
  return bytes_of(static_cast<T>(value));
}

// Returns the value in a floating type of 16 bits, `fraction` of them after the point, rounded to
// nearest, ties to even.
std::array<std::byte, 8> half(double value, DType dtype, int fraction) {
  const int exponent_bits = 15 - fraction;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const int infinity = ((1 << exponent_bits) - 1) << fraction;
  if (std::isnan(value))
    return bytes_of(static_cast<std::uint16_t>(infinity | 1 << (fraction - 1)));
  if (std::isinf(value)) return bytes_of(static_cast<std::uint16_t>(sign | infinity));
  if (value == 0) return bytes_of(sign);
  const int exponent = std::max(std::ilogb(value), 1 - bias);
  // In units of the last place; carries over into the exponent as it should.
  const auto units =
      static_cast<int>(std::nearbyint(std::ldexp(std::abs(value), fraction - exponent)));
  const int bits = ((exponent + bias - 1) << fraction) + units;
  if (bits >= infinity) refuse(value, dtype);
  return bytes_of(static_cast<std::uint16_t>(sign | bits));
}

}  // namespace

std::array<std::byte, 8> padding_value(double value, DType dtype) {
  switch (dtype) {
    case DType::kBool:
      if (value != 0 && value != 1) refuse(value, dtype);
      return bytes_of(static_cast<std::uint8_t>(value));
    case DType::kInt8:
      return integer<std::int8_t>(value, dtype);
    case DType::kInt16:
      return integer<std::int16_t>(value, dtype);
    case DType::kInt32:
      return integer<std::int32_t>(value, dtype);
    case DType::kInt64:
      return integer<std::int64_t>(value, dtype);
    case DType::kUInt8:
      return integer<std::uint8_t>(value, dtype);
    case DType::kUInt16:
      return integer<std::uint16_t>(value, dtype);
    case DType::kUInt32:
      return integer<std::uint32_t>(value, dtype);
    case DType::kUInt64:
      return integer<std::uint64_t>(value, dtype);
    case DType::kFloat16:
      return half(value, dtype, 10);
    case DType::kBFloat16:
      return half(value, dtype, 7);
    case DType::kFloat32:
      if (std::isfinite(value) && !std::isfinite(static_cast<float>(value))) refuse(value, dtype);
      return bytes_of(static_cast<float>(value));
    case DType::kFloat64:
      return bytes_of(value);
  }
  refuse(value, dtype);
}

}  // namespace cgtree
