// DType: the type of the elements of a tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"

namespace cgtree {

// An element type. cgt_dtype and the tables of this header have the same order.
enum class DType : std::uint8_t {
  kBool,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  // The next types are moved, not converted: only their size matters here.
  kFloat8E4M3FN,
  kFloat8E4M3FNUZ,
  kFloat8E5M2,
  kFloat8E5M2FNUZ,
  kFloat8E8M0FNU,
  kComplex64,
  kComplex128,
};

// The number of types, for tables with a row for each.
inline constexpr int kDTypeCount = 20;

// Returns the bytes of one element.
inline std::size_t size_of(DType dtype) noexcept {
  constexpr std::uint8_t kBytes[kDTypeCount] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2,
                                                2, 4, 8, 1, 1, 1, 1, 1, 8, 16};
  CGTREE_CHECK(static_cast<int>(dtype) < kDTypeCount);
  return kBytes[static_cast<int>(dtype)];
}

// Returns the bytes to which one element is aligned: a complex number is aligned as its parts are.
inline std::size_t alignment_of(DType dtype) noexcept {
  const bool is_complex = dtype == DType::kComplex64 || dtype == DType::kComplex128;
  return is_complex ? size_of(dtype) / 2 : size_of(dtype);
}

// Returns "float32", "int8" and so on.
inline std::string_view name(DType dtype) noexcept {
  constexpr std::string_view kNames[kDTypeCount] = {"bool",
                                                    "int8",
                                                    "int16",
                                                    "int32",
                                                    "int64",
                                                    "uint8",
                                                    "uint16",
                                                    "uint32",
                                                    "uint64",
                                                    "float16",
                                                    "bfloat16",
                                                    "float32",
                                                    "float64",
                                                    "float8_e4m3fn",
                                                    "float8_e4m3fnuz",
                                                    "float8_e5m2",
                                                    "float8_e5m2fnuz",
                                                    "float8_e8m0fnu",
                                                    "complex64",
                                                    "complex128"};
  CGTREE_CHECK(static_cast<int>(dtype) < kDTypeCount);
  return kNames[static_cast<int>(dtype)];
}

// DTypeOf<T>::kValue is the DType of a C++ type. It is not defined for types without a DType.
template <typename T>
struct DTypeOf;

// clang-format off
template <> struct DTypeOf<bool> { static constexpr DType kValue = DType::kBool; };
template <> struct DTypeOf<std::int8_t> { static constexpr DType kValue = DType::kInt8; };
template <> struct DTypeOf<std::int16_t> { static constexpr DType kValue = DType::kInt16; };
template <> struct DTypeOf<std::int32_t> { static constexpr DType kValue = DType::kInt32; };
template <> struct DTypeOf<std::int64_t> { static constexpr DType kValue = DType::kInt64; };
template <> struct DTypeOf<std::uint8_t> { static constexpr DType kValue = DType::kUInt8; };
template <> struct DTypeOf<std::uint16_t> { static constexpr DType kValue = DType::kUInt16; };
template <> struct DTypeOf<std::uint32_t> { static constexpr DType kValue = DType::kUInt32; };
template <> struct DTypeOf<std::uint64_t> { static constexpr DType kValue = DType::kUInt64; };
template <> struct DTypeOf<float> { static constexpr DType kValue = DType::kFloat32; };
template <> struct DTypeOf<double> { static constexpr DType kValue = DType::kFloat64; };
// clang-format on

// The DType of T, which must have one.
template <typename T>
inline constexpr DType dtype_of = DTypeOf<T>::kValue;

}  // namespace cgtree
