// The order in which a cache makes room, and its state after a refusal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "allocator/pool/pool.h"
#include "allocator/segments/segment_cache.h"
#include "base/error.h"
#include "tests/allocator/fake_device.h"
#include "tests/allocator/fake_user.h"

namespace cgtree {
namespace {

using testing::HasSubstr;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr StreamId kStream = 7;

class SegmentRecoveryTest : public testing::Test {
 protected:
  // Returns the exception of allocate().
  OutOfMemory refusal(std::size_t bytes) {
    try {
      cache_.allocate(bytes, kStream);
    } catch (const OutOfMemory& error) {
      return error;
    }
    throw std::logic_error("not refused");
  }

  FakeDevice device_;
  Budget budget_{"device", 100 * kMiB};
  SegmentCache cache_{device_, &budget_, &device_};
};

TEST_F(SegmentRecoveryTest, CachedSegmentsGoBeforeAnyPoolIsAsked) {
  cache_.free(cache_.allocate(60 * kMiB, kStream), 60 * kMiB, kStream);
  FakeUser user(cache_, kStream);
  user.before_giving = [] { ADD_FAILURE() << "asked although the cache had enough"; };

  void* const segment = cache_.allocate(80 * kMiB, kStream);

  user.before_giving = nullptr;
  cache_.free(segment, 80 * kMiB, kStream);
}

TEST_F(SegmentRecoveryTest, UnusedSegmentsOfOtherPoolsMakeRoom) {
  FakeUser user(cache_, kStream);
  user.hold_unused(60 * kMiB);

  void* const segment = cache_.allocate(80 * kMiB, kStream);

  EXPECT_EQ(budget_.current(), 80 * kMiB);
  cache_.free(segment, 80 * kMiB, kStream);
}

TEST_F(SegmentRecoveryTest, ASegmentOfTheSizeChangesPoolsWithoutTheDevice) {
  FakeUser user(cache_, kStream);
  user.hold_unused(60 * kMiB);

  void* const segment = cache_.allocate(60 * kMiB, kStream);

  EXPECT_EQ(device_.asked().size(), 1u);
  cache_.free(segment, 60 * kMiB, kStream);
}

TEST_F(SegmentRecoveryTest, ObserversAreAskedWhenPoolsHadTooLittle) {
  FakeUser user(cache_, kStream);
  void* held = cache_.allocate(60 * kMiB, kStream);
  std::size_t needed = 0;
  const auto id = cache_.add_reclaim([&](std::size_t bytes) {
    needed = bytes;
    user.hold_unused(kMiB);  // the freed block becomes unused memory of a pool
    cache_.free(held, 60 * kMiB, kStream);
    held = nullptr;
    return 60 * kMiB;
  });

  void* const segment = cache_.allocate(80 * kMiB, kStream);

  EXPECT_EQ(needed, 80 * kMiB);
  cache_.remove_reclaim(id);
  cache_.free(segment, 80 * kMiB, kStream);
}

TEST_F(SegmentRecoveryTest, ARemovedObserverIsNotAsked) {
  const auto id = cache_.add_reclaim([](std::size_t) -> std::size_t {
    ADD_FAILURE() << "it was removed";
    return 0;
  });
  cache_.remove_reclaim(id);

  EXPECT_THROW(cache_.allocate(101 * kMiB, kStream), OutOfMemory);
}

TEST_F(SegmentRecoveryTest, AtLastItWaitsForTheStreams) {
  FakeUser user(cache_, kStream);
  device_.submit(kStream);
  const StreamPoint point = cache_.progress().now(kStream);
  void* const held = cache_.allocate(60 * kMiB, kStream);
  bool given = false;
  user.before_giving = [&] {
    if (given || !cache_.progress().is_complete(point)) return;
    given = true;
    cache_.free(held, 60 * kMiB, kStream);
    user.hold_unused(60 * kMiB);
  };

  void* const segment = cache_.allocate(80 * kMiB, kStream);

  EXPECT_EQ(device_.events_waited_for(), 1u);
  user.before_giving = nullptr;
  cache_.free(segment, 80 * kMiB, kStream);
}

TEST_F(SegmentRecoveryTest, ARefusalReportsEveryPoolAndEveryStage) {
  FakeUser one(cache_, kStream, "weights");
  FakeUser two(cache_, kStream, "scratch");
  two.hold_unused(30 * kMiB);
  void* const held = cache_.allocate(40 * kMiB, kStream);
  cache_.free(cache_.allocate(10 * kMiB, kStream), 10 * kMiB, kStream);

  const OutOfMemory error = refusal(70 * kMiB);

  ASSERT_NE(error.report(), nullptr);
  EXPECT_EQ(error.report()->requested, 70 * kMiB);
  ASSERT_EQ(error.report()->pools.size(), 2u);
  EXPECT_EQ(error.report()->pools[0].name, "weights");
  EXPECT_FALSE(error.report()->capture_open);
  EXPECT_THAT(
      std::string(error.message()),
      HasSubstr("no segment of 73400320 bytes: the budget 'device' allows 104857600 bytes, "
                "of which 41943040 are in use; in use 41943040, cached 0, deferred frees 0; "
                "given back: deferred frees 0, cached 10485760, by 2 pools 31457280, by "
                "reclaim callbacks 0"));
  cache_.free(held, 40 * kMiB, kStream);
}

TEST_F(SegmentRecoveryTest, TheBudgetThatRefusesIsNamed) {
  Budget device("gpu", 50 * kMiB);
  SegmentCache cache(device_, &device);

  EXPECT_THAT([&] { cache.allocate(60 * kMiB, kStream); },
              testing::ThrowsMessage<OutOfMemory>(HasSubstr("the budget 'gpu' allows 52428800")));
}

TEST_F(SegmentRecoveryTest, SegmentsGrowAndShrinkWithinTheBudget) {
  void* const segment = cache_.allocate(20 * kMiB, kStream);

  EXPECT_TRUE(cache_.grow(segment, 20 * kMiB, 90 * kMiB, kStream));
  EXPECT_EQ(budget_.current(), 90 * kMiB);
  EXPECT_THROW(cache_.grow(segment, 90 * kMiB, 101 * kMiB, kStream), OutOfMemory);
  EXPECT_EQ(cache_.shrink(segment, 90 * kMiB, 30 * kMiB, kStream), 30 * kMiB);
  EXPECT_EQ(budget_.current(), 30 * kMiB);
  cache_.validate();
  cache_.free(segment, 30 * kMiB, kStream);
}

TEST_F(SegmentRecoveryTest, ASegmentThatCannotGrowReservesNothing) {
  void* const below = cache_.allocate(20 * kMiB, kStream);
  void* const above = cache_.allocate(20 * kMiB, kStream);

  EXPECT_FALSE(cache_.grow(below, 20 * kMiB, 30 * kMiB, kStream));

  EXPECT_EQ(budget_.current(), 40 * kMiB);
  cache_.free(below, 20 * kMiB, kStream);
  cache_.free(above, 20 * kMiB, kStream);
}

// Two pools that grow at once ask each other while each is in a request.
TEST_F(SegmentRecoveryTest, TwoPoolsThatGrowAtOnceDoNotWaitForEachOther) {
  const auto grow = [this](StreamId stream) {
    FakeUser user(cache_, stream);
    for (int i = 0; i < 500; ++i) {
      try {
        const std::size_t bytes = (20 + i % 30) * kMiB;
        cache_.free(cache_.allocate(bytes, stream), bytes, stream);
      } catch (const OutOfMemory&) {
      }
    }
  };
  std::vector<std::thread> threads;
  for (StreamId stream = 1; stream <= 4; ++stream)
    threads.emplace_back(grow, stream);
  for (std::thread& thread : threads)
    thread.join();

  cache_.validate();
  EXPECT_LE(budget_.peak(), 100 * kMiB);
  EXPECT_EQ(cache_.statistics().bytes_in_use, 0u);
}

// For every k, either a later stage makes up for the failure, or the attempt leaves no trace.
TEST_F(SegmentRecoveryTest, AFailureAtAnyUpstreamCallLosesNothing) {
  for (std::size_t k = 1; k <= 5; ++k) {
    for (const bool once : {true, false}) {
      std::vector<std::pair<void*, std::size_t>> taken;
      once ? device_.fail_at(k) : device_.fail_from(k);
      for (const std::size_t bytes : {2 * kMiB, 4 * kMiB, 2 * kMiB, 8 * kMiB}) {
        const std::size_t before = cache_.statistics().bytes_in_use;
        try {
          taken.emplace_back(cache_.allocate(bytes, kStream), bytes);
        } catch (const OutOfMemory&) {
          EXPECT_EQ(cache_.statistics().bytes_in_use, before);
        }
        cache_.validate();
        const SegmentCacheStatistics now = cache_.statistics();
        EXPECT_EQ(budget_.current(), now.bytes_in_use + now.bytes_cached);
        EXPECT_EQ(budget_.current(), device_.bytes_held());
      }
      device_.fail_no_more();
      for (const auto& [segment, bytes] : taken)
        cache_.free(segment, bytes, kStream);
      cache_.trim();
      EXPECT_EQ(budget_.current(), 0u);
    }
  }
}

TEST_F(SegmentRecoveryTest, MemoryThatAnotherThreadIsGivingBackIsWaitedFor) {
  cache_.free(cache_.allocate(80 * kMiB, kStream), 80 * kMiB, kStream);
  std::atomic<bool> is_freeing{false};
  std::atomic<bool> may_end{false};
  device_.while_freeing = [&] {
    is_freeing = true;
    while (!may_end)
      std::this_thread::yield();
  };
  std::thread other([&] { cache_.trim(); });
  while (!is_freeing)
    std::this_thread::yield();
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    may_end = true;
  });

  void* segment = nullptr;
  EXPECT_NO_THROW(segment = cache_.allocate(60 * kMiB, kStream));

  other.join();
  opener.join();
  device_.while_freeing = nullptr;
  if (segment != nullptr) cache_.free(segment, 60 * kMiB, kStream);
}

TEST_F(SegmentRecoveryTest, ARequestAboveTheBudgetIsRefusedAtOnce) {
  cache_.free(cache_.allocate(60 * kMiB, kStream), 60 * kMiB, kStream);
  SegmentAccount small({.name = "small", .max_bytes = 50 * kMiB});
  FakeUser user(cache_, kStream);
  user.before_giving = [] { ADD_FAILURE() << "asked in vain"; };
  const auto id = cache_.add_reclaim([](std::size_t) -> std::size_t {
    ADD_FAILURE() << "asked in vain";
    return 0;
  });

  EXPECT_THROW(cache_.allocate(101 * kMiB, kStream), OutOfMemory);
  EXPECT_THROW(cache_.allocate_for(small, 51 * kMiB, kStream), OutOfMemory);

  EXPECT_EQ(cache_.statistics().bytes_cached, 60 * kMiB);
  user.before_giving = nullptr;
  cache_.remove_reclaim(id);
}

TEST_F(SegmentRecoveryTest, ASmallRequestTakesNothingFromOthersForTheSakeOfTheUsualSize) {
  void* const held = cache_.allocate(90 * kMiB, kStream);
  const auto id = cache_.add_reclaim([](std::size_t) -> std::size_t {
    ADD_FAILURE() << "10 MiB are free";
    return 0;
  });
  {
    Pool pool(cache_);
    void* const block = pool.allocate(3 * kMiB / 2);
    EXPECT_EQ(pool.statistics().reserved_bytes.current, 3 * kMiB / 2);
    pool.free(block);
  }
  cache_.remove_reclaim(id);
  cache_.free(held, 90 * kMiB, kStream);
}

}  // namespace
}  // namespace cgtree
