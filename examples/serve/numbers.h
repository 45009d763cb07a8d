// The numbers that kernels compute with: bfloat16, eight elements at once, and a hash.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "interop/device/kernel_function.h"
#include "interop/tensor/dtype.h"

namespace cgtree::serve {

struct BFloat16 {
  std::uint16_t bits;
};

CGTREE_HOST_DEVICE inline float to_float(float value) {
  return value;
}
CGTREE_HOST_DEVICE inline float to_float(BFloat16 value) {
  const std::uint32_t bits = static_cast<std::uint32_t>(value.bits) << 16;
  float result;
  memcpy(&result, &bits, sizeof(result));
  return result;
}

// Rounds to the nearest T, and to the even one of two.
template <typename T>
CGTREE_HOST_DEVICE inline T from_float(float value) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return value;
  } else {
    BFloat16 result;
#ifdef __CUDA_ARCH__
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
#else
    std::uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    const bool is_nan = value != value;
    result.bits = static_cast<std::uint16_t>(
        (is_nan ? bits | 0x400000 : bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
#endif
    return result;
  }
}

// Eight elements, which are loaded and stored at once. Requires: addresses of multiples of eight.
template <typename T>
struct alignas(16) Eight {
  T v[8];
};
// Loads a struct of a multiple of 16 bytes.
template <typename V>
CGTREE_HOST_DEVICE inline V load_aligned(const void* from) {
#ifdef __CUDA_ARCH__
  V result;  // left to itself, the compiler loads one element at a time
  for (int i = 0; i < static_cast<int>(sizeof(V) / sizeof(uint4)); ++i)
    reinterpret_cast<uint4*>(&result)[i] = static_cast<const uint4*>(from)[i];
  return result;
#else
  return *static_cast<const V*>(from);
#endif
}
template <typename T>
CGTREE_HOST_DEVICE inline Eight<T> load_eight(const T* from) {
  return load_aligned<Eight<T>>(from);
}
template <typename T>
CGTREE_HOST_DEVICE inline Eight<float> widen(const Eight<T>& values) {
  Eight<float> result;
  for (int i = 0; i < 8; ++i)
    result.v[i] = to_float(values.v[i]);
  return result;
}
template <typename T>
CGTREE_HOST_DEVICE inline Eight<float> load(const T* from) {
  return widen(load_eight(from));
}
template <typename T>
CGTREE_HOST_DEVICE inline void store(T* to, const Eight<float>& values) {
  Eight<T> result;
  for (int i = 0; i < 8; ++i)
    result.v[i] = from_float<T>(values.v[i]);
  *reinterpret_cast<Eight<T>*>(to) = result;
}

// Calls body(T()) with the type of a tensor's elements, float32 or else bfloat16.
template <typename Body>
void with_type(DType dtype, Body&& body) {
  if (dtype == DType::kFloat32) {
    body(float());
  } else {
    CGTREE_CHECK(dtype == DType::kBFloat16);
    body(BFloat16());
  }
}

#ifdef __CUDACC__
// Returns the sum over a warp to each of its threads.
__device__ inline float warp_sum(float value) {
  for (int step = 16; step > 0; step /= 2)
    value += __shfl_xor_sync(0xFFFFFFFF, value, step);
  return value;
}
#endif

// A hash of one number: all made-up weights and prompts come from it, on every device.
// Source: the output function of SplitMix64 (Steele, Lea and Flood, 2014).
CGTREE_HOST_DEVICE constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace cgtree::serve
