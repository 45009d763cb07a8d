// Many threads on a pool with thread caches, and on many of these pools.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "allocator/pool/block.h"
#include "allocator/pool/pool.h"
#include "base/check.h"
#include "base/error.h"
#include "caching/threads/thread_caches.h"
#include "tests/allocator/fake_segment_source.h"

namespace cgtree {
namespace {

using testing::IsEmpty;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr int kThreads = 6;
constexpr int kSteps = 4000;

class ThreadCachesRandomTest : public testing::TestWithParam<ThreadCaching> {
 protected:
  template <typename Body>
  void on_all_threads(Body body) {
    const unsigned seed = std::random_device{}();
    RecordProperty("seed", std::to_string(seed));
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([=] { body(i, std::mt19937(seed + i)); });
  }
  PoolOptions options() const {
    return {.name = "shared", .thread_caching = GetParam(), .make_caches = make_thread_caches};
  }
};

// The live blocks of all threads. No two may overlap.
class LiveBlocks {
 public:
  void add(void* address, std::size_t requested) {
    const Range range{reinterpret_cast<std::uintptr_t>(address), block_bytes(requested)};
    const std::lock_guard lock(mutex_);
    const auto [entry, is_new] = blocks_.insert({range.address, {range, requested}});
    CGTREE_CHECK(is_new);
    if (entry != blocks_.begin()) CGTREE_CHECK(!std::prev(entry)->second.range.overlaps(range));
    const auto next = std::next(entry);
    if (next != blocks_.end()) CGTREE_CHECK(!next->second.range.overlaps(range));
  }
  // Removes a random block, and returns it, or null without any.
  void* take(std::mt19937& random) {
    const std::lock_guard lock(mutex_);
    if (blocks_.empty()) return nullptr;
    const std::uintptr_t first = blocks_.begin()->first;
    const std::uintptr_t span = blocks_.rbegin()->first - first + 1;
    const auto entry = blocks_.lower_bound(first + random() % span);
    void* const address = reinterpret_cast<void*>(entry->first);
    blocks_.erase(entry);
    return address;
  }
  Amount sum() const {
    Amount sum;
    for (const auto& [address, block] : blocks_)
      sum += {1, block.range.bytes, block.requested};
    return sum;
  }

 private:
  std::mutex mutex_;
  std::map<std::uintptr_t, Block> blocks_;
};

std::size_t draw_size(std::mt19937& random) {
  switch (random() % 8) {
    case 0:
      return 1 + random() % (3 * kMiB);
    case 1:
      return 1 + random() % 65536;
    default:
      return 1 + random() % 2048;
  }
}

// Blocks move between threads; misuse is refused; the final counts are right.
TEST_P(ThreadCachesRandomTest, NoBlockHasTwoOwners) {
  FakeSegmentSource source(48 * kMiB);
  Pool pool(source, options());
  LiveBlocks live;
  std::atomic<std::size_t> allocated{0}, requested{0};

  on_all_threads([&](int, std::mt19937 random) {
    for (int i = 0; i < kSteps; ++i) {
      if (random() % 2 == 0) {
        const std::size_t bytes = draw_size(random);
        try {
          live.add(pool.allocate(bytes), bytes);
        } catch (const OutOfMemory&) {
          continue;
        }
        ++allocated;
        requested += bytes;
      } else if (void* const block = live.take(random)) {
        if (random() % 64 == 0) pool.expect_live(block);
        pool.free(block);
      }
      if (i % 300 == 0) pool.trim();
      if (i % 400 == 0) pool.validate();
      if (i % 150 == 0) {
        const PoolStatistics now = pool.statistics();
        EXPECT_LE(now.allocation.current, now.allocation.peak);
        EXPECT_LE(now.allocated_bytes.current, now.reserved_bytes.current);
        EXPECT_LE(now.requested_bytes.current, now.allocated_bytes.current);
      }
      if (i % 700 == 0) {
        EXPECT_THROW(pool.free(&i), InvalidArgument);
        EXPECT_THROW(pool.free(nullptr), InvalidArgument);
      }
    }
  });

  pool.validate();
  const PoolStatistics now = pool.statistics();
  EXPECT_EQ(now.allocation.current, live.sum().count);
  EXPECT_EQ(now.allocated_bytes.current, live.sum().bytes);
  EXPECT_EQ(now.requested_bytes.current, live.sum().requested);
  EXPECT_EQ(now.allocation.allocated, allocated);
  EXPECT_EQ(now.requested_bytes.allocated, requested);
  EXPECT_EQ(pool.live().size(), live.sum().count);
  std::mt19937 random;
  while (void* const block = live.take(random))
    pool.free(block);
  EXPECT_THAT(pool.live(), IsEmpty());
  pool.trim();
  EXPECT_THAT(source.held(), IsEmpty());
}

TEST_P(ThreadCachesRandomTest, TheSecondFreeOfABlockIsRefused) {
  FakeSegmentSource source;
  Pool pool(source, options());
  std::vector<void*> blocks(kSteps);
  for (void*& block : blocks)
    block = pool.allocate(512);
  std::atomic<int> freed{0}, refused{0};

  on_all_threads([&](int, std::mt19937) {
    for (void* const block : blocks) {
      try {
        pool.free(block);
        ++freed;
      } catch (const InvalidArgument&) {
        ++refused;
      }
    }
  });

  EXPECT_EQ(freed, kSteps);
  EXPECT_EQ(refused, (kThreads - 1) * kSteps);
  pool.validate();
  EXPECT_EQ(pool.statistics().allocation.current, 0u);
}

TEST_P(ThreadCachesRandomTest, PoolsAndThreadsComeAndGo) {
  FakeSegmentSource source;
  constexpr std::size_t kPools = 12;  // more than the table of a thread has entries
  std::mutex mutex;
  std::vector<std::shared_ptr<Pool>> pools(kPools);

  on_all_threads([&](int, std::mt19937 random) {
    for (int i = 0; i < kSteps / 100; ++i) {
      std::jthread([&, seed = random()] {
        std::mt19937 inner(seed);
        for (int k = 0; k < 100; ++k) {
          std::shared_ptr<Pool> pool;
          {
            const std::lock_guard lock(mutex);
            std::shared_ptr<Pool>& slot = pools[inner() % kPools];
            if (slot == nullptr || inner() % 16 == 0) {
              slot = std::make_shared<Pool>(source, options());
            }
            pool = slot;
          }
          std::vector<void*> blocks;
          for (int n = inner() % 8; n > 0; --n)
            blocks.push_back(pool->allocate(1 + inner() % 2048));
          for (void* const block : blocks)
            pool->free(block);
        }
      });
    }
  });

  for (const std::shared_ptr<Pool>& pool : pools) {
    if (pool == nullptr) continue;
    pool->validate();
    EXPECT_EQ(pool->statistics().allocation.current, 0u);
  }
  pools.clear();
  EXPECT_THAT(source.held(), IsEmpty());
}

TEST_P(ThreadCachesRandomTest, APoolMayBeClosedWhileOthersUseIt) {
  FakeSegmentSource source(64 * kMiB);
  Pool pool(source, options());
  on_all_threads([&](int thread, std::mt19937) {
    try {
      for (int i = 0;; i = (i + 1) % kSteps) {
        if (thread == 0 && i == kSteps / 2) pool.close();
        pool.free(pool.allocate(static_cast<std::size_t>(i) * 100 + 1));
      }
    } catch (const InvalidArgument&) {
    }
  });

  pool.validate();
  EXPECT_THAT(source.held(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Caching, ThreadCachesRandomTest,
                         testing::Values(ThreadCaching::kNever, ThreadCaching::kWhenContended,
                                         ThreadCaching::kAlways));

}  // namespace
}  // namespace cgtree
