// The segments that a pool requests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>

#include "allocator/pool/pool.h"
#include "base/error.h"
#include "tests/allocator/fake_segment_source.h"

namespace cgtree {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(PoolGrowthTest, FreeSegmentsStay) {
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

  EXPECT_NE(pool.allocate(1024), large);  // gets a segment of its size
  EXPECT_EQ(pool.allocate(512), large);

  pool.validate();
  pool.restore_live({});
}

TEST(PoolSmallApartTest, NeedsSegmentsThatDoNotGrow) {
  FakeSegmentSource source;
  EXPECT_THROW(Pool(source, {.growth = Growth::kInPlace, .small_apart = true}), InvalidArgument);
}

}  // namespace
}  // namespace cgtree
