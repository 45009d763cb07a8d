// A restored pool has the layout of its checkpoint, after any calls in between.
#include "allocator/pool/pool_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "allocator/pool/block.h"
#include "allocator/pool/pool.h"
#include "base/error.h"
#include "tests/allocator/fake_segment_source.h"

namespace cgtree {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::size_t kMiB = std::size_t{1} << 20;

class PoolCheckpointTest : public testing::Test {
 protected:
  ~PoolCheckpointTest() override {
    for (const Range& block : pool_.live())
      free(block);
    pool_.validate();
    pool_.trim();
    EXPECT_TRUE(pool_.segments().empty());
  }

  Range allocate(std::size_t bytes) {
    return {reinterpret_cast<std::uintptr_t>(pool_.allocate(bytes)), block_bytes(bytes)};
  }

  void free(const Range& block) { pool_.free(reinterpret_cast<void*>(block.address)); }

  // Allocates `count` blocks of 512 bytes side by side, of which only those in `kept` stay live.
  std::vector<Range> allocate_and_keep(int count, const std::vector<int>& kept) {
    std::vector<Range> blocks;
    for (int i = 0; i < count; ++i)
      blocks.push_back(allocate(512));
    std::vector<Range> live;
    for (int i = 0; i < count; ++i) {
      if (std::count(kept.begin(), kept.end(), i) > 0) {
        live.push_back(blocks[i]);
      } else {
        free(blocks[i]);
      }
    }
    return live;
  }

  // Frees all live blocks, and allocates others, some in new segments, that overlap the old ones.
  void mutate() {
    for (const Range& block : pool_.live())
      free(block);
    allocate(3 * 512);
    free(allocate(1024));
    allocate(15 * kMiB);
    allocate(300 * 1024);
    ASSERT_NE(pool_.live(), std::vector<Range>{});
  }

  // Expects a restore after mutate() to bring back the present blocks.
  void expect_round_trip() {
    const PoolCheckpoint checkpoint = pool_.checkpoint();
    const std::vector<Range> live = pool_.live();
    const std::vector<Range> segments = pool_.segments();
    mutate();
    const std::vector<Range> mutated = pool_.live();
    ASSERT_NE(mutated, live);

    const PoolDelta delta = pool_.restore(checkpoint, kAllMayDie);

    pool_.validate();
    EXPECT_EQ(pool_.live(), live);
    EXPECT_EQ(checkpoint.live(), live);
    EXPECT_EQ(checkpoint.segments(), segments);
    EXPECT_EQ(delta.became_live, minus(live, mutated));
    EXPECT_EQ(delta.died, minus(mutated, live));
    free_newer(segments);
    EXPECT_EQ(pool_.checkpoint(), checkpoint);
  }

  static std::vector<Range> minus(const std::vector<Range>& all, const std::vector<Range>& less) {
    std::vector<Range> rest;
    for (const Range& range : all) {
      if (std::find(less.begin(), less.end(), range) == less.end()) rest.push_back(range);
    }
    return rest;
  }

  // Expects that all segments newer than the checkpoint are wholly free, so that trim() frees
  // exactly those.
  void free_newer(const std::vector<Range>& segments) {
    pool_.trim();
    EXPECT_EQ(pool_.segments(), segments);
  }

  FakeSegmentSource source_;
  Pool pool_{source_};
};

// TestBlockStateAbsorption.test_simple
// Acceptance: checkpoints simple.
TEST_F(PoolCheckpointTest, MixedSizesComeBack) {
  allocate(8 * kMiB);
  for (int i = 0; i < 5; ++i)
    allocate(kMiB);
  allocate(512);

  expect_round_trip();
}

// TestBlockStateAbsorption.test_allocated_in_middle_of_segment
// Acceptance: checkpoints allocated_in_middle_of_segment.
TEST_F(PoolCheckpointTest, OneBlockInTheMiddleComesBack) {
  allocate_and_keep(11, {5});

  expect_round_trip();
}

// TestBlockStateAbsorption.test_multiple_middle_allocations
TEST_F(PoolCheckpointTest, SeveralBlocksInTheMiddleComeBack) {
  allocate_and_keep(11, {5, 8});

  expect_round_trip();
}

// TestBlockStateAbsorption.test_middle_allocations_contiguous
// Acceptance: checkpoints middle_allocations_contiguous.
TEST_F(PoolCheckpointTest, TouchingBlocksInTheMiddleComeBackAsTwo) {
  const std::vector<Range> live = allocate_and_keep(11, {5, 6});
  ASSERT_EQ(live[0].end(), live[1].address);

  expect_round_trip();
}

// TestBlockStateAbsorption.test_additional_free_following_checkpoint, and the error that its
// disabled sibling test_additional_free_error asks for: here no block has to be listed beforehand,
// because the delta names every block whose holder must release it.
// Acceptance: checkpoints additional_free_error.
TEST_F(PoolCheckpointTest, BlocksAllocatedAfterwardsDieAndAreNamed) {
  const Range first = allocate(2 * kMiB);
  const PoolCheckpoint checkpoint = pool_.checkpoint();
  const Range second = allocate(512);
  const Range third = allocate(30 * kMiB);

  const PoolDelta delta = pool_.restore(checkpoint, kAllMayDie);

  EXPECT_THAT(delta.died, testing::UnorderedElementsAre(second, third));
  EXPECT_THAT(delta.became_live, IsEmpty());
  EXPECT_THAT(pool_.live(), ElementsAre(first));
}

// TestBlockStateAbsorption.test_tensor_dies_after_checkpoint
// Acceptance: checkpoints tensor_dies_after_checkpoint, assigning_back_deleter_fns_to_tensor.
TEST_F(PoolCheckpointTest, BlocksFreedAfterwardsComeBackAndCanBeFreedOneByOne) {
  const Range first = allocate(20 * 512);
  const Range second = allocate(30 * 512);
  const PoolCheckpoint checkpoint = pool_.checkpoint();
  free(first);
  free(second);

  const PoolDelta delta = pool_.restore(checkpoint, kAllMayDie);

  EXPECT_THAT(delta.became_live, ElementsAre(first, second));
  EXPECT_THAT(pool_.live(), SizeIs(2));
  free(first);
  EXPECT_THAT(pool_.live(), SizeIs(1));
  free(second);
  EXPECT_THAT(pool_.live(), SizeIs(0));
}

// TestBlockStateAbsorption.test_check_pool_live_allocations
// Acceptance: checkpoints check_pool_live_allocations.
TEST_F(PoolCheckpointTest, LiveBlocksAreExactlyThoseAllocated) {
  const Range block = allocate(1000);
  EXPECT_EQ(pool_.live(), std::vector<Range>{block});

  const Range other = allocate(512);
  EXPECT_NE(pool_.live(), std::vector<Range>{block});
  EXPECT_NE(pool_.live(), std::vector<Range>{});

  free(other);
  EXPECT_EQ(pool_.live(), std::vector<Range>{block});
}

TEST_F(PoolCheckpointTest, RestoreIsIdempotent) {
  allocate_and_keep(11, {2, 7});
  const PoolCheckpoint checkpoint = pool_.checkpoint();
  mutate();
  pool_.restore(checkpoint, kAllMayDie);
  const PoolCheckpoint once = pool_.checkpoint();

  const PoolDelta delta = pool_.restore(checkpoint, kAllMayDie);

  EXPECT_EQ(pool_.checkpoint(), once);
  EXPECT_THAT(delta.became_live, IsEmpty());
  EXPECT_THAT(delta.died, IsEmpty());
}

TEST_F(PoolCheckpointTest, RestoreFromAnyStateGivesTheSameState) {
  allocate(15 * kMiB);
  allocate_and_keep(11, {2, 7});
  const PoolCheckpoint left = pool_.checkpoint();
  for (const Range& block : pool_.live())
    free(block);
  allocate_and_keep(6, {0, 3, 4});
  const PoolCheckpoint right = pool_.checkpoint();

  for (const PoolCheckpoint& target : {left, right, PoolCheckpoint(left)}) {
    pool_.restore(target, kAllMayDie);
    EXPECT_EQ(pool_.checkpoint(), target);
  }
}

TEST_F(PoolCheckpointTest, TheSameRequestsAfterARestoreGetTheSameAddresses) {
  allocate_and_keep(30, {1, 5, 6, 11, 20});
  allocate(15 * kMiB);
  const auto trace = [this] {
    std::vector<Range> blocks;
    for (const std::size_t units : {3, 1, 9, 2, 2, 700, 4, 1}) {
      blocks.push_back(allocate(units * 512));
      if (units == 9) free(blocks[1]);
    }
    return blocks;
  };
  const PoolCheckpoint checkpoint = pool_.checkpoint();
  const std::vector<Range> first = trace();
  mutate();
  pool_.restore(checkpoint, kAllMayDie);
  pool_.trim();

  EXPECT_EQ(trace(), first);
}

TEST_F(PoolCheckpointTest, SegmentsNewerThanTheCheckpointStayWhollyFree) {
  allocate(512);
  const PoolCheckpoint checkpoint = pool_.checkpoint();
  allocate(30 * kMiB);

  pool_.restore(checkpoint, kAllMayDie);

  EXPECT_THAT(pool_.segments(), SizeIs(2));
  EXPECT_EQ(pool_.statistics().largest_free_block, 30 * kMiB);
}

TEST_F(PoolCheckpointTest, TheEmptyCheckpointFreesEverything) {
  allocate(512);
  allocate(30 * kMiB);

  const PoolDelta delta = pool_.restore(PoolCheckpoint{}, kAllMayDie);

  EXPECT_THAT(delta.died, SizeIs(2));
  EXPECT_THAT(pool_.live(), IsEmpty());
}

TEST_F(PoolCheckpointTest, RefusesACheckpointWhoseSegmentWasGivenBack) {
  const Range large = allocate(30 * kMiB);
  const PoolCheckpoint checkpoint = pool_.checkpoint();
  free(large);
  pool_.trim();
  allocate(512);
  const PoolCheckpoint before = pool_.checkpoint();

  EXPECT_THROW(pool_.restore(checkpoint, kAllMayDie), InvalidArgument);

  EXPECT_EQ(pool_.checkpoint(), before);
}

// A segment with the same address and size is another segment: the old checkpoint's blocks do not
// apply to it.
TEST_F(PoolCheckpointTest, RefusesACheckpointWhoseSegmentCameBackAtTheSameAddress) {
  const Range first = allocate(30 * kMiB);
  const PoolCheckpoint checkpoint = pool_.checkpoint();
  free(first);
  pool_.trim();
  const Range second = allocate(30 * kMiB);
  ASSERT_EQ(first, second);

  EXPECT_NE(pool_.checkpoint(), checkpoint);
  EXPECT_THROW(pool_.restore(checkpoint, kAllMayDie), InvalidArgument);
}

TEST_F(PoolCheckpointTest, RefusesTheCheckpointOfAnotherPool) {
  Pool other(source_);
  void* const block = other.allocate(512);
  const PoolCheckpoint checkpoint = other.checkpoint();
  other.free(block);

  EXPECT_THROW(pool_.restore(checkpoint, kAllMayDie), InvalidArgument);
}

TEST_F(PoolCheckpointTest, RefusesTheCheckpointOfAnotherPoolAlsoIfThatHasNothing) {
  const PoolCheckpoint foreign = Pool(source_).checkpoint();
  const Range block = allocate(512);

  EXPECT_THROW(pool_.restore(foreign, kAllMayDie), InvalidArgument);
  EXPECT_THROW(pool_.restore(foreign, {}), InvalidArgument);

  EXPECT_THAT(pool_.live(), ElementsAre(block));
}

// A later pool may have the address of an earlier one.
TEST_F(PoolCheckpointTest, RefusesTheCheckpointOfAnEarlierPoolAtTheSameAddress) {
  std::optional<Pool> other(std::in_place, source_);
  const PoolCheckpoint earlier = other->checkpoint();
  other.emplace(source_);
  void* const block = other->allocate(512);

  EXPECT_NE(other->checkpoint(), earlier);
  EXPECT_THROW(other->restore(earlier, kAllMayDie), InvalidArgument);

  other->free(block);
}

TEST_F(PoolCheckpointTest, AnEmptyCheckpointIsRestoredInItsPool) {
  const PoolCheckpoint empty = pool_.checkpoint();
  const Range block = allocate(512);

  const PoolDelta delta = pool_.restore(empty, kAllMayDie);

  EXPECT_THAT(delta.died, ElementsAre(block));
}

TEST_F(PoolCheckpointTest, EqualityIsOfTheLayoutAndNotOfHowItCameAbout) {
  const Range block = allocate(512);
  const PoolCheckpoint before = pool_.checkpoint();
  free(block);
  const PoolCheckpoint between = pool_.checkpoint();
  allocate(100);  // the same block for a smaller request

  EXPECT_EQ(pool_.checkpoint(), before);
  EXPECT_NE(between, before);
}

TEST_F(PoolCheckpointTest, CheckpointsShareTheSegmentsThatDidNotChange) {
  allocate(16 * kMiB);
  allocate(512);
  const PoolCheckpoint before = pool_.checkpoint();
  allocate(512);  // next to the other small block
  const PoolCheckpoint after = pool_.checkpoint();

  ASSERT_THAT(after.frozen(), SizeIs(2));
  EXPECT_EQ(before.frozen()[0].blocks, after.frozen()[0].blocks);
  EXPECT_NE(before.frozen()[1].blocks, after.frozen()[1].blocks);
}

TEST_F(PoolCheckpointTest, RestoreBringsRequestedSizesBack) {
  const Range block = allocate(700);
  const PoolCheckpoint checkpoint = pool_.checkpoint();
  free(block);
  allocate(1000);  // the same block

  pool_.restore(checkpoint, kAllMayDie);

  pool_.validate();
  EXPECT_EQ(pool_.statistics().requested_bytes.current, 700u);
}

}  // namespace
}  // namespace cgtree
