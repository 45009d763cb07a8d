// Philox4x32-10 against its published answers, and ranges against a plain implementation.
#include "interop/random/philox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/support/philox_oracle.h"

namespace cgtree::testing {
namespace {

void expect_words(const PhiloxBlock& block, std::vector<std::uint32_t> words) {
  EXPECT_TRUE(std::equal(words.begin(), words.end(), block.words));
}

// Source: kat_vectors of Random123, the paper's own library: philox4x32, 10 rounds.
TEST(PhiloxTest, GivesThePublishedAnswers) {
  expect_words(philox4x32({{0, 0, 0, 0}}, 0, 0), {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const std::uint32_t ones = 0xffffffff;
  expect_words(philox4x32({{ones, ones, ones, ones}}, ones, ones),
               {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  expect_words(
      philox4x32({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0),
      {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST(PhiloxTest, NumbersBlocksBySeedAndOffsetOfSixtyFourBits) {
  const unsigned seed = std::random_device()();
  RecordProperty("seed", std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t key = random();
    const std::uint64_t offset = random();
    PhiloxOracle oracle(key);
    oracle.reseed(key, offset + 5);
    expect_words(philox(key, offset, 5), oracle.words(1));
  }
}

TEST(PhiloxTest, ARangeReadsItsOriginWhenItIsUsedOnlyAfterRecording) {
  PhiloxPosition origin{1, 0};
  const PhiloxRange by_value(PhiloxPosition{77, 10 + 3});
  const PhiloxRange by_address(&origin, 3);
  origin = {77, 10};

  PhiloxOracle oracle(77);
  oracle.reseed(77, 10 + 3 + 4);
  const std::vector<std::uint32_t> expected = oracle.words(1);
  expect_words(by_value.block(4), expected);
  expect_words(by_address.block(4), expected);
}

TEST(PhiloxTest, WordsAtTheEndsStayInsideTheirDistributions) {
  EXPECT_EQ(to_uniform(0), 0);
  EXPECT_EQ(to_uniform(0xffffffff), 1 - 0x1p-24f);
  EXPECT_EQ(to_integer(0, 0, 10), 0u);
  EXPECT_EQ(to_integer(0xffffffff, 0xffffffff, 10), 9u);
  EXPECT_EQ(to_integer(0xffffffff, 0xffffffff, ~std::uint64_t{0}), ~std::uint64_t{0} - 1);
  for (const std::uint32_t word : {0u, 0xffffffffu}) {
    for (const float value : to_normals(word, word).values)
      EXPECT_TRUE(std::isfinite(value)) << word;
  }
}

}  // namespace
}  // namespace cgtree::testing
