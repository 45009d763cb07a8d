// restore_live() gives a pool the layout in which exactly the given ranges are live.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "allocator/pool/block.h"
#include "allocator/pool/pool.h"
#include "base/error.h"
#include "tests/allocator/fake_segment_source.h"

namespace cgtree {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uintptr_t kBase = std::uintptr_t{1} << 40;

// The pool has one small segment, with blocks of 512 bytes at 0, 512 and 1024.
class PoolRestoreLiveTest : public testing::Test {
 protected:
  PoolRestoreLiveTest() {
    for (int i = 0; i < 3; ++i)
      pool_.allocate(512);
  }
  ~PoolRestoreLiveTest() override { pool_.restore_live({}); }

  std::string refusal_of(std::vector<Range> live) {
    const PoolCheckpoint before = pool_.checkpoint();
    try {
      pool_.restore_live(live);
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(pool_.checkpoint(), before);
      pool_.validate();
      return std::string(error.message());
    }
    return "nothing was thrown";
  }

  FakeSegmentSource source_;
  Pool pool_{source_};
};

TEST_F(PoolRestoreLiveTest, KeepsFreesAndRevives) {
  pool_.free(reinterpret_cast<void*>(kBase + 1024));

  const PoolDelta delta =
      pool_.restore_live(std::vector<Range>{{kBase + 4096, 1000}, {kBase, 512}});

  pool_.validate();
  EXPECT_THAT(pool_.live(), ElementsAre(Range{kBase, 512}, Range{kBase + 4096, 1024}));
  EXPECT_THAT(delta.became_live, ElementsAre(Range{kBase + 4096, 1024}));
  EXPECT_THAT(delta.died, ElementsAre(Range{kBase + 512, 512}));
}

TEST_F(PoolRestoreLiveTest, ABlockOfAnotherSizeAtTheSamePlaceDiesAndIsBorn) {
  const PoolDelta delta = pool_.restore_live(std::vector<Range>{{kBase, 1024}});

  EXPECT_THAT(delta.became_live, ElementsAre(Range{kBase, 1024}));
  EXPECT_THAT(delta.died,
              ElementsAre(Range{kBase, 512}, Range{kBase + 512, 512}, Range{kBase + 1024, 512}));
}

TEST_F(PoolRestoreLiveTest, ThePresentLayoutIsNoChange) {
  const PoolCheckpoint before = pool_.checkpoint();

  const PoolDelta delta = pool_.restore_live(pool_.live());

  EXPECT_EQ(pool_.checkpoint(), before);
  EXPECT_THAT(delta.became_live, IsEmpty());
  EXPECT_THAT(delta.died, IsEmpty());
}

TEST_F(PoolRestoreLiveTest, MayFillASegmentToItsEnd) {
  pool_.restore_live(std::vector<Range>{{kBase, kSmallSegment}});

  pool_.validate();
  EXPECT_EQ(pool_.statistics().largest_free_block, 0u);
}

TEST_F(PoolRestoreLiveTest, KeepsTheRequestedSizesOfBlocksThatStay) {
  pool_.restore_live({});
  pool_.allocate(100);

  pool_.restore_live(std::vector<Range>{{kBase, 512}, {kBase + 512, 300}});

  EXPECT_EQ(pool_.statistics().requested_bytes.current, 400u);
}

TEST_F(PoolRestoreLiveTest, RefusesOverlappingRanges) {
  EXPECT_THAT(refusal_of({{kBase + 512, 512}, {kBase, 513}}), HasSubstr("overlap"));
  EXPECT_THAT(refusal_of({{kBase, 512}, {kBase, 512}}), HasSubstr("overlap"));
}

TEST_F(PoolRestoreLiveTest, RefusesRangesOutsideTheSegments) {
  EXPECT_THAT(refusal_of({{kBase - 512, 512}}), HasSubstr("in no segment"));
  EXPECT_THAT(refusal_of({{kBase + kSmallSegment, 512}}), HasSubstr("in no segment"));
}

TEST_F(PoolRestoreLiveTest, RefusesRangesThatCrossTheEndOfASegment) {
  pool_.allocate(kSmallSegment);  // touches only the first segment
  ASSERT_THAT(pool_.segments(), testing::SizeIs(2));

  EXPECT_THAT(refusal_of({{kBase + kSmallSegment - 512, 513}}), HasSubstr("crosses the end"));
  EXPECT_THAT(refusal_of({{kBase, SIZE_MAX - 511}}), HasSubstr("crosses the end"));
}

TEST_F(PoolRestoreLiveTest, RefusesEmptyAndUnalignedRanges) {
  EXPECT_THAT(refusal_of({{kBase, 0}}), HasSubstr("is empty"));
  EXPECT_THAT(refusal_of({{kBase + 256, 256}}), HasSubstr("multiple of 512"));
}

}  // namespace
}  // namespace cgtree
