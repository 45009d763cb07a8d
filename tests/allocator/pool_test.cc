// Pools: rounding, splitting, coalescing, growth and refusals.
#include "allocator/pool/pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "allocator/pool/block.h"
#include "base/error.h"
#include "base/log.h"
#include "tests/allocator/fake_segment_source.h"

namespace cgtree {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::uintptr_t kBase = std::uintptr_t{1} << 40;  // the first address of the fake source

void* pointer_to(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);
}

std::string out_of_memory_text(Pool& pool, std::size_t bytes) {
  try {
    pool.allocate(bytes);
  } catch (const OutOfMemory& error) {
    return std::string(error.message());
  }
  return "nothing was thrown";
}

class PoolTest : public testing::Test {
 protected:
  // Fills one small segment with four blocks of 512 KiB.
  std::vector<void*> quarters(Pool& pool) {
    std::vector<void*> blocks;
    for (int i = 0; i < 4; ++i)
      blocks.push_back(pool.allocate(kSmallSegment / 4));
    return blocks;
  }

  void free_all(Pool& pool) {
    for (const Range& block : pool.live())
      pool.free(pointer_to(block.address));
    pool.validate();
  }

  FakeSegmentSource source_;
  Pool pool_{source_};
};

TEST_F(PoolTest, RoundsUpToTheBlockAlignment) {
  pool_.allocate(1);
  pool_.allocate(512);
  pool_.allocate(513);

  EXPECT_THAT(pool_.live(),
              ElementsAre(Range{kBase, 512}, Range{kBase + 512, 512}, Range{kBase + 1024, 1024}));
  free_all(pool_);
}

TEST_F(PoolTest, RefusesARequestForNothing) {
  EXPECT_THROW(pool_.allocate(0), InvalidArgument);
}

TEST_F(PoolTest, BestFitTakesTheSmallestBlockThatFits) {
  std::vector<void*> blocks;
  for (const std::size_t units : {8, 1, 3, 1, 2, 1, 4, 1}) {
    blocks.push_back(pool_.allocate(units * 512));
  }
  for (const std::size_t hole : {0, 2, 4, 6})
    pool_.free(blocks[hole]);  // free blocks of 8, 3, 2 and 4 units

  EXPECT_EQ(pool_.allocate(3 * 512), blocks[2]);
  EXPECT_EQ(pool_.allocate(3 * 512), blocks[6]);
  free_all(pool_);
}

TEST_F(PoolTest, BestFitTakesTheLowestOfEqualBlocks) {
  const std::vector<void*> blocks = quarters(pool_);
  pool_.free(blocks[2]);
  pool_.free(blocks[0]);

  EXPECT_EQ(pool_.allocate(kSmallSegment / 4), blocks[0]);
  free_all(pool_);
}

TEST_F(PoolTest, SplittingLeavesTheRestFree) {
  pool_.allocate(3 * 512);

  EXPECT_EQ(pool_.statistics().largest_free_block, kSmallSegment - 3 * 512);
  free_all(pool_);
}

// All orders in which a block's neighbours can be freed before it.
TEST_F(PoolTest, FreeingCoalescesWithBothNeighbours) {
  for (const std::vector<int>& order : std::vector<std::vector<int>>{
           {0, 1, 2, 3}, {3, 2, 1, 0}, {0, 2, 1, 3}, {1, 3, 2, 0}, {0, 3, 1, 2}}) {
    const std::vector<void*> blocks = quarters(pool_);
    for (const int block : order) {
      pool_.free(blocks[block]);
      pool_.validate();
    }
    EXPECT_EQ(pool_.statistics().largest_free_block, kSmallSegment);
  }
}

TEST_F(PoolTest, BlocksOfTouchingSegmentsDoNotCoalesce) {
  quarters(pool_);
  quarters(pool_);
  ASSERT_THAT(pool_.segments(), ElementsAre(Range{kBase, kSmallSegment},
                                            Range{kBase + kSmallSegment, kSmallSegment}));
  free_all(pool_);

  EXPECT_EQ(pool_.statistics().largest_free_block, kSmallSegment);
}

TEST_F(PoolTest, SegmentSizesFollowTheRequest) {
  for (const std::size_t bytes : {1 * kMiB, 1 * kMiB + 1, 10 * kMiB, 10 * kMiB + 1}) {
    FakeSegmentSource source;
    Pool pool(source);
    pool.allocate(bytes);
    EXPECT_THAT(source.asked(), ElementsAre(bytes <= kMiB        ? 2 * kMiB
                                            : bytes <= 10 * kMiB ? 20 * kMiB
                                                                 : 12 * kMiB));
    free_all(pool);
  }
}

TEST_F(PoolTest, AskForTheExactSizeWhenTheUsualSegmentIsRefused) {
  source_.refuse_above(4 * kMiB);

  pool_.allocate(3 * kMiB + 1);

  EXPECT_THAT(source_.asked(), ElementsAre(20 * kMiB, 3 * kMiB + 512));
  free_all(pool_);
}

TEST_F(PoolTest, OutOfMemoryNamesThePoolAndWhatIsThere) {
  Pool pool(source_, {.name = "decode"});
  pool.allocate(1000);
  source_.fail_from(1);

  const std::string text = out_of_memory_text(pool, 3000000);

  EXPECT_THAT(text, HasSubstr("pool 'decode' has no room for 3000000 bytes"));
  EXPECT_THAT(text, HasSubstr("reserved 2097152, live 1024, largest free block 2096128"));
  EXPECT_EQ(pool.statistics().num_ooms, 1u);
  free_all(pool);
}

TEST_F(PoolTest, OutOfMemoryCarriesTheReasonOfTheSource) {
  source_.fail_from(1);

  EXPECT_THAT(out_of_memory_text(pool_, 512), HasSubstr("the fake device refuses 512 bytes"));
}

TEST_F(PoolTest, RefusesSizesThatCannotBeRounded) {
  for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX - 511, SIZE_MAX - kMiB}) {
    EXPECT_THROW(pool_.allocate(bytes), OutOfMemory) << bytes;
  }
  EXPECT_TRUE(pool_.segments().empty());
}

TEST_F(PoolTest, TrimGivesBackOnlyWhollyFreeSegments) {
  void* const kept = pool_.allocate(512);
  void* const freed = pool_.allocate(12 * kMiB);
  pool_.free(freed);

  EXPECT_EQ(pool_.trim(), 12 * kMiB);

  EXPECT_THAT(source_.held(), ElementsAre(Range{kBase, kSmallSegment}));
  EXPECT_THAT(pool_.segments(), ElementsAre(Range{kBase, kSmallSegment}));
  pool_.validate();
  pool_.free(kept);
}

TEST_F(PoolTest, TrimLeavesTheSegmentsThatAreToBeKept) {
  void* const small = pool_.allocate(512);
  void* const large = pool_.allocate(12 * kMiB);
  pool_.free(small);
  pool_.free(large);
  const Range last_byte{kBase + kSmallSegment - 1, 1};

  EXPECT_EQ(pool_.trim({&last_byte, 1}), 12 * kMiB);

  EXPECT_THAT(pool_.segments(), ElementsAre(Range{kBase, kSmallSegment}));
  pool_.validate();
}

TEST_F(PoolTest, OwnsWhatLiesInItsSegments) {
  void* const block = pool_.allocate(512);

  EXPECT_TRUE(pool_.owns(block));
  EXPECT_TRUE(pool_.owns(pointer_to(kBase + kSmallSegment - 1)));
  EXPECT_FALSE(pool_.owns(pointer_to(kBase + kSmallSegment)));
  EXPECT_FALSE(pool_.owns(pointer_to(kBase - 1)));
  EXPECT_FALSE(pool_.owns(nullptr));
  pool_.free(block);
}

TEST_F(PoolTest, DestructionGivesSegmentsBackAndLogsLiveBlocks) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, const std::string& line) { lines.push_back(line); });
  {
    Pool pool(source_, {.name = "leaky"});
    pool.allocate(700);
  }
  set_log_sink(nullptr);

  EXPECT_TRUE(source_.held().empty());
  EXPECT_THAT(lines, ElementsAre("pool_closed_with_live_blocks pool=leaky blocks=1 bytes=1024"));
}

}  // namespace
}  // namespace cgtree
