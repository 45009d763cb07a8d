// The numbers of a model, float32 on the host device and bfloat16 on a GPU, and how kernels read
// and write them: eight at once, as float32. Sums are float32 on both devices.
#pragma once

#include <cstdint>

#include "interop/device/device.h"
#include "interop/device/kernel_function.h"
#include "interop/tensor/dtype.h"

#ifdef __CUDACC__
// The address of a CUDA kernel; null where a C++ compiler compiles the file.
#define SERVE_CUDA_FUNCTION(...) reinterpret_cast<const void*>(&__VA_ARGS__)
#else
#define SERVE_CUDA_FUNCTION(...) nullptr
#endif

namespace cgtree::serve {

inline DType number_type(Device device) {
  return device.type == DeviceType::kHost ? DType::kFloat32 : DType::kBFloat16;
}

struct alignas(16) Eight {
  float v[8];
};

// Loads a struct of a multiple of 16 bytes.
template <typename V>
CGTREE_HOST_DEVICE inline V load_aligned(const float* from) {
#ifdef __CUDA_ARCH__
  V result;  // otherwise the compiler loads one element at a time
  for (int i = 0; i < static_cast<int>(sizeof(V) / sizeof(uint4)); ++i)
    reinterpret_cast<uint4*>(&result)[i] = reinterpret_cast<const uint4*>(from)[i];
  return result;
#else
  return *reinterpret_cast<const V*>(from);
#endif
}

#ifdef __CUDACC__
// Rounds to the nearest bfloat16, and to the even one of two.
__device__ inline std::uint16_t to_bits(float value) {
#if __CUDA_ARCH__ >= 800
  std::uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  const std::uint32_t bits = __float_as_uint(value);
  const bool is_nan = (bits & 0x7FFFFFFF) > 0x7F800000;
  return is_nan ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
#endif
}
__device__ inline float from_bits(std::uint16_t bits) {
  return __uint_as_float(static_cast<std::uint32_t>(bits) << 16);
}

// Eight bfloat16 as they lie in memory.
struct alignas(16) Packed {
  std::uint16_t v[8];
};
__device__ inline Eight widen(const Packed& packed) {
  Eight result;
  for (int i = 0; i < 8; ++i)
    result.v[i] = from_bits(packed.v[i]);
  return result;
}

// Returns the sum over a warp to each of its threads.
__device__ inline float warp_sum(float value) {
  for (int step = 16; step > 0; step /= 2)
    value += __shfl_xor_sync(0xFFFFFFFF, value, step);
  return value;
}
#endif

// An array of numbers in the type of the device that the code runs on. Requires: it begins at a
// multiple of 16 bytes, and `at` is a multiple of 8.
struct Numbers {
  void* first;

#ifdef __CUDACC__
  __device__ Packed load_packed(std::int64_t at) const {
    Packed result;
    *reinterpret_cast<uint4*>(&result) =
        *reinterpret_cast<const uint4*>(static_cast<const std::uint16_t*>(first) + at);
    return result;
  }
  __device__ void set(std::int64_t at, float value) const {
    static_cast<std::uint16_t*>(first)[at] = to_bits(value);
  }
#endif
  CGTREE_HOST_DEVICE Eight load(std::int64_t at) const {
#ifdef __CUDA_ARCH__
    return widen(load_packed(at));
#else
    return load_aligned<Eight>(static_cast<const float*>(first) + at);
#endif
  }
  CGTREE_HOST_DEVICE void store(std::int64_t at, const Eight& values) const {
#ifdef __CUDA_ARCH__
    Packed packed;
    for (int i = 0; i < 8; ++i)
      packed.v[i] = to_bits(values.v[i]);
    *reinterpret_cast<Packed*>(static_cast<std::uint16_t*>(first) + at) = packed;
#else
    *reinterpret_cast<Eight*>(on_host() + at) = values;
#endif
  }
  float* on_host() const {
    return static_cast<float*>(first);
  }
};

// Eight partial sums hide the latency of the additions; without -ffast-math the compiler may not
// reorder them itself.
inline float dot_on_host(const float* a, const float* b, std::int64_t count) {
  float sum[8] = {};
  for (std::int64_t i = 0; i < count; i += 8) {
    for (int part = 0; part < 8; ++part)
      sum[part] += a[i + part] * b[i + part];
  }
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

// A hash of one number, from which all made-up weights and prompts come, on every device. Source:
// the output function of SplitMix64 (Steele, Lea and Flood, 2014).
CGTREE_HOST_DEVICE constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace cgtree::serve
