// str_format(), compared with fmt.
#include "base/format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace cgtree {
namespace {

TEST(FormatTest, FieldsAreReplacedInOrderAndBracesThatStandTwiceRemain) {
  EXPECT_EQ(str_format("nothing"), "nothing");
  EXPECT_EQ(str_format(""), "");
  EXPECT_EQ(str_format("{{{}}} of {}{}", "a", std::string("b"), std::string_view("c")),
            "{a} of bc");
  EXPECT_EQ(str_format("{{}}"), "{}");
  EXPECT_EQ(str_format("{}{}{}", true, 'x', false), "truexfalse");
}

TEST(FormatTest, AnAddressIsAHexadecimalNumber) {
  EXPECT_EQ(str_format("{}", reinterpret_cast<const void*>(0x7f00)), "0x7f00");
}

// Returns numbers of all sizes, and the extreme ones.
template <typename Number>
Number draw(std::mt19937_64& random) {
  const std::uint64_t bits = random() >> random() % 64;
  if constexpr (std::is_floating_point_v<Number>) {
    if (random() % 2 == 0) return static_cast<Number>(static_cast<std::int64_t>(bits % 2000)) / 8;
    if constexpr (sizeof(Number) == 4)
      return std::bit_cast<Number>(static_cast<std::uint32_t>(bits));
    return std::bit_cast<double>(random());
  } else {
    if (random() % 16 == 0) return std::numeric_limits<Number>::min();
    return static_cast<Number>(bits);
  }
}

template <typename Number>
class FormatNumberTest : public ::testing::Test {};
using Numbers = ::testing::Types<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, int,
                                 unsigned, std::int64_t, std::uint64_t, float, double>;
TYPED_TEST_SUITE(FormatNumberTest, Numbers);

TYPED_TEST(FormatNumberTest, ReadsAsFmtWritesIt) {
  const std::uint64_t seed = std::random_device{}();
  std::mt19937_64 random(seed);
  for (int i = 0; i < 3000; ++i) {
    const auto x = draw<TypeParam>(random);
    if constexpr (std::is_floating_point_v<TypeParam>) {
      if (std::isnan(x)) continue;
      ASSERT_EQ(static_cast<TypeParam>(std::strtod(str_format("{}", x).c_str(), nullptr)), x)
          << "seed " << seed;
    }
    if (!std::is_floating_point_v<TypeParam> || std::abs(static_cast<double>(x)) < 1e5)
      ASSERT_EQ(str_format("{}", x), fmt::format("{}", x)) << "seed " << seed;
    if constexpr (std::is_signed_v<TypeParam>) {
      const TypeParam small = std::clamp(x, TypeParam(-100), TypeParam(100));
      ASSERT_EQ(str_format("{:+}", small), fmt::format("{:+}", small)) << "seed " << seed;
    }
    if constexpr (std::is_floating_point_v<TypeParam>) {
      ASSERT_EQ(str_format("{:g} {:.3g} {:.17g}", x, x, x),
                fmt::format("{:g} {:.3g} {:.17g}", x, x, x));
      if (std::abs(x) < 1e30)
        ASSERT_EQ(str_format("{:.1f}", x), fmt::format("{:.1f}", x)) << "seed " << seed;
    } else if (x >= 0) {
      ASSERT_EQ(str_format("{:#x} {:02x} {:016x}", x, x, x),
                fmt::format("{:#x} {:02x} {:016x}", x, x, x));
    }
  }
}

TEST(FormatTest, ElementsOfARangeAreJoined) {
  EXPECT_EQ(joined(std::vector<int>{}, ", "), "");
  EXPECT_EQ(joined(std::vector<std::int64_t>{2, -4, 8}, ", "), "2, -4, 8");
  EXPECT_EQ(joined(std::vector<std::string>{"a", "", "c"}, "; "), "a; ; c");
}

TEST(FormatTest, TextIsCutWhereThereIsNoMoreRoom) {
  char text[8];
  for (const std::string_view given : {"", "abc", "abcdefg", "abcdefgh", "abcdefghijkl"}) {
    std::fill(std::begin(text), std::end(text), '?');
    format_list_into(text, sizeof text, "{}", {given});
    EXPECT_EQ(std::string_view(text), given.substr(0, 7));
  }
  format_list_into(text, 1, "{}", {"abc"});
  EXPECT_STREQ(text, "");
}

}  // namespace
}  // namespace cgtree
