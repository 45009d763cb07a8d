// The cache of segments: reuse and budget.
#include "allocator/segments/segment_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "allocator/pool/pool.h"
#include "base/error.h"
#include "base/log.h"
#include "tests/allocator/fake_segment_source.h"

namespace cgtree {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr StreamId kStream = 7;

class SegmentCacheTest : public testing::Test {
 protected:
  // Puts one segment of each size into the cache.
  static void fill(SegmentCache& cache, const std::vector<std::size_t>& sizes) {
    std::vector<void*> segments;
    for (const std::size_t bytes : sizes)
      segments.push_back(cache.allocate(bytes, kStream));
    for (std::size_t i = 0; i < sizes.size(); ++i)
      cache.free(segments[i], sizes[i], kStream);
  }

  FakeSegmentSource upstream_{100 * kMiB};
};

TEST_F(SegmentCacheTest, AFreedSegmentServesAnotherPool) {
  SegmentCache cache(upstream_);
  {
    Pool pool(cache);
    pool.free(pool.allocate(512));
  }
  Pool other(cache);

  other.free(other.allocate(1024));

  EXPECT_THAT(upstream_.asked(), SizeIs(1));
}

TEST_F(SegmentCacheTest, OnlyTheExactSizeIsReused) {
  SegmentCache cache(upstream_);
  fill(cache, {20 * kMiB});

  void* const segment = cache.allocate(2 * kMiB, kStream);

  EXPECT_THAT(upstream_.asked(), SizeIs(2));
  cache.free(segment, 2 * kMiB, kStream);
}

TEST_F(SegmentCacheTest, CountsWhatIsInUseAndWhatIsCached) {
  SegmentCache cache(upstream_);
  fill(cache, {4 * kMiB});
  void* const segment = cache.allocate(2 * kMiB, kStream);

  EXPECT_EQ(cache.statistics(), (SegmentCacheStatistics{2 * kMiB, 4 * kMiB}));
  cache.free(segment, 2 * kMiB, kStream);
  EXPECT_EQ(cache.statistics(), (SegmentCacheStatistics{0, 6 * kMiB}));
}

TEST_F(SegmentCacheTest, TrimGivesBackWhatIsCachedAndKeepsWhatIsInUse) {
  SegmentCache cache(upstream_);
  fill(cache, {4 * kMiB, 6 * kMiB});
  void* const segment = cache.allocate(2 * kMiB, kStream);

  EXPECT_EQ(cache.trim(), 10 * kMiB);

  EXPECT_EQ(cache.statistics(), (SegmentCacheStatistics{2 * kMiB, 0}));
  EXPECT_THAT(upstream_.held(), SizeIs(1));
  cache.free(segment, 2 * kMiB, kStream);
}

TEST_F(SegmentCacheTest, TheBudgetCountsWhatIsInUse) {
  Budget budget("device", 10 * kMiB);
  SegmentCache cache(upstream_, &budget);
  void* const segment = cache.allocate(6 * kMiB, kStream);

  try {
    cache.allocate(4 * kMiB + 1, kStream);
    ADD_FAILURE() << "beyond the budget";
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(
        std::string(error.message()),
        HasSubstr("no segment of 4194305 bytes: the budget 'device' allows 10485760 bytes, of "
                  "which 6291456 are in use; in use 6291456, cached 0"));
  }
  EXPECT_THAT(upstream_.asked(), SizeIs(1));
  cache.free(segment, 6 * kMiB, kStream);
}

TEST_F(SegmentCacheTest, CachedSegmentsMakeRoomForTheBudget) {
  Budget budget("device", 10 * kMiB);
  SegmentCache cache(upstream_, &budget);
  fill(cache, {2 * kMiB, 4 * kMiB, 4 * kMiB});

  void* const segment = cache.allocate(6 * kMiB, kStream);

  EXPECT_EQ(cache.statistics(), (SegmentCacheStatistics{6 * kMiB, 4 * kMiB}));
  cache.free(segment, 6 * kMiB, kStream);
}

TEST_F(SegmentCacheTest, CachedSegmentsAreGivenBackWhenUpstreamHasNoRoom) {
  SegmentCache cache(upstream_);
  fill(cache, {60 * kMiB});

  void* const segment = cache.allocate(80 * kMiB, kStream);

  EXPECT_THAT(upstream_.asked(), ElementsAre(60 * kMiB, 80 * kMiB, 80 * kMiB));
  cache.free(segment, 80 * kMiB, kStream);
}

TEST_F(SegmentCacheTest, ThrowsWhenGivingBackWasNotEnough) {
  SegmentCache cache(upstream_);
  fill(cache, {60 * kMiB});

  EXPECT_THROW(cache.allocate(101 * kMiB, kStream), OutOfMemory);

  EXPECT_EQ(cache.statistics(), SegmentCacheStatistics{});
  EXPECT_THAT(upstream_.held(), IsEmpty());
}

TEST_F(SegmentCacheTest, DestructionLogsSegmentsInUse) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, const std::string& line) { lines.push_back(line); });
  void* segment = nullptr;
  {
    SegmentCache cache(upstream_);
    segment = cache.allocate(2 * kMiB, kStream);
  }
  set_log_sink(nullptr);

  EXPECT_THAT(lines, ElementsAre("segment_cache_destroyed_with_segments_in_use segments=1 "
                                 "bytes=2097152"));
  upstream_.free(segment, 2 * kMiB, kStream);
}

using SegmentCacheDeathTest = SegmentCacheTest;

TEST_F(SegmentCacheDeathTest, FreeOfWhatIsNotInUseDies) {
  SegmentCache cache(upstream_);
  void* const segment = cache.allocate(2 * kMiB, kStream);
  EXPECT_DEATH(cache.free(segment, 4 * kMiB, kStream), "check failed");
  cache.free(segment, 2 * kMiB, kStream);
  EXPECT_DEATH(cache.free(segment, 2 * kMiB, kStream), "check failed");
  EXPECT_DEATH(cache.free(nullptr, 2 * kMiB, kStream), "check failed");
}

}  // namespace
}  // namespace cgtree
