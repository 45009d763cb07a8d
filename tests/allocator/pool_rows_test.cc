// Behaviours of PyTorch's MemPool tests that do not need a stream, with pools.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <vector>

#include "allocator/pool/pool.h"
#include "allocator/segments/segment_cache.h"
#include "base/error.h"
#include "tests/allocator/fake_segment_source.h"

namespace cgtree {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

constexpr std::size_t kMiB = std::size_t{1} << 20;

// mempool_id: PyTorch identifies a pool by a number; here the object is the identity, and its
// checkpoints know it.
// Acceptance: pools mempool_id.
TEST(PoolRowsTest, APoolIsItselfAndNoOther) {
  FakeSegmentSource source;
  Pool first(source), second(source);
  void* const block = first.allocate(512);

  EXPECT_TRUE(first.owns(block));
  EXPECT_FALSE(second.owns(block));
  EXPECT_NE(first.checkpoint(), second.checkpoint());
  first.free(block);
}

// pool_id_in_snapshot: a pool lists only its segments, although the source is shared.
// Acceptance: pools pool_id_in_snapshot.
TEST(PoolRowsTest, APoolListsOnlyItsOwnSegments) {
  FakeSegmentSource source;
  Pool first(source), second(source);
  void* const block = first.allocate(512);
  void* const other = second.allocate(4 * kMiB);

  EXPECT_THAT(first.segments(), SizeIs(1));
  EXPECT_THAT(second.segments(), SizeIs(1));
  EXPECT_FALSE(first.segments()[0].overlaps(second.segments()[0]));
  first.free(block);
  second.free(other);
}

// mempool_empty_cache, mempool_emptycache_multithread: a trim of one pool does not affect others.
// Acceptance: pools mempool_empty_cache, mempool_emptycache_multithread.
TEST(PoolRowsTest, TrimmingOnePoolLeavesAnotherAlone) {
  FakeSegmentSource source;
  Pool first(source), second(source);
  first.free(first.allocate(512));
  second.free(second.allocate(512));

  std::thread([&] { first.trim(); }).join();

  EXPECT_THAT(first.segments(), IsEmpty());
  EXPECT_THAT(second.segments(), SizeIs(1));
}

// mempool_empty_cache_inactive: the end of a pool frees all of its segments.
// Acceptance: pools mempool_empty_cache.
TEST(PoolRowsTest, APoolThatEndsGivesItsSegmentsBack) {
  FakeSegmentSource source;
  std::optional<Pool> pool(std::in_place, source);
  pool->free(pool->allocate(512));
  ASSERT_THAT(source.held(), SizeIs(1));

  pool.reset();

  EXPECT_THAT(source.held(), IsEmpty());
}

// mempool_with_allocator: 1, 1 and 2 segments when the first is filled, shared and outgrown; all
// from the given source.
// Acceptance: pools mempool_with_allocator.
TEST(PoolRowsTest, APoolTakesSegmentsFromItsOwnSource) {
  FakeSegmentSource custom, usual;
  Pool pool(custom), other(usual);

  void* const first = pool.allocate(kMiB);
  EXPECT_THAT(pool.segments(), SizeIs(1));
  void* const second = pool.allocate(kMiB);
  EXPECT_THAT(pool.segments(), SizeIs(1));
  void* const third = pool.allocate(kMiB);
  EXPECT_THAT(pool.segments(), SizeIs(2));

  EXPECT_EQ(pool.segments(), custom.held());
  EXPECT_THAT(usual.held(), IsEmpty());
  for (void* const block : {first, second, third})
    pool.free(block);
}

// mempool_limited_memory_with_allocator: a full pool refuses while another pool goes on, and
// allocates again once there is room.
TEST(PoolRowsTest, AFullPoolRefusesAndOthersGoOn) {
  FakeSegmentSource limited(100 * kMiB), usual;
  Pool pool(limited), other(usual);
  void* const most = pool.allocate(80 * kMiB);

  EXPECT_THROW(pool.allocate(40 * kMiB), OutOfMemory);
  void* const elsewhere = other.allocate(40 * kMiB);

  pool.free(most);
  void* const again = pool.allocate(40 * kMiB);
  EXPECT_EQ(again, most);
  pool.free(again);
  other.free(elsewhere);
}

// deleted_mempool_not_used_on_oom: a pool that ended is not searched for room; its segments are in
// the cache, and are freed for a larger one.
TEST(PoolRowsTest, TheSegmentsOfAPoolThatEndedServeALargerRequest) {
  FakeSegmentSource device(100 * kMiB);
  SegmentCache cache(device);
  {
    Pool pool(cache);
    pool.free(pool.allocate(60 * kMiB));
  }
  Pool other(cache);

  void* const block = other.allocate(80 * kMiB);

  EXPECT_EQ(device.held(), other.segments());
  other.free(block);
}

// mempool_multithread: threads with a pool each share no memory.
// Acceptance: pools mempool_multithread.
TEST(PoolRowsTest, ThreadsWithPoolsOfTheirOwnShareNothing) {
  FakeSegmentSource source;
  std::vector<Range> segments[4];
  std::optional<Pool> pools[4];
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    pools[i].emplace(source);
    threads.emplace_back([&, i] {
      for (int k = 0; k < 200; ++k)
        pools[i]->free(pools[i]->allocate(512 + static_cast<std::size_t>(k) * 20'000));
      segments[i] = pools[i]->segments();
    });
  }
  for (std::thread& thread : threads)
    thread.join();

  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < i; ++k) {
      for (const Range& mine : segments[i])
        for (const Range& other : segments[k])
          EXPECT_FALSE(mine.overlaps(other));
    }
  }
}

}  // namespace
}  // namespace cgtree
