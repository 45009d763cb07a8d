// Eight threads on one allocator: streams, pools, captures and trims at once.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/allocator/allocator_fixture.h"

namespace cgtree {
namespace {

constexpr int kThreads = 8;
constexpr int kSteps = 1500;

class AllocatorThreadsTest : public AllocatorFixture {
 protected:
  using Block = std::pair<void*, StreamId>;

  template <typename Body>
  void on_all_threads(Body body) {
    const unsigned seed = std::random_device{}();
    RecordProperty("seed", std::to_string(seed));
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] { body(i, std::mt19937(seed + i)); });
    for (std::thread& thread : threads)
      thread.join();
  }

  void expect_all_given_back() {
    for (StreamId stream = 1; stream <= kThreads; ++stream)
      device_.finish(stream);
    allocator_.trim();
    EXPECT_TRUE(device_.held().empty());
    EXPECT_EQ(budget_.current(), 0u);
    EXPECT_LE(budget_.peak(), budget_.max_bytes());
  }

  // Allocates on a few streams, shares, frees here and there.
  void work(std::mt19937& random, int steps) {
    std::vector<void*> mine;
    for (int i = 0; i < steps; ++i) {
      const StreamId stream = 1 + random() % 4;
      if (mine.empty() || random() % 2 == 0) {
        try {
          mine.push_back(
              allocator_.allocate(1 + random() % (random() % 8 ? 4096 : 3 * kMiB), stream));
        } catch (const OutOfMemory&) {
        }
        continue;
      }
      std::swap(mine[random() % mine.size()], mine.back());
      if (random() % 4 == 0) allocator_.use(mine.back(), stream);
      if (random() % 8 == 0) device_.submit(stream);
      random() % 4 == 0 ? allocator_.free(mine.back(), stream) : allocator_.free(mine.back());
      mine.pop_back();
      if (random() % 16 == 0) device_.finish(stream);
      if (i % 300 == 0) allocator_.trim();
      if (i % 200 == 0) allocator_.statistics();
    }
    for (void* const block : mine)
      allocator_.free(block);
  }
};

TEST_F(AllocatorThreadsTest, StreamsArePassedAroundBetweenThreads) {
  on_all_threads([&](int, std::mt19937 random) { work(random, kSteps); });

  EXPECT_EQ(allocator_.statistics().total.allocation.current,
            allocator_.statistics().pending_blocks);
  expect_all_given_back();
}

TEST_F(AllocatorThreadsTest, PoolsComeAndGoBesideEagerWork) {
  on_all_threads([&](int thread, std::mt19937 random) {
    if (thread < 4) return work(random, kSteps);
    for (int i = 0; i < kSteps / 50; ++i) {
      PoolHandle pool = allocator_.make_pool();
      std::optional<ThreadRoute> route(std::in_place, allocator_, pool);
      void* const outlives = [&]() -> void* {
        try {
          return allocator_.allocate(512, 1);
        } catch (const OutOfMemory&) {
          return nullptr;
        }
      }();
      work(random, 20);
      route.reset();
      pool = PoolHandle();
      if (outlives != nullptr) allocator_.free(outlives);
    }
  });

  for (StreamId stream = 1; stream <= kThreads; ++stream)
    device_.finish(stream);
  allocator_.trim();
  expect_all_given_back();
}

TEST_F(AllocatorThreadsTest, CapturesOpenAndCloseBesideEagerWork) {
  on_all_threads([&](int thread, std::mt19937 random) {
    if (thread < 6) return work(random, kSteps);
    const StreamId origin = 100 + 10 * thread;
    const PoolHandle pool = allocator_.make_pool();
    for (int i = 0; i < 40; ++i) {
      FakeDag dag(origin);
      DagOrder order(dag);
      CaptureScope capture =
          cgtree::begin_capture(allocator_, pool, std::array{origin, origin + 1}, order);
      device_.begin_capture();
      dag.wait(origin + 1, origin);
      for (int k = 0; k < 20; ++k) {
        const StreamId stream = origin + random() % 2;
        try {
          void* const block = allocator_.allocate(1 + random() % 65536, stream);
          dag.run(stream);
          if (random() % 2 == 0) allocator_.use(block, origin + random() % 2);
          allocator_.free(block);
        } catch (const OutOfMemory&) {
        }
        if (random() % 5 == 0) dag.wait(origin, origin + 1);
      }
      device_.end_capture();
      capture.end();
      EXPECT_EQ(pool.statistics().allocation.current, 0u);
    }
  });

  for (StreamId stream = 1; stream <= kThreads; ++stream)
    device_.finish(stream);
  allocator_.trim();
  expect_all_given_back();
}

}  // namespace
}  // namespace cgtree
