// padding_value() against the device's types, and against all values of the 16-bit types.
#include "cgtree/record/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>

#include "base/error.h"

namespace cgtree::testing {
namespace {

template <typename T>
T as(double value, DType dtype) {
  const auto bytes = padding_value(value, dtype);
  T result;
  std::memcpy(&result, bytes.data(), sizeof(result));
  return result;
}

// The value of a finite number of 16 bits.
double value_of(std::uint16_t bits, int fraction) {
  const int bias = (1 << (14 - fraction)) - 1;
  const int exponent = (bits & 0x7fff) >> fraction;
  const int rest = bits & ((1 << fraction) - 1);
  const double size = exponent == 0
                          ? std::ldexp(rest, 1 - bias - fraction)
                          : std::ldexp(rest + (1 << fraction), exponent - bias - fraction);
  return (bits & 0x8000) != 0 ? -size : size;
}

TEST(PaddingValueTest, IntegersAreThemselves) {
  EXPECT_EQ(as<std::int32_t>(-1, DType::kInt32), -1);
  EXPECT_EQ(as<std::int8_t>(-128, DType::kInt8), -128);
  EXPECT_EQ(as<std::uint64_t>(0x1p63, DType::kUInt64), 0x8000000000000000u);
  EXPECT_EQ(as<bool>(1, DType::kBool), true);
}

TEST(PaddingValueTest, FloatsAreRoundedToNearest) {
  EXPECT_EQ(as<float>(0.1, DType::kFloat32), 0.1f);
  EXPECT_EQ(as<double>(0.1, DType::kFloat64), 0.1);
  EXPECT_EQ(as<std::complex<float>>(2, DType::kComplex64), std::complex<float>(2));
  EXPECT_EQ(as<std::complex<double>>(0.1, DType::kComplex128), std::complex<double>(0.1));
  EXPECT_THROW((void)padding_value(1, DType::kFloat8E4M3FN), InvalidArgument);
  EXPECT_TRUE(std::isinf(as<float>(-INFINITY, DType::kFloat32)));
  EXPECT_EQ(as<std::uint16_t>(-INFINITY, DType::kFloat16), 0xfc00);
  EXPECT_EQ(as<std::uint16_t>(NAN, DType::kBFloat16), 0x7fc0);
}

TEST(PaddingValueTest, EveryNumberOfSixteenBitsIsItself) {
  for (const auto& [dtype, fraction] : {std::pair(DType::kFloat16, 10), {DType::kBFloat16, 7}}) {
    const int infinity = 0x7fff >> fraction << fraction;
    for (int bits = 0; bits < infinity; ++bits) {
      EXPECT_EQ(as<std::uint16_t>(value_of(bits, fraction), dtype), bits);
      EXPECT_EQ(as<std::uint16_t>(-value_of(bits, fraction), dtype), bits | 0x8000);
    }
  }
}

TEST(PaddingValueTest, BetweenTwoNumbersOfSixteenBitsTheNearerIsTaken) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (const auto& [dtype, fraction] : {std::pair(DType::kFloat16, 10), {DType::kBFloat16, 7}}) {
    const int infinity = 0x7fff >> fraction << fraction;
    for (int round = 0; round < 2000; ++round) {
      const int low = std::uniform_int_distribution<int>(0, infinity - 2)(random);
      const double a = value_of(low, fraction), b = value_of(low + 1, fraction);
      EXPECT_EQ(as<std::uint16_t>(a + (b - a) * 0.49, dtype), low);
      EXPECT_EQ(as<std::uint16_t>(a + (b - a) * 0.51, dtype), low + 1);
      EXPECT_EQ(as<std::uint16_t>(a + (b - a) * 0.5, dtype), low % 2 == 0 ? low : low + 1);
    }
  }
}

TEST(PaddingValueTest, ValuesOutsideOfATypeAreRefusedByName) {
  EXPECT_THROW((void)padding_value(-1, DType::kUInt8), InvalidArgument);
  EXPECT_THROW((void)padding_value(256, DType::kUInt8), InvalidArgument);
  EXPECT_THROW((void)padding_value(0x1p63, DType::kInt64), InvalidArgument);
  EXPECT_THROW((void)padding_value(NAN, DType::kInt32), InvalidArgument);
  EXPECT_THROW((void)padding_value(2, DType::kBool), InvalidArgument);
  EXPECT_THROW((void)padding_value(1e300, DType::kFloat32), InvalidArgument);
  EXPECT_THROW((void)padding_value(65520, DType::kFloat16), InvalidArgument);
  try {
    (void)padding_value(0.5, DType::kInt32);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("padding with 0.5: int32 cannot hold it"));
  }
}

}  // namespace
}  // namespace cgtree::testing
