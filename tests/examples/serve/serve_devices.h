// Host copies of tensors in the number type that a model uses on a device.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "examples/serve/numbers.h"
#include "interop/device/device.h"
#include "interop/tensor/empty.h"

namespace cgtree::serve {

inline float bfloat16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
// Rounds to the nearest, ties to even.
inline std::uint16_t float_to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return 0x7FC0;
  const std::uint32_t below = bits & 0xFFFF;
  std::uint32_t rounded = bits >> 16;
  if (below > 0x8000 || (below == 0x8000 && (rounded & 1) != 0)) ++rounded;
  return static_cast<std::uint16_t>(rounded);
}

// Returns the elements of a float32 or bfloat16 tensor.
inline std::vector<float> floats_of(const Tensor& tensor) {
  if (tensor.dtype() == DType::kFloat32) return tensor.to_vector<float>();
  std::vector<std::uint16_t> bits(static_cast<std::size_t>(tensor.elements()));
  tensor.copy_to_host(bits.data(), tensor.bytes());
  std::vector<float> values;
  for (const std::uint16_t value : bits)
    values.push_back(bfloat16_to_float(value));
  return values;
}

// Returns a tensor of `values`, rounded to the type of the device.
inline Tensor tensor_of(const Shape& shape, const std::vector<float>& values, Device device) {
  const DType dtype = number_type(device);
  if (dtype == DType::kFloat32) return from_host<float>(shape, values, device);
  std::vector<std::uint16_t> bits;
  for (const float value : values)
    bits.push_back(float_to_bfloat16(value));
  const Tensor tensor = empty(shape, dtype, device);
  tensor.copy_from_host(bits.data(), tensor.bytes());
  return tensor;
}

}  // namespace cgtree::serve
