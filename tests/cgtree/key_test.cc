// Keys: their text, and the parts that are refused.
#include "cgtree/values/key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace cgtree {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(KeyTest, IsTextOfItsPartsInTheirOrder) {
  EXPECT_EQ(Key().text(), "");
  EXPECT_EQ(Key({{"batch", 8}, {"adapter", "en de"}, {"least", INT64_MIN}}).text(),
            "batch=8 adapter=\"en de\" least=-9223372036854775808");
  EXPECT_NE(Key({{"a", 1}, {"b", 2}}), Key({{"b", 2}, {"a", 1}}));
}

TEST(KeyTest, TextAndNumbersThatLookAlikeDiffer) {
  EXPECT_NE(Key({{"a", 1}}), Key({{"a", "1"}}));
  EXPECT_NE(Key({{"a", "1 b=2"}}), Key({{"a", "1"}, {"b", 2}}));
}

TEST(KeyTest, UnsignedNumbersAreNotThoseOfNegativeOnes) {
  const Key large{{"a", UINT64_MAX}};
  EXPECT_EQ(large.text(), "a=18446744073709551615");
  EXPECT_NE(large, Key({{"a", -1}}));
  EXPECT_EQ(static_cast<std::uint64_t>(large.number("a")), UINT64_MAX);
  EXPECT_EQ(Key({{"a", 7u}}), Key({{"a", 7}}));
  EXPECT_EQ(Key({{"a", INT64_MAX}}), Key({{"a", static_cast<std::uint64_t>(INT64_MAX)}}));
  const Key same = Key::replaced(large.text(), [](const Key::Part& part) { return part; });
  EXPECT_EQ(same, large);
}

TEST(KeyTest, HoldsAsMuchAsItSaysAndNotAByteMore) {
  const std::string longest(Key::kMaxText - 4, 'x');
  EXPECT_EQ(Key({{"a", longest}}).text().size(), Key::kMaxText);
  EXPECT_THAT(
      [&] {
        Key({{"a", longest + "x"}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("longer than 126 bytes")));
}

TEST(KeyTest, NamesAndValuesThatWouldBeAmbiguousAreRefused) {
  EXPECT_THAT(([] {
                Key({{"a", 1}, {"a", 2}});
              }),
              ThrowsMessage<InvalidArgument>(HasSubstr("'a' twice")));
  EXPECT_THROW(Key({{"", 1}}), InvalidArgument);
  EXPECT_THROW(Key({{"a b", 1}}), InvalidArgument);
  EXPECT_THROW(Key({{"a", "\""}}), InvalidArgument);
  EXPECT_THROW(Key({{"a", "\n"}}), InvalidArgument);
}

TEST(KeyTest, ItsPartsCanBeReadBack) {
  const Key key{{"batch", 8}, {"adapter", "a=1 b=\\"}, {"none", ""}, {"least", INT64_MIN}};
  EXPECT_EQ(Key::of_text(key.text()), key);
  EXPECT_EQ(key.number("batch"), 8);
  EXPECT_EQ(key.string("adapter"), "a=1 b=\\");
  EXPECT_EQ(key.string("none"), "");
  EXPECT_EQ(key.number("least"), INT64_MIN);
  EXPECT_TRUE(key.has("none"));
  EXPECT_FALSE(key.has("b"));
  EXPECT_FALSE(Key().has("b"));
  EXPECT_THROW((void)key.number("b"), InvalidArgument);
  EXPECT_THROW((void)key.number("none"), InvalidArgument);
  EXPECT_THROW((void)key.string("batch"), InvalidArgument);
}

}  // namespace
}  // namespace cgtree
