// What a pool of compact growth takes and gives back, and when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "allocator/pool/pool.h"
#include "base/error.h"
#include "tests/allocator/fake_segment_source.h"

namespace cgtree {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::uintptr_t kBase = std::uintptr_t{1} << 40;

class PoolGrowthTest : public testing::Test {
 protected:
  ~PoolGrowthTest() override { pool_.restore_live({}); }

  // Leaves wholly free segments of these sizes.
  void leave_free(const std::vector<std::size_t>& sizes) {
    std::vector<void*> blocks;
    for (const std::size_t bytes : sizes)
      blocks.push_back(pool_.allocate(bytes));
    for (void* const block : blocks)
      pool_.free(block);
  }

  FakeSegmentSource source_{200 * kMiB};
  Pool pool_{source_, {.growth = Growth::kCompact}};
};

TEST_F(PoolGrowthTest, ASegmentHasRoomForTwoSuchBlocksWhileItIsSmall) {
  const std::pair<std::size_t, std::size_t> cases[] = {
      {1 * kMiB, 2 * kMiB},       {1 * kMiB + 1, 4 * kMiB},    {3 * kMiB, 6 * kMiB},
      {16 * kMiB, 32 * kMiB},     {16 * kMiB + 1, 32 * kMiB},  {32 * kMiB, 32 * kMiB},
      {32 * kMiB + 1, 34 * kMiB}, {100 * kMiB + 1, 102 * kMiB}};
  for (const auto& [bytes, expected] : cases) {
    FakeSegmentSource source;
    Pool pool(source, {.growth = Growth::kCompact});
    pool.free(pool.allocate(bytes));
    EXPECT_THAT(source.asked(), ElementsAre(expected)) << bytes;
  }
}

TEST_F(PoolGrowthTest, FreeSegmentsMakeRoomForALargerOne) {
  leave_free({40 * kMiB, 50 * kMiB});

  pool_.allocate(60 * kMiB);

  // The larger of the two was not enough.
  EXPECT_THAT(pool_.segments(), ElementsAre(Range{kBase, 60 * kMiB}));
  EXPECT_EQ(pool_.statistics().reserved_bytes.peak, 90 * kMiB);
  pool_.validate();
}

TEST_F(PoolGrowthTest, TheLargestSegmentsAreGivenBackFirst) {
  leave_free({34 * kMiB, 40 * kMiB, 50 * kMiB});

  pool_.allocate(52 * kMiB);

  EXPECT_THAT(pool_.segments(),
              ElementsAre(Range{kBase, 34 * kMiB}, Range{kBase + 34 * kMiB, 52 * kMiB}));
}

TEST_F(PoolGrowthTest, NothingIsGivenBackBelowThePeak) {
  leave_free({40 * kMiB, 50 * kMiB});
  pool_.trim();
  leave_free({34 * kMiB});

  pool_.allocate(50 * kMiB);

  EXPECT_THAT(pool_.segments(), SizeIs(2));
}

TEST_F(PoolGrowthTest, SegmentsOfACheckpointStay) {
  leave_free({40 * kMiB});
  {
    const PoolCheckpoint checkpoint = pool_.checkpoint();
    pool_.allocate(60 * kMiB);
    EXPECT_THAT(pool_.segments(), SizeIs(2));
    EXPECT_NO_THROW(pool_.restore(checkpoint, kAllMayDie));
  }
  pool_.allocate(70 * kMiB);
  EXPECT_THAT(pool_.segments(), SizeIs(1));
}

TEST_F(PoolGrowthTest, ARefusalIsMetByGivingEverythingBack) {
  leave_free({34 * kMiB, 36 * kMiB, 38 * kMiB});
  source_.fail_at(1);

  EXPECT_NO_THROW(pool_.allocate(50 * kMiB));
}

TEST_F(PoolGrowthTest, OtherPoolsKeepTheirFreeSegments) {
  FakeSegmentSource source;
  Pool pool(source);
  pool.free(pool.allocate(40 * kMiB));

  pool.free(pool.allocate(60 * kMiB));

  EXPECT_THAT(pool.segments(), SizeIs(2));
}

TEST(PoolSmallApartTest, ASmallRequestLeavesWhatALargeOneHasFreedAlone) {
  FakeSegmentSource source;
  Pool pool(source, {.small_apart = true});
  void* const large = pool.allocate(36 * kMiB);
  pool.free(large);

  void* const small = pool.allocate(512);

  EXPECT_THAT(source.asked(), ElementsAre(36 * kMiB, 2 * kMiB));
  EXPECT_EQ(pool.allocate(36 * kMiB), large);
  EXPECT_EQ(pool.allocate(kMiB), static_cast<std::byte*>(small) + 512);
  pool.validate();
  pool.restore_live({});
}

TEST(PoolSmallApartTest, WhereNothingElseIsToBeHadASmallRequestCutsALargeBlock) {
  FakeSegmentSource source(36 * kMiB + 1024);
  Pool pool(source, {.small_apart = true});
  void* const large = pool.allocate(36 * kMiB);
  pool.free(large);

  EXPECT_NE(pool.allocate(1024), large);  // a segment of its size
  EXPECT_EQ(pool.allocate(512), large);

  pool.validate();
  pool.restore_live({});
}

TEST(PoolSmallApartTest, NeedsSegmentsThatAreSplitAndDoNotGrow) {
  FakeSegmentSource source;
  EXPECT_THROW(Pool(source, {.growth = Growth::kInPlace, .small_apart = true}), InvalidArgument);
  EXPECT_THROW(Pool(source, {.splits = false, .small_apart = true}), InvalidArgument);
}

}  // namespace
}  // namespace cgtree
