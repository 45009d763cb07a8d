// Many threads on one pool, and many pools on one cache.
#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "allocator/pool/pool.h"
#include "allocator/segments/segment_cache.h"
#include "base/error.h"
#include "tests/allocator/fake_segment_source.h"

namespace cgtree {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr int kThreads = 8;
constexpr int kSteps = 3000;

template <typename Body>
void on_all_threads(Body body) {
  const unsigned seed = std::random_device{}();
  testing::Test::RecordProperty("seed", std::to_string(seed));
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back(body, i, seed + i);
  for (std::thread& thread : threads)
    thread.join();
}

// Allocates and frees at random, and sometimes reads the pool's statistics.
void hammer(Pool& pool, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<void*> mine;
  for (int i = 0; i < kSteps; ++i) {
    if (mine.empty() || random() % 2 == 0) {
      try {
        mine.push_back(pool.allocate(1 + random() % (random() % 8 == 0 ? 3 * kMiB : 4096)));
      } catch (const OutOfMemory&) {
      }
    } else {
      std::swap(mine[random() % mine.size()], mine.back());
      pool.free(mine.back());
      mine.pop_back();
    }
    if (i % 100 == 0) pool.checkpoint();
    if (i % 150 == 0) pool.statistics();
    if (i % 500 == 0) pool.trim();
  }
  for (void* const block : mine)
    pool.free(block);
}

TEST(PoolThreadsTest, OnePoolServesManyThreads) {
  FakeSegmentSource source(64 * kMiB);
  Pool pool(source);

  on_all_threads([&](int, unsigned seed) { hammer(pool, seed); });

  pool.validate();
  EXPECT_TRUE(pool.live().empty());
  pool.trim();
  EXPECT_TRUE(source.held().empty());
}

TEST(PoolThreadsTest, ManyPoolsShareOneCacheButNoMemory) {
  FakeSegmentSource source;
  Budget budget("device", 64 * kMiB);
  SegmentCache cache(source, &budget);
  std::deque<Pool> pools;
  for (int i = 0; i < kThreads; ++i)
    pools.emplace_back(cache);

  on_all_threads([&](int thread, unsigned seed) { hammer(pools[thread], seed); });

  std::size_t reserved = 0;
  for (Pool& pool : pools) {
    pool.validate();
    reserved += pool.statistics().reserved_bytes.current;
  }
  EXPECT_EQ(cache.statistics().bytes_in_use, reserved);
}

// Two pools grow at once, with a source that asks each to release unused memory.
TEST(PoolThreadsTest, PoolsThatGrowAtOnceGiveWayToEachOther) {
  for (const Growth growth : {Growth::kFast, Growth::kInPlace}) {
    FakeSegmentSource source(48 * kMiB);
    source.ask_users();
    source.set_spacing(growth == Growth::kInPlace ? 64 * kMiB : 0);
    Pool first(source, {.name = "first", .growth = growth});
    Pool second(source, {.name = "second", .growth = growth});

    on_all_threads([&](int thread, unsigned seed) { hammer(thread % 2 ? first : second, seed); });

    first.validate();
    second.validate();
    first.trim();
    second.trim();
    EXPECT_TRUE(source.held().empty());
    EXPECT_EQ(source.given(),
              first.statistics().num_device_alloc + second.statistics().num_device_alloc);
    EXPECT_GT(first.statistics().num_device_free, 0u);
  }
}

TEST(PoolThreadsTest, APoolMayBeClosedWhileOthersUseIt) {
  FakeSegmentSource source(64 * kMiB);
  Pool pool(source);
  on_all_threads([&](int thread, unsigned) {
    try {
      for (int i = 0;; i = (i + 1) % kSteps) {
        if (thread == 0 && i == kSteps / 2) pool.close();
        pool.free(pool.allocate(static_cast<std::size_t>(i) * 1000 + 1));
      }
    } catch (const InvalidArgument&) {
    }
  });

  pool.validate();
  EXPECT_TRUE(source.held().empty());
}

}  // namespace
}  // namespace cgtree
