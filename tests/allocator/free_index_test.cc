// The free index, compared with an ordered set of the same blocks.
#include "allocator/pool/free_index.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "allocator/pool/block.h"

namespace cgtree {
namespace {

constexpr std::size_t kGiB = std::size_t{1} << 30;

class FreeIndexTest : public testing::Test {
 protected:
  FreeIndexTest() { table_.reserve(10000); }

  BlockIndex insert(std::uintptr_t address, std::size_t bytes) {
    const BlockIndex block = table_.take();
    table_[block].block = {{address, bytes}, 0};
    index_.insert(block);
    return block;
  }

  Range best_fit(std::size_t bytes) const {
    const BlockIndex block = index_.best_fit(bytes);
    return block == kNoBlock ? Range{} : table_[block].block.range;
  }

  BlockTable table_;
  FreeIndex index_{table_};
};

TEST_F(FreeIndexTest, IsEmptyAtFirst) {
  EXPECT_EQ(index_.best_fit(512), kNoBlock);
  EXPECT_EQ(index_.largest(), 0u);
}

TEST_F(FreeIndexTest, ABlockOfTheOwnBinMayBeTooSmall) {
  // Both belong to the bin of 256 KiB to 257 KiB.
  insert(1 << 20, 512 * kBlockAlignment);
  insert(2 << 20, 513 * kBlockAlignment);

  EXPECT_EQ(best_fit(513 * kBlockAlignment), (Range{2 << 20, 513 * kBlockAlignment}));
}

// The last inserted block is kept outside the bins.
TEST_F(FreeIndexTest, TheBlockThatWasInsertedLastHasNoPrecedence) {
  for (const std::size_t bytes : {std::size_t{512}, std::size_t{1} << 20}) {
    const BlockIndex low = insert(1 << 20, bytes);
    const BlockIndex high = insert(2 << 20, bytes);
    EXPECT_EQ(index_.best_fit(bytes), low);
    const BlockIndex larger = insert(3 << 20, bytes + 512);
    EXPECT_EQ(index_.best_fit(bytes), low);
    EXPECT_EQ(index_.best_fit(bytes + 512), larger);
    EXPECT_EQ(index_.largest(), bytes + 512);
    index_.erase(low);
    const BlockIndex lowest = insert(512, bytes);
    EXPECT_EQ(index_.best_fit(bytes), lowest);
    EXPECT_EQ(index_.size(), 3u);
    for (const BlockIndex block : {lowest, larger, high})
      index_.erase(block);
    EXPECT_EQ(index_.best_fit(512), kNoBlock);
    index_.validate();
  }
}

TEST_F(FreeIndexTest, FindsTheFirstBinThatIsNotEmpty) {
  insert(1 << 20, 40 * kGiB);
  insert(2 << 20, 65 * kBlockAlignment);

  EXPECT_EQ(best_fit(kBlockAlignment).address, 2u << 20);
  EXPECT_EQ(best_fit(66 * kBlockAlignment).address, 1u << 20);
  EXPECT_EQ(index_.best_fit(41 * kGiB), kNoBlock);
}

// Blocks beyond the last power of two share the last bin.
TEST_F(FreeIndexTest, TellsTheLargestSizesApart) {
  for (const std::size_t power : {32, 33, 47, 50, 60, 63})
    insert(power << 20, std::size_t{1} << power);
  insert(1, SIZE_MAX - 511);

  for (const std::size_t power : {32, 33, 47, 50, 60, 63}) {
    EXPECT_EQ(best_fit(std::size_t{1} << power).address, power << 20);
    EXPECT_EQ(best_fit((std::size_t{1} << power) - 512).address, power << 20);
  }
  EXPECT_EQ(index_.largest(), SIZE_MAX - 511);
  EXPECT_EQ(best_fit((std::size_t{1} << 63) + 512).address, 1u);
}

std::size_t random_bytes(std::mt19937& random) {
  const std::size_t units = std::size_t{1} << (random() % 24);
  return (units + random() % units) * kBlockAlignment;
}

// Invariant 14 of an allocator with bins follows: the fit is exact.
TEST_F(FreeIndexTest, AgreesWithAnOrderedSetOnRandomBlocks) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RecordProperty("seed", std::to_string(seed));
  std::mt19937 random(seed);
  using Key = std::pair<std::size_t, std::uintptr_t>;
  std::set<Key> model;
  std::vector<BlockIndex> blocks;
  for (int i = 0; i < 20000; ++i) {
    if (blocks.size() < 10 || (blocks.size() < 5000 && random() % 2 == 0)) {
      // Many blocks have equal sizes, below and above 256 KiB, so that bins have many blocks.
      const std::size_t bytes =
          random() % 4 == 0 ? (random() % 2 == 0 ? 512 : 1 << 20) : random_bytes(random);
      const std::uintptr_t address = (std::uintptr_t{random()} << 9);
      if (!model.insert({bytes, address}).second) continue;
      blocks.push_back(insert(address, bytes));
    } else {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      const Range range = table_[blocks.back()].block.range;
      index_.erase(blocks.back());
      table_.give_back(blocks.back());
      blocks.pop_back();
      model.erase({range.bytes, range.address});
    }
    const std::size_t wanted = random_bytes(random);
    const auto expected = model.lower_bound({wanted, 0});
    ASSERT_EQ(best_fit(wanted),
              expected == model.end() ? Range{} : (Range{expected->second, expected->first}));
    ASSERT_EQ(index_.largest(), model.empty() ? 0 : model.rbegin()->first);
    ASSERT_EQ(index_.size(), model.size());
  }
  index_.validate();
  for (const BlockIndex block : blocks)
    EXPECT_TRUE(index_.contains(block));
}

}  // namespace
}  // namespace cgtree
