// The live index, compared with a map of the same blocks.
#include "allocator/pool/live_index.h"

#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <random>
#include <string>

namespace cgtree {
namespace {

class LiveIndexTest : public testing::Test {
 protected:
  BlockIndex insert(std::uintptr_t address) {
    table_.reserve(1);
    index_.reserve(1);
    const BlockIndex block = table_.take();
    table_[block].block = {{address, 512}, 512};
    index_.insert(block);
    return block;
  }

  BlockTable table_;
  LiveIndex index_{table_};
};

TEST_F(LiveIndexTest, FindsNothingAtFirst) {
  EXPECT_EQ(index_.find(512), kNoBlock);
  EXPECT_EQ(index_.erase(512), kNoBlock);
  EXPECT_EQ(index_.find(0), kNoBlock);
}

TEST_F(LiveIndexTest, FindsEachOfManyNeighbours) {
  std::map<std::uintptr_t, BlockIndex> model;
  for (std::uintptr_t address = 0; address < 100000 * 512; address += 512)
    model[address] = insert(address);

  for (const auto& [address, block] : model)
    ASSERT_EQ(index_.find(address), block);
  EXPECT_EQ(index_.size(), model.size());
}

TEST_F(LiveIndexTest, AgreesWithAMapOnRandomAddresses) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RecordProperty("seed", std::to_string(seed));
  std::mt19937 random(seed);
  std::map<std::uintptr_t, BlockIndex> model;
  for (int i = 0; i < 50000; ++i) {
    const std::uintptr_t address = (random() % 2000) * 512;
    const auto known = model.find(address);
    if (known == model.end()) {
      ASSERT_EQ(index_.find(address), kNoBlock);
      model[address] = insert(address);
    } else {
      ASSERT_EQ(index_.erase(address), known->second);
      table_.give_back(known->second);
      model.erase(known);
    }
    if (model.empty()) continue;
    const auto any = std::next(model.begin(), static_cast<long>(random() % model.size()));
    ASSERT_EQ(index_.find(any->first), any->second);
  }
}

TEST_F(LiveIndexTest, TellsAddressesOfOneHashApart) {
  // Its product with the hash's multiplier is less than 1 << 32: it has the hash of 0.
  constexpr std::uintptr_t kHashOfZero = 0xe2aa80c8400;
  const BlockIndex first = insert(0);
  const BlockIndex second = insert(kHashOfZero);

  EXPECT_EQ(index_.find(0), first);
  EXPECT_EQ(index_.find(kHashOfZero), second);
  EXPECT_EQ(index_.erase(kHashOfZero), second);
  EXPECT_EQ(index_.find(kHashOfZero), kNoBlock);
  EXPECT_EQ(index_.find(0), first);
  index_.insert(second);
  EXPECT_EQ(index_.erase(0), first);
  EXPECT_EQ(index_.find(0), kNoBlock);
  EXPECT_EQ(index_.find(kHashOfZero), second);
}

}  // namespace
}  // namespace cgtree
