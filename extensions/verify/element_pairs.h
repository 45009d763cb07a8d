// ElementPairs: two tensors with the same dims, and the iteration of kernels over their elements
// pair by pair: to compare them, and to exchange them.
//
// Elements are counted in row-major order. Axes that are dense on both sides are joined, so that
// two dense tensors have one axis, of which 16 bytes are read together.
#pragma once

#include <cstdint>
#include <cstring>

#include "interop/device/kernel_function.h"
#include "interop/tensor/dtype.h"
#include "interop/tensor/gather_row.h"
#include "interop/tensor/gather_walk.h"

namespace cgtree {

struct ElementPairs {
  std::uint64_t first = 0;  // addresses
  std::uint64_t second = 0;
  std::uint64_t count = 0;    // of elements
  std::uint32_t element = 1;  // bytes
  std::uint32_t word = 1;     // bytes that every element of both sides is aligned to; at most 8
  std::int32_t rank = 0;
  bool is_dense = false;  // on both sides, which are aligned to 16 bytes
  std::int64_t dims[kMaxGatherRank] = {};
  std::int64_t first_strides[kMaxGatherRank] = {};  // bytes
  std::int64_t second_strides[kMaxGatherRank] = {};
};

// The bytes of an element.
struct ElementBits {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  CGTREE_HOST_DEVICE bool operator==(const ElementBits& other) const {
    return low == other.low && high == other.high;
  }
};

// The result of a comparison.
struct ComparedElements {
  std::uint64_t differing = 0;
  std::uint64_t first = ~std::uint64_t{0};  // number of the first element that differs
  // The bits of the largest difference, a double that is not negative: the order of these bits is
  // that of their values.
  std::uint64_t largest = 0;
};

namespace detail {

// Clang 14 crashes when it checks the alignment of the result of a cast from an integer; naming the
// pointers below avoids that.
template <typename Word>
CGTREE_HOST_DEVICE inline std::uint64_t load(std::uint64_t address) {
  const void* const from = reinterpret_cast<const void*>(address);
  Word word;
  memcpy(&word, __builtin_assume_aligned(from, sizeof(word)), sizeof(word));
  return word;
}

template <typename Word>
CGTREE_HOST_DEVICE inline void store(std::uint64_t address, std::uint64_t bits) {
  void* const to = reinterpret_cast<void*>(address);
  const auto word = static_cast<Word>(bits);
  memcpy(__builtin_assume_aligned(to, sizeof(word)), &word, sizeof(word));
}

CGTREE_HOST_DEVICE inline std::uint64_t load_word(std::uint64_t address, std::uint32_t word) {
  switch (word) {
    case 8:
      return load<std::uint64_t>(address);
    case 4:
      return load<std::uint32_t>(address);
    case 2:
      return load<std::uint16_t>(address);
    default:
      return load<std::uint8_t>(address);
  }
}

CGTREE_HOST_DEVICE inline void store_word(std::uint64_t address, std::uint32_t word,
                                          std::uint64_t bits) {
  switch (word) {
    case 8:
      return store<std::uint64_t>(address, bits);
    case 4:
      return store<std::uint32_t>(address, bits);
    case 2:
      return store<std::uint16_t>(address, bits);
    default:
      return store<std::uint8_t>(address, bits);
  }
}

template <typename To, typename From>
CGTREE_HOST_DEVICE inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

// The format of a number of up to 16 bits: sign, exponent, fraction.
struct SmallFloat {
  int exponent;  // bits
  int fraction;  // bits
  int bias;
  enum { kIeee, kOneNan, kNegativeZeroIsNan } special;
};

CGTREE_HOST_DEVICE inline double power_of_two(int exponent) {
  return bits_as<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

CGTREE_HOST_DEVICE inline double nan_value() {
  return bits_as<double>(std::uint64_t{0x7ff8} << 48);
}

CGTREE_HOST_DEVICE inline double small_float(std::uint64_t bits, const SmallFloat& type) {
  const std::uint64_t magnitude =
      bits & ((std::uint64_t{1} << (type.exponent + type.fraction)) - 1);
  const bool is_negative = magnitude != bits;
  const auto exponent = static_cast<int>(magnitude >> type.fraction);
  const std::uint64_t fraction = magnitude & ((std::uint64_t{1} << type.fraction) - 1);
  const int largest = (1 << type.exponent) - 1;
  if (type.special == SmallFloat::kIeee && exponent == largest) {
    if (fraction != 0) return nan_value();
    const double infinity = bits_as<double>(std::uint64_t{0x7ff0} << 48);
    return is_negative ? -infinity : infinity;
  }
  if (type.special == SmallFloat::kOneNan && exponent == largest &&
      fraction == (std::uint64_t{1} << type.fraction) - 1) {
    return nan_value();
  }
  if (type.special == SmallFloat::kNegativeZeroIsNan && is_negative && magnitude == 0) {
    return nan_value();
  }
  const double units =
      static_cast<double>(exponent == 0 ? fraction : fraction | std::uint64_t{1} << type.fraction);
  const double value =
      units * power_of_two((exponent == 0 ? 1 : exponent) - type.bias - type.fraction);
  return is_negative ? -value : value;
}

}  // namespace detail

// Returns the real part of an element.
CGTREE_HOST_DEVICE inline double real_part(const ElementBits& bits, DType dtype) {
  using detail::bits_as;
  using detail::SmallFloat;
  const std::uint64_t low = bits.low;
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
    case DType::kUInt16:
    case DType::kUInt32:
    case DType::kUInt64:
      return static_cast<double>(low);
    case DType::kInt8:
      return static_cast<double>(static_cast<std::int8_t>(low));
    case DType::kInt16:
      return static_cast<double>(static_cast<std::int16_t>(low));
    case DType::kInt32:
      return static_cast<double>(static_cast<std::int32_t>(low));
    case DType::kInt64:
      return static_cast<double>(static_cast<std::int64_t>(low));
    case DType::kFloat16:
      return detail::small_float(low, {5, 10, 15, SmallFloat::kIeee});
    case DType::kBFloat16:
      return detail::small_float(low, {8, 7, 127, SmallFloat::kIeee});
    case DType::kFloat8E4M3FN:
      return detail::small_float(low, {4, 3, 7, SmallFloat::kOneNan});
    case DType::kFloat8E4M3FNUZ:
      return detail::small_float(low, {4, 3, 8, SmallFloat::kNegativeZeroIsNan});
    case DType::kFloat8E5M2:
      return detail::small_float(low, {5, 2, 15, SmallFloat::kIeee});
    case DType::kFloat8E5M2FNUZ:
      return detail::small_float(low, {5, 2, 16, SmallFloat::kNegativeZeroIsNan});
    case DType::kFloat8E8M0FNU:
      return low == 255 ? detail::nan_value() : detail::power_of_two(static_cast<int>(low) - 127);
    case DType::kFloat32:
    case DType::kComplex64:
      return static_cast<double>(bits_as<float>(static_cast<std::uint32_t>(low)));
    case DType::kFloat64:
    case DType::kComplex128:
      return bits_as<double>(low);
  }
  return 0;
}

// Returns the imaginary part of an element; 0 for a real one.
CGTREE_HOST_DEVICE inline double imaginary_part(const ElementBits& bits, DType dtype) {
  using detail::bits_as;
  if (dtype == DType::kComplex64) {
    return static_cast<double>(bits_as<float>(static_cast<std::uint32_t>(bits.low >> 32)));
  }
  return dtype == DType::kComplex128 ? bits_as<double>(bits.high) : 0;
}

// Returns whether numbers of the type are rounded, so that a tolerance makes sense.
CGTREE_HOST_DEVICE inline bool is_floating(DType dtype) {
  return dtype >= DType::kFloat16;
}

CGTREE_HOST_DEVICE inline double larger_of(double a, double b) {
  return a > b ? a : b;
}
CGTREE_HOST_DEVICE inline double magnitude(double a) {
  return a < 0 ? -a : a;
}

// The magnitude of a complex number is the larger magnitude of its parts.
CGTREE_HOST_DEVICE inline double difference(const ElementBits& replayed, const ElementBits& eager,
                                            DType dtype) {
  const double real = magnitude(real_part(replayed, dtype) - real_part(eager, dtype));
  const double other = magnitude(imaginary_part(replayed, dtype) - imaginary_part(eager, dtype));
  const bool is_number = real == real && other == other;
  return is_number ? larger_of(real, other) : detail::bits_as<double>(std::uint64_t{0x7ff0} << 48);
}

// Returns whether elements whose bits differ are equal enough. An infinity equals only itself.
CGTREE_HOST_DEVICE inline bool is_within(double difference, const ElementBits& eager, DType dtype,
                                         double tolerance) {
  if (!(tolerance > 0) || !is_floating(dtype)) return false;
  const double size =
      larger_of(magnitude(real_part(eager, dtype)), magnitude(imaginary_part(eager, dtype)));
  return difference - difference == 0 && difference <= tolerance * larger_of(1, size);
}

CGTREE_HOST_DEVICE inline ElementBits load_element(const ElementPairs& pairs,
                                                   std::uint64_t address) {
  ElementBits bits;
  for (std::uint32_t at = 0; at < pairs.element; at += pairs.word) {
    const std::uint64_t word = detail::load_word(address + at, pairs.word);
    (at < 8 ? bits.low : bits.high) |= word << (8 * (at % 8));
  }
  return bits;
}

CGTREE_HOST_DEVICE inline void store_element(const ElementPairs& pairs, std::uint64_t address,
                                             const ElementBits& bits) {
  for (std::uint32_t at = 0; at < pairs.element; at += pairs.word) {
    detail::store_word(address + at, pairs.word, (at < 8 ? bits.low : bits.high) >> (8 * (at % 8)));
  }
}

// Finds both addresses of element number `i`.
CGTREE_HOST_DEVICE inline void find_element(const ElementPairs& pairs, std::uint64_t i,
                                            std::uint64_t* first, std::uint64_t* second) {
  *first = pairs.first;
  *second = pairs.second;
  for (std::int32_t a = pairs.rank - 1; a >= 0; --a) {
    const auto size = static_cast<std::uint64_t>(pairs.dims[a]);
    const std::uint64_t rest = a == 0 ? 0 : quotient(i, size);
    const auto here = static_cast<std::int64_t>(i - rest * size);
    i = rest;
    *first += static_cast<std::uint64_t>(here * pairs.first_strides[a]);
    *second += static_cast<std::uint64_t>(here * pairs.second_strides[a]);
  }
}

// Compares element number `i`; the first side is the replayed one.
CGTREE_HOST_DEVICE inline void compare_element(const ElementPairs& pairs, std::uint64_t i,
                                               DType dtype, double tolerance,
                                               ComparedElements* found) {
  std::uint64_t first;
  std::uint64_t second;
  find_element(pairs, i, &first, &second);
  const ElementBits replayed = load_element(pairs, first);
  const ElementBits eager = load_element(pairs, second);
  if (replayed == eager) return;
  const double apart = difference(replayed, eager, dtype);
  const auto bits = detail::bits_as<std::uint64_t>(apart);
  if (bits > found->largest) found->largest = bits;
  if (is_within(apart, eager, dtype, tolerance)) return;
  ++found->differing;
  if (i < found->first) found->first = i;
}

CGTREE_HOST_DEVICE inline void exchange_element(const ElementPairs& pairs, std::uint64_t i) {
  std::uint64_t first;
  std::uint64_t second;
  find_element(pairs, i, &first, &second);
  const ElementBits held = load_element(pairs, first);
  store_element(pairs, first, load_element(pairs, second));
  store_element(pairs, second, held);
}

}  // namespace cgtree
