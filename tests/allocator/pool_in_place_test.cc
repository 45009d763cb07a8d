// A pool whose segment grows and shrinks at its end, as virtual memory does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "allocator/pool/pool.h"
#include "base/error.h"
#include "tests/allocator/fake_segment_source.h"

namespace cgtree {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::uintptr_t kBase = std::uintptr_t{1} << 40;
constexpr std::size_t kSpacing = 256 * kMiB;

// Calls a hook while a segment grows or shrinks.
class MeddlingSource final : public SegmentSource {
 public:
  void* allocate(std::size_t bytes, StreamId stream) override {
    return upstream.allocate(bytes, stream);
  }
  void free(void* segment, std::size_t bytes, StreamId stream) noexcept override {
    upstream.free(segment, bytes, stream);
  }
  bool grow(void* segment, std::size_t bytes, std::size_t grown, StreamId stream) override {
    if (while_growing) while_growing();
    return upstream.grow(segment, bytes, grown, stream);
  }
  std::size_t shrink(void* segment, std::size_t bytes, std::size_t least,
                     StreamId stream) noexcept override {
    if (while_shrinking) while_shrinking();
    return upstream.shrink(segment, bytes, least, stream);
  }

  std::function<void()> while_growing;
  std::function<void()> while_shrinking;
  FakeSegmentSource upstream;
};

class PoolInPlaceTest : public testing::Test {
 protected:
  PoolInPlaceTest() {
    source_.set_spacing(kSpacing);
    source_.set_granularity(2 * kMiB);
  }
  ~PoolInPlaceTest() override {
    pool_.validate();
    EXPECT_EQ(pool_.segments(), source_.held());
    EXPECT_EQ(pool_.statistics().reserved_bytes.current, bytes_of(source_.held()));
    pool_.restore_live({});
  }

  static std::size_t bytes_of(const std::vector<Range>& ranges) {
    std::size_t bytes = 0;
    for (const Range& range : ranges)
      bytes += range.bytes;
    return bytes;
  }

  FakeSegmentSource source_{400 * kMiB};
  Pool pool_{source_, {.growth = Growth::kInPlace}};
};

TEST_F(PoolInPlaceTest, TheFirstSegmentHoldsTheRequestInSteps) {
  pool_.allocate(512);
  EXPECT_THAT(pool_.segments(), ElementsAre(Range{kBase, 2 * kMiB}));
}

TEST_F(PoolInPlaceTest, GrowsByWhatTheFreeEndDoesNotCover) {
  pool_.allocate(kMiB);

  void* const block = pool_.allocate(4 * kMiB);  // 1 MiB of it is free already

  EXPECT_EQ(block, reinterpret_cast<void*>(kBase + kMiB));
  EXPECT_THAT(pool_.segments(), ElementsAre(Range{kBase, 6 * kMiB}));
  EXPECT_THAT(source_.asked(), ElementsAre(2 * kMiB, 4 * kMiB));
  EXPECT_EQ(pool_.statistics().largest_free_block, 1 * kMiB);
}

TEST_F(PoolInPlaceTest, GrowsBehindALiveEnd) {
  pool_.allocate(2 * kMiB);

  void* const block = pool_.allocate(2 * kMiB);

  EXPECT_EQ(block, reinterpret_cast<void*>(kBase + 2 * kMiB));
  EXPECT_EQ(pool_.statistics().segment.current, 1u);
}

TEST_F(PoolInPlaceTest, TakesANewSegmentWhereTheLastCannotGrow) {
  pool_.allocate(200 * kMiB);

  void* const block = pool_.allocate(100 * kMiB);

  EXPECT_EQ(block, reinterpret_cast<void*>(kBase + kSpacing));
  EXPECT_THAT(pool_.segments(), SizeIs(2));
}

// With a second segment, distances between blocks would differ from those in a segment that grows.
TEST_F(PoolInPlaceTest, APoolOfOneSegmentGetsNoSecondWhereThatCannotGrow) {
  for (const Growth growth : {Growth::kInPlace, Growth::kInPages}) {
    Pool pool(source_, {.growth = growth, .has_one_segment = true});
    void* const block = pool.allocate(200 * kMiB);

    try {
      (void)pool.allocate(100 * kMiB);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const OutOfMemory& error) {
      EXPECT_THAT(std::string(error.message()), testing::HasSubstr("cannot grow"));
    }

    pool.validate();
    EXPECT_THAT(pool.segments(), ElementsAre(Range{kBase, 200 * kMiB}));
    pool.free(block);
    pool.trim();
    pool.free(pool.allocate(210 * kMiB));  // in a segment that replaces the first
    EXPECT_THAT(pool.segments(), SizeIs(1));
  }
}

// Acceptance: pools mempool_expandable.
TEST_F(PoolInPlaceTest, TheNewestSegmentGrows) {
  pool_.allocate(200 * kMiB);
  pool_.allocate(80 * kMiB);

  pool_.allocate(20 * kMiB);

  EXPECT_THAT(pool_.segments(),
              ElementsAre(Range{kBase, 200 * kMiB}, Range{kBase + kSpacing, 100 * kMiB}));
}

TEST_F(PoolInPlaceTest, ARequestThatNoSegmentCanGrowByIsRefused) {
  pool_.allocate(512);

  EXPECT_THROW(pool_.allocate(kLargestRequest), OutOfMemory);
}

TEST_F(PoolInPlaceTest, ARefusedGrowthLeavesThePoolAsItWas) {
  pool_.allocate(3 * kMiB);
  const PoolCheckpoint before = pool_.checkpoint();
  source_.fail_from(1);

  EXPECT_THROW(pool_.allocate(10 * kMiB), OutOfMemory);

  source_.fail_no_more();
  EXPECT_EQ(pool_.checkpoint(), before);
  pool_.validate();
}

TEST_F(PoolInPlaceTest, AnErrorOfTheSourceDuringGrowthLeavesThePoolAsItWas) {
  MeddlingSource source;
  source.while_growing = [] { throw DeviceError(999, "the device is gone"); };
  Pool pool(source, {.growth = Growth::kInPlace});
  void* const block = pool.allocate(512);
  const PoolCheckpoint before = pool.checkpoint();

  EXPECT_THROW(pool.allocate(10 * kMiB), DeviceError);

  EXPECT_EQ(pool.checkpoint(), before);
  pool.validate();
  pool.free(block);
  EXPECT_EQ(pool.trim(), 0u);  // the checkpoint needs it
}

// expandable_segment_checkpoint_growth
// Acceptance: checkpoints expandable_segment_checkpoint_growth; pools mempool_expandable.
TEST_F(PoolInPlaceTest, ASmallStateIsRestoredAfterGrowth) {
  void* const small = pool_.allocate(2 * kMiB);
  const PoolCheckpoint checkpoint = pool_.checkpoint();
  pool_.free(small);
  void* const large = pool_.allocate(40 * kMiB);
  ASSERT_THAT(pool_.segments(), ElementsAre(Range{kBase, 40 * kMiB}));

  const PoolDelta delta = pool_.restore(checkpoint, std::vector<void*>{large});

  pool_.validate();
  EXPECT_THAT(pool_.live(), ElementsAre(Range{kBase, 2 * kMiB}));
  EXPECT_THAT(pool_.segments(), ElementsAre(Range{kBase, 40 * kMiB}));
  EXPECT_EQ(pool_.statistics().largest_free_block, 38 * kMiB);
  EXPECT_THAT(delta.became_live, ElementsAre(Range{kBase, 2 * kMiB}));
  EXPECT_THAT(delta.died, ElementsAre(Range{kBase, 40 * kMiB}));
  EXPECT_THAT(checkpoint.segments(), ElementsAre(Range{kBase, 2 * kMiB}));
}

TEST_F(PoolInPlaceTest, AFreeEndOfACheckpointCoalescesWithWhatHasGrown) {
  void* const first = pool_.allocate(512);
  const PoolCheckpoint checkpoint = pool_.checkpoint();
  pool_.allocate(9 * kMiB);

  pool_.restore(checkpoint, kAllMayDie);

  pool_.validate();
  EXPECT_EQ(pool_.statistics().largest_free_block, 10 * kMiB - 512);
  EXPECT_NE(pool_.checkpoint(), checkpoint);  // the segment's size differs
  pool_.free(first);
}

TEST_F(PoolInPlaceTest, TrimGivesTheFreeEndBack) {
  void* const kept = pool_.allocate(512);
  pool_.free(pool_.allocate(20 * kMiB));

  EXPECT_EQ(pool_.trim(), 20 * kMiB);

  EXPECT_THAT(pool_.segments(), ElementsAre(Range{kBase, 2 * kMiB}));
  EXPECT_EQ(pool_.statistics().largest_free_block, 2 * kMiB - 512);
  pool_.validate();
  pool_.free(kept);
  EXPECT_EQ(pool_.trim(), 2 * kMiB);
  EXPECT_THAT(pool_.segments(), IsEmpty());
}

TEST_F(PoolInPlaceTest, TrimGivesAWholeFreeEndBack) {
  pool_.allocate(2 * kMiB);
  pool_.free(pool_.allocate(20 * kMiB));

  EXPECT_EQ(pool_.give_back_unused(), 20 * kMiB);

  EXPECT_EQ(pool_.statistics().largest_free_block, 0u);
}

TEST_F(PoolInPlaceTest, TrimKeepsMemoryOfCheckpoints) {
  void* const small = pool_.allocate(3 * kMiB);
  std::optional<PoolCheckpoint> checkpoint = pool_.checkpoint();  // 4 MiB
  pool_.free(small);
  pool_.free(pool_.allocate(40 * kMiB));

  EXPECT_EQ(pool_.trim(), 36 * kMiB);
  EXPECT_EQ(pool_.give_back_unused(), 0u);
  pool_.restore(*checkpoint, {});
  EXPECT_EQ(pool_.checkpoint(), *checkpoint);

  checkpoint.reset();
  pool_.restore_live({});
  EXPECT_EQ(pool_.give_back_unused(), 4 * kMiB);
}

TEST_F(PoolInPlaceTest, TheLargestCheckpointDecidesWhatStays) {
  pool_.allocate(512);
  const PoolCheckpoint small = pool_.checkpoint();
  std::optional<PoolCheckpoint> large;
  void* const block = pool_.allocate(9 * kMiB);
  large = pool_.checkpoint();
  pool_.free(block);
  pool_.free(pool_.allocate(30 * kMiB));

  pool_.trim();
  EXPECT_THAT(pool_.segments(), ElementsAre(Range{kBase, 10 * kMiB}));
  EXPECT_NO_THROW(pool_.restore(*large, {}));
  large.reset();
  pool_.restore(small, kAllMayDie);
  pool_.trim();
  EXPECT_THAT(pool_.segments(), ElementsAre(Range{kBase, 2 * kMiB}));
  EXPECT_EQ(pool_.checkpoint(), small);
}

TEST_F(PoolInPlaceTest, AGrowingSegmentIsNotGivenBack) {
  MeddlingSource source;
  source.upstream.set_spacing(kSpacing);
  Pool pool(source, {.growth = Growth::kInPlace});
  void* const live = pool.allocate(512);
  source.while_growing = [&] {
    pool.validate();
    EXPECT_EQ(pool.give_back_unused(), 0u);
    EXPECT_EQ(pool.trim(), 0u);
  };

  void* const block = pool.allocate(4 * kMiB);

  EXPECT_THAT(pool.segments(), ElementsAre(Range{kBase, 6 * kMiB}));
  pool.free(block);
  pool.free(live);
  EXPECT_EQ(pool.trim(), 6 * kMiB);
}

// The source waits for a stream, whose host function drops a tensor of the same pool.
TEST_F(PoolInPlaceTest, BlocksAreFreedAndAllocatedWhileASegmentShrinks) {
  MeddlingSource source;
  source.upstream.set_spacing(kSpacing);
  source.upstream.set_granularity(2 * kMiB);
  Pool pool(source, {.growth = Growth::kInPlace});
  void* const first = pool.allocate(kMiB);
  void* const second = pool.allocate(kMiB);
  pool.free(pool.allocate(20 * kMiB));
  void* small = nullptr;
  source.while_shrinking = [&] {
    std::thread host_function([&] {
      pool.free(first);
      small = pool.allocate(512);
      pool.validate();
    });
    host_function.join();
  };

  EXPECT_EQ(pool.give_back_unused(), 20 * kMiB);

  source.while_shrinking = nullptr;
  pool.validate();
  EXPECT_EQ(small, first) << "not at the end that is being given back";
  EXPECT_THAT(pool.segments(), ElementsAre(Range{kBase, 2 * kMiB}));
  pool.free(small);
  pool.free(second);
}

}  // namespace
}  // namespace cgtree
