// Eight threads on one allocator: streams and trims at once.
#include <gtest/gtest.h>

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

  // Allocates on a few streams, shares blocks with others, and frees some.
  void work(std::mt19937& random) {
    std::vector<void*> mine;
    for (int i = 0; i < kSteps; ++i) {
      const StreamId stream = 1 + random() % 4;
      if (mine.empty() || random() % 2 == 0) {
        try {
          const std::size_t bytes = 1 + random() % (random() % 8 ? 4096 : 3 * kMiB);
          mine.push_back(allocator_.allocate(bytes, stream));
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
  on_all_threads([&](int, std::mt19937 random) { work(random); });

  EXPECT_EQ(allocator_.statistics().total.allocation.current,
            allocator_.statistics().pending_blocks);
  expect_all_given_back();
}

}  // namespace
}  // namespace cgtree
