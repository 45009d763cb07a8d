// The kernels that compare and exchange tensors, against plain loops on the host.
#include "extensions/verify/compare.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

class CompareTest : public TreeTest {
 protected:
  // A tensor of these elements, of any type.
  Tensor of_bytes(const Shape& shape, DType dtype, const std::vector<std::byte>& bytes) {
    const Tensor made = empty(shape, dtype, device());
    made.copy_from_host(bytes.data(), bytes.size());
    return made;
  }
  template <typename T>
  Tensor of(DType dtype, const std::vector<T>& values) {
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return of_bytes(Shape({static_cast<std::int64_t>(bytes.size() / size_of(dtype))}), dtype,
                    bytes);
  }
  ComparedElements compare(const Tensor& a, const Tensor& b, double tolerance = 0) {
    ComparedElements found;
    const Tensor sum = of<ComparedElements>(DType::kUInt64, {found});
    compare_elements(context().stream(), a, b, tolerance, sum.address());
    sum.copy_to_host(&found, sizeof(found), context().stream());
    return found;
  }
  static double largest(const ComparedElements& found) {
    return std::bit_cast<double>(found.largest);
  }
  std::vector<std::byte> random_bytes(std::size_t count) {
    std::vector<std::byte> bytes(count);
    for (std::byte& byte : bytes)
      byte = static_cast<std::byte>(random_());
    return bytes;
  }
  std::vector<std::byte> bytes_of(const Tensor& dense) {
    std::vector<std::byte> bytes(dense.bytes());
    dense.copy_to_host(bytes.data(), bytes.size(), context().stream());
    return bytes;
  }
};
CGTREE_ON_ALL_DEVICES(CompareTest);

TEST_P(CompareTest, TheFirstDifferenceAndTheirNumberAreFoundInDenseTensorsOfAnyType) {
  for (int type = 0; type < kDTypeCount; ++type) {
    const auto dtype = static_cast<DType>(type);
    const std::size_t element = size_of(dtype);
    for (const std::int64_t count : {1, 15, 16, 17, 4099}) {
      std::vector<std::byte> bytes = random_bytes(static_cast<std::size_t>(count) * element);
      const Tensor a = of_bytes(Shape({count}), dtype, bytes);
      EXPECT_EQ(compare(a, of_bytes(Shape({count}), dtype, bytes)).differing, 0u);
      std::vector<bool> differs(static_cast<std::size_t>(count));
      for (int i = 0; i < 3; ++i) {
        const std::size_t at = random_() % static_cast<std::size_t>(count);
        differs[at] = true;
      }
      for (std::size_t at = 0; at < differs.size(); ++at) {
        if (differs[at]) bytes[at * element + random_() % element] ^= std::byte{1};
      }
      const ComparedElements found = compare(a, of_bytes(Shape({count}), dtype, bytes));
      EXPECT_EQ(found.differing, static_cast<std::uint64_t>(std::ranges::count(differs, true)));
      EXPECT_EQ(found.first,
                static_cast<std::uint64_t>(std::ranges::find(differs, true) - differs.begin()));
    }
  }
}

TEST_P(CompareTest, StridedTensorsAreComparedElementByElement) {
  const std::vector<float> table = random_floats(5 * 7 * 6);
  const Tensor a = tensor({5, 7, 6}, table).slice(1, 2, 6).transpose(0, 2);
  std::vector<float> dense;
  for (int i = 0; i < 6; ++i) {
    for (int j = 2; j < 6; ++j) {
      for (int k = 0; k < 5; ++k)
        dense.push_back(table[static_cast<std::size_t>((k * 7 + j) * 6 + i)]);
    }
  }
  EXPECT_EQ(compare(a, tensor({6, 4, 5}, dense)).differing, 0u);
  const std::size_t at = random_() % dense.size();
  dense[at] += 3;
  const ComparedElements found = compare(tensor({6, 4, 5}, dense), a);
  EXPECT_EQ(found.differing, 1u);
  EXPECT_EQ(found.first, at);
  EXPECT_NEAR(largest(found), 3, 1e-5);
}

TEST_P(CompareTest, TensorsThatAreNotAlignedAreComparedAndExchanged) {
  std::vector<float> x = random_floats(41);
  std::vector<float> y = random_floats(41);
  const Tensor a = tensor({41}, x);
  const Tensor b = tensor({41}, y);
  exchange_elements(context().stream(), a.slice(0, 1, 38), b.slice(0, 2, 39));
  context().synchronize();
  std::swap_ranges(x.begin() + 1, x.begin() + 38, y.begin() + 2);
  EXPECT_EQ(values(a), x);
  EXPECT_EQ(values(b), y);
  EXPECT_EQ(compare(a.slice(0, 3, 40),
                    tensor({40}, std::vector<float>(x.begin() + 1, x.end())).slice(0, 2, 39))
                .differing,
            0u);
}

TEST_P(CompareTest, ElementsOfAnyTypeAreExchangedAndGapsAreNot) {
  for (int type = 0; type < kDTypeCount; ++type) {
    const auto dtype = static_cast<DType>(type);
    const std::size_t element = size_of(dtype);
    const std::vector<std::byte> x = random_bytes(6 * 5 * element);
    const std::vector<std::byte> y = random_bytes(6 * 3 * element);
    const Tensor table = of_bytes(Shape({6, 5}), dtype, x);
    const Tensor dense = of_bytes(Shape({6, 3}), dtype, y);
    exchange_elements(context().stream(), table.slice(1, 1, 4), dense);
    std::vector<std::byte> expected = x;
    std::vector<std::byte> other = y;
    for (std::size_t row = 0; row < 6; ++row) {
      std::swap_ranges(other.begin() + static_cast<std::ptrdiff_t>(row * 3 * element),
                       other.begin() + static_cast<std::ptrdiff_t>((row + 1) * 3 * element),
                       expected.begin() + static_cast<std::ptrdiff_t>((row * 5 + 1) * element));
    }
    EXPECT_EQ(bytes_of(table), expected);
    EXPECT_EQ(bytes_of(dense), other);
  }
}

TEST_P(CompareTest, AToleranceIsRelativeAboveOneAndKnowsNoNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto differs = [&](float replayed, float eager, double tolerance) {
    return compare(of<float>(DType::kFloat32, {replayed}), of<float>(DType::kFloat32, {eager}),
                   tolerance)
               .differing > 0;
  };
  EXPECT_FALSE(differs(1.5F, 1, 0.5));
  EXPECT_TRUE(differs(1.75F, 1, 0.5));
  EXPECT_FALSE(differs(0.5F, 0, 0.5));
  EXPECT_FALSE(differs(150, 100, 0.5));
  EXPECT_TRUE(differs(151, 100, 0.5));
  EXPECT_TRUE(differs(-0.0F, 0, 0));
  EXPECT_FALSE(differs(-0.0F, 0, 1e-30));
  EXPECT_FALSE(differs(nan, nan, 0));
  EXPECT_FALSE(differs(infinity, infinity, 0));
  EXPECT_TRUE(differs(nan, -nan, 0.5));
  EXPECT_TRUE(differs(nan, 1, 0.5));
  EXPECT_TRUE(differs(1, infinity, 0.5));
  EXPECT_TRUE(differs(infinity, -infinity, 0.5));
  EXPECT_TRUE(differs(0.0F, -0.0F, 0));
  EXPECT_FALSE(differs(0.0F, -0.0F, 1e-9));
}

TEST_P(CompareTest, EveryFloatingTypeIsReadAsItsNumbers) {
  const auto apart = [&](DType dtype, auto replayed, auto eager, double tolerance = 0) {
    using T = decltype(replayed);
    const ComparedElements found =
        compare(of<T>(dtype, {replayed}), of<T>(dtype, {static_cast<T>(eager)}), tolerance);
    return std::pair(largest(found), found.differing);
  };
  using Found = std::pair<double, std::uint64_t>;
  using U8 = std::uint8_t;
  using U16 = std::uint16_t;
  EXPECT_EQ(apart(DType::kFloat16, U16{0x3c00}, U16{0xc000}), Found(3, 1));  // 1, -2
  EXPECT_EQ(apart(DType::kFloat16, U16{0x0001}, U16{0x0000}, 1e-7), Found(0x1p-24, 0));
  EXPECT_EQ(apart(DType::kFloat16, U16{0x7bff}, U16{0x7c00}, 1).second, 1u);  // infinity
  EXPECT_EQ(apart(DType::kBFloat16, U16{0x3f80}, U16{0x3f81}, 0.01), Found(0x1p-7, 0));
  EXPECT_EQ(apart(DType::kFloat8E4M3FN, U8{0x7e}, U8{0x38}), Found(447, 1));  // 448, 1
  EXPECT_EQ(apart(DType::kFloat8E4M3FN, U8{0x7f}, U8{0x38}, 1e9).second, 1u);
  EXPECT_EQ(apart(DType::kFloat8E4M3FNUZ, U8{0x40}, U8{0x01}), Found(1 - 0x1p-10, 1));
  EXPECT_EQ(apart(DType::kFloat8E4M3FNUZ, U8{0x80}, U8{0x01}, 1e9).second, 1u);
  EXPECT_EQ(apart(DType::kFloat8E5M2, U8{0x3c}, U8{0x40}), Found(1, 1));      // 1, 2
  EXPECT_EQ(apart(DType::kFloat8E5M2FNUZ, U8{0x40}, U8{0x44}), Found(1, 1));  // 1, 2
  EXPECT_EQ(apart(DType::kFloat8E8M0FNU, U8{127}, U8{129}), Found(3, 1));     // 1, 4
  EXPECT_EQ(apart(DType::kInt8, std::int8_t{-3}, std::int8_t{4}, 100), Found(7, 1));
  EXPECT_EQ(apart(DType::kFloat64, 1.0, 1.0 + 0x1p-40, 1e-9), Found(0x1p-40, 0));
  const auto complex = [](float real, float imaginary) {
    return std::bit_cast<std::uint64_t>(std::array{real, imaginary});
  };
  EXPECT_EQ(apart(DType::kComplex64, complex(1, 8), complex(1, 4), 0.5), Found(4, 1));
  EXPECT_EQ(apart(DType::kComplex64, complex(1, 6), complex(1, 4), 0.5), Found(2, 0));
  using Pair = std::array<double, 2>;
  const ComparedElements found =
      compare(of<Pair>(DType::kComplex128, {{3, 4}}), of<Pair>(DType::kComplex128, {{3, 9}}));
  EXPECT_EQ(largest(found), 5);
}

}  // namespace
}  // namespace cgtree::testing
