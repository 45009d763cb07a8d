// The caching allocator of a device: reuse of blocks on one stream and across streams.
#include "caching/caching_allocator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "tests/allocator/account_pool.h"
#include "tests/allocator/allocator_fixture.h"

namespace cgtree {
namespace {

constexpr StreamId kStream = 7;
constexpr StreamId kOther = 8;

class CachingAllocatorTest : public AllocatorFixture {
 protected:
  void retire_and_destroy(StreamId stream) {
    allocator_.retire(stream);
    cache_.progress().retire(stream);
    device_.destroy_stream(stream);
  }
};

// cub: the same stream gets a freed block immediately, while its work still runs.
TEST_F(CachingAllocatorTest, TheSameStreamGetsABlockAtOnceWhileItsWorkRuns) {
  void* const block = allocator_.allocate(kMiB, kStream);
  device_.submit(kStream);
  allocator_.free(block);

  EXPECT_EQ(allocator_.allocate(kMiB, kStream), block);
  EXPECT_EQ(device_.events_recorded(), 0u);
  allocator_.free(block);
}

// cub: another stream gets its memory only after the first stream is idle and releases the segment.
TEST_F(CachingAllocatorTest, AnotherStreamGetsMemoryOnlyOnceTheFirstIsIdle) {
  void* const block = allocator_.allocate(64 * kMiB, kStream);
  device_.submit(kStream);
  allocator_.free(block);

  void* const other = allocator_.allocate(16 * kMiB, kOther);
  EXPECT_NE(other, block);
  allocator_.free(other);
  device_.finish(kStream);
  allocator_.trim();
  void* const later = allocator_.allocate(64 * kMiB, kOther);
  EXPECT_EQ(later, block);
  allocator_.free(later);
}

TEST_F(CachingAllocatorTest, ABlockThatAnotherStreamUsesWaitsForItsWork) {
  void* const block = allocator_.allocate(kMiB, kStream);
  allocator_.use(block, kOther);
  device_.submit(kOther);
  allocator_.free(block);

  void* const second = allocator_.allocate(kMiB, kStream);
  EXPECT_NE(second, block);
  device_.finish(kOther);
  void* const third = allocator_.allocate(2 * kMiB, kStream);  // a miss: allocates from the device
  void* const again = allocator_.allocate(kMiB, kStream);

  EXPECT_EQ(again, block);
  for (void* const each : {second, third, again})
    allocator_.free(each);
}

TEST_F(CachingAllocatorTest, ABlockThatManyStreamsUseWaitsForThemAll) {
  void* const block = allocator_.allocate(kMiB, kStream);
  for (const StreamId stream : {kOther, kOther + 1}) {
    allocator_.use(block, stream);
    device_.submit(stream);
  }
  allocator_.free(block);

  for (const StreamId stream : {kOther, kOther + 1}) {
    allocator_.trim();
    EXPECT_EQ(allocator_.statistics().pending_blocks, 1u) << "stream " << stream << " still runs";
    device_.finish(stream);
  }
  allocator_.trim();
  EXPECT_EQ(allocator_.statistics().pending_blocks, 0u);
}

TEST_F(CachingAllocatorTest, PendingBlocksAreWaitedForWhenTheAllocatorEnds) {
  std::optional<CachingAllocator> other(std::in_place, cache_);
  void* const block = other->allocate(4096, 1);
  other->use(block, 2);
  device_.submit(2);
  other->free(block);

  other.reset();

  EXPECT_TRUE(device_.is_done(2, 1)) << "memory went back while its work was pending";
}

TEST_F(CachingAllocatorTest, WorkSubmittedAfterTheFreeIsNotWaitedForLonger) {
  void* const block = allocator_.allocate(kMiB, kStream);
  allocator_.use(block, kOther);
  allocator_.free(block);
  allocator_.trim();

  EXPECT_EQ(allocator_.statistics().pending_blocks, 0u);
}

TEST_F(CachingAllocatorTest, AFreeOnAnotherStreamIsAUseAndAFree) {
  void* const block = allocator_.allocate(kMiB, kStream);
  device_.submit(kOther);
  allocator_.free(block, kOther);

  EXPECT_EQ(allocator_.statistics().pending_blocks, 1u);
  device_.finish(kOther);
  allocator_.trim();
  EXPECT_EQ(allocator_.statistics().pending_blocks, 0u);
}

TEST_F(CachingAllocatorTest, AFreeOnItsOwnStreamIsAtOnce) {
  void* const block = allocator_.allocate(kMiB, kStream);
  device_.submit(kStream);
  allocator_.free(block, kStream);

  EXPECT_EQ(allocator_.statistics().pending_blocks, 0u);
}

TEST_F(CachingAllocatorTest, ManyPendingBlocksNeedOneEvent) {
  std::vector<void*> blocks;
  for (int i = 0; i < 20; ++i) {
    blocks.push_back(allocator_.allocate(4096, kStream));
    allocator_.use(blocks.back(), kOther);
  }
  device_.submit(kOther);
  for (void* const block : blocks)
    allocator_.free(block);

  allocator_.trim();

  EXPECT_EQ(device_.events_recorded(), 1u);
  device_.finish(kOther);
}

TEST_F(CachingAllocatorTest, PendingBlocksAreLookedAtEvenWhenNothingMisses) {
  void* const block = allocator_.allocate(4096, kStream);
  allocator_.use(block, kOther);
  allocator_.free(block);

  for (int i = 0; i < 32; ++i)
    allocator_.free(allocator_.allocate(4096, kStream));

  EXPECT_EQ(allocator_.statistics().pending_blocks, 0u);
}

TEST_F(CachingAllocatorTest, AnAddressWithoutABlockIsNamed) {
  void* const block = allocator_.allocate(kMiB, kStream);
  int foreign = 0;

  EXPECT_THROW(allocator_.free(nullptr), InvalidArgument);
  EXPECT_THROW(allocator_.free(&foreign), InvalidArgument);
  EXPECT_THROW(allocator_.use(&foreign, kOther), InvalidArgument);
  allocator_.free(block);
}

TEST_F(CachingAllocatorTest, FreeingAPendingBlockIsNamed) {
  void* const block = allocator_.allocate(kMiB, kStream);
  allocator_.use(block, kOther);
  device_.submit(kOther);
  allocator_.free(block);

  EXPECT_THROW(allocator_.free(block), InvalidArgument);
  device_.finish(kOther);
}

TEST_F(CachingAllocatorTest, TrimGivesEverythingUnusedBackToTheDevice) {
  void* const block = allocator_.allocate(kMiB, kStream);
  allocator_.free(allocator_.allocate(30 * kMiB, kOther));

  EXPECT_EQ(allocator_.trim(), 30 * kMiB);
  allocator_.free(block);
  EXPECT_EQ(allocator_.trim(), 2 * kMiB);

  EXPECT_TRUE(device_.held().empty());
  EXPECT_EQ(budget_.current(), 0u);
}

TEST_F(CachingAllocatorTest, StatisticsAddUpOverThePools) {
  void* const one = allocator_.allocate(kMiB, kStream);
  void* const two = allocator_.allocate(3 * kMiB, kOther);

  const AllocatorStatistics all = allocator_.statistics();

  EXPECT_EQ(all.pools.size(), 2u);
  EXPECT_EQ(all.total.requested_bytes.current, 4 * kMiB);
  EXPECT_EQ(all.total.reserved_bytes.current, all.cache.bytes_in_use);
  allocator_.free(one);
  allocator_.free(two);
}

TEST_F(CachingAllocatorTest, SegmentsThatShareAPageKeepTheirPools) {
  budget_.set_max_bytes(3 * kMiB);
  std::vector<std::pair<void*, StreamId>> blocks;
  for (StreamId stream = 1; stream <= 40; ++stream) {
    try {  // without room for a whole segment, one of the block's size is taken
      blocks.emplace_back(allocator_.allocate(100'000, stream), stream);
    } catch (const OutOfMemory&) {
    }
  }
  ASSERT_GT(blocks.size(), 2u);
  for (const auto& [block, stream] : blocks)
    allocator_.free(block, stream);

  EXPECT_EQ(allocator_.statistics().pending_blocks, 0u) << "each was found in its stream's pool";
}

TEST_F(CachingAllocatorTest, ThreadsOnTheirOwnStreamsShareNothing) {
  std::vector<std::thread> threads;
  for (StreamId stream = 1; stream <= 4; ++stream) {
    threads.emplace_back([&, stream] {
      for (int i = 0; i < 500; ++i)
        allocator_.free(allocator_.allocate(512 + i * 100, stream));
    });
  }
  for (std::thread& thread : threads)
    thread.join();

  EXPECT_EQ(allocator_.statistics().total.allocation.current, 0u);
  EXPECT_EQ(allocator_.statistics().pools.size(), 4u);
}

TEST_F(CachingAllocatorTest, AUseOfNoLiveBlockIsRefusedAndChangesNothing) {
  char* const block = static_cast<char*>(allocator_.allocate(4096, 1));
  EXPECT_THROW(allocator_.use(block + 512, 2), InvalidArgument);
  EXPECT_THROW(allocator_.free(block + 512, 2), InvalidArgument);
  allocator_.free(block);

  EXPECT_THROW(allocator_.use(block, 2), InvalidArgument);
  EXPECT_THROW(allocator_.free(block, 2), InvalidArgument);

  EXPECT_EQ(allocator_.statistics().pending_blocks, 0u);
  EXPECT_EQ(allocator_.allocate(4096, 1), block);
  allocator_.free(block);
}

TEST_F(CachingAllocatorTest, AUseOfAPendingBlockIsRefused) {
  void* const block = allocator_.allocate(4096, 1);
  allocator_.use(block, 2);
  device_.submit(2);
  allocator_.free(block);

  EXPECT_THROW(allocator_.use(block, 2), InvalidArgument);
  EXPECT_THROW(allocator_.use(block, 1), InvalidArgument);
  device_.finish(2);
}

TEST_F(CachingAllocatorTest, AUseOnAStreamThatIsRetiredBeforeTheFreeIsWaitedForWithoutTheStream) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, const std::string& line) { lines.push_back(line); });
  void* const block = allocator_.allocate(4096, 1);
  allocator_.use(block, 2);
  device_.submit(2);
  retire_and_destroy(2);

  allocator_.free(block);

  allocator_.trim();
  EXPECT_EQ(allocator_.statistics().pending_blocks, 1u);
  device_.finish(2);
  allocator_.trim();
  EXPECT_EQ(allocator_.statistics().pending_blocks, 0u);
  EXPECT_EQ(lines, std::vector<std::string>()) << "the stream is gone, and nothing may name it";
  set_log_sink(nullptr);
}

TEST_F(CachingAllocatorTest, TheMemoryOfARetiredStreamIsTrimmedWithoutNamingTheStream) {
  void* const freed = allocator_.allocate(16 * kMiB, 2);
  void* const live = allocator_.allocate(16 * kMiB, 2);
  allocator_.free(freed);
  device_.submit(2);
  allocator_.retire(2);
  cache_.progress().retire(2);
  device_.destroy_stream(2);

  allocator_.free(live);
  allocator_.trim();

  EXPECT_EQ(device_.bytes_held(), 0u);
  EXPECT_EQ(device_.records_refused(2), 0u);
  EXPECT_TRUE(device_.is_done(2, 1)) << "memory went back while its work was pending";
}

TEST_F(CachingAllocatorTest, AStreamThatTookARetiredStreamsPoolOverIsWaitedFor) {
  void* const first = allocator_.allocate(16 * kMiB, 2);
  allocator_.free(first);
  retire_and_destroy(2);
  void* const block = allocator_.allocate(16 * kMiB, 4);
  EXPECT_EQ(block, first);
  device_.submit(4);
  allocator_.free(block);

  void* const other = allocator_.allocate(16 * kMiB, 3);

  EXPECT_NE(other, block) << "work of the later stream is still pending";
  allocator_.free(other);
  device_.finish(4);
}

TEST_F(CachingAllocatorTest, NoStreamGetsWhatPendingWorkOfARetiredOneUses) {
  void* const eager = allocator_.allocate(4096, 2);
  void* const whole = allocator_.allocate(16 * kMiB, 2);
  device_.submit(2);
  for (void* const block : {eager, whole})
    allocator_.free(block);
  retire_and_destroy(2);

  void* const later_eager = allocator_.allocate(4096, 4);
  void* const later_whole = allocator_.allocate(16 * kMiB, 4);

  EXPECT_NE(later_eager, eager);
  EXPECT_NE(later_whole, whole);
  device_.finish(2);
  EXPECT_EQ(allocator_.allocate(4096, 5), eager);
  EXPECT_EQ(allocator_.allocate(16 * kMiB, 5), whole);
}

TEST_F(CachingAllocatorTest, StreamsThatComeAndGoNeedNoMorePoolsThanThereAreAtOnce) {
  void* const kept = allocator_.allocate(4096, 100);
  for (StreamId stream = 100; stream < 300; ++stream) {
    void* const eager = allocator_.allocate(4096, stream);
    device_.submit(stream);
    allocator_.free(eager);
    device_.finish(stream);
    retire_and_destroy(stream);
  }

  EXPECT_EQ(allocator_.statistics().pools.size(), 1u);
  EXPECT_EQ(allocator_.statistics().total.reserved_bytes.current, 2 * kMiB);
  allocator_.free(kept);
}

TEST_F(CachingAllocatorTest, ThreadsFindTheirPoolsWhileThoseOfRetiredStreamsAreTakenOver) {
  std::atomic<StreamId> last{100};
  std::vector<std::thread> threads;
  for (StreamId stream = 1; stream <= 3; ++stream) {
    threads.emplace_back([&, stream] {
      for (int i = 0; i < 300; ++i) {
        const StreamId brief = ++last;
        allocator_.free(allocator_.allocate(512, brief));
        allocator_.free(allocator_.allocate(512, stream));
        retire_and_destroy(brief);
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();

  EXPECT_EQ(allocator_.statistics().total.allocation.current, 0u);
  EXPECT_LE(allocator_.statistics().pools.size(), 9u);
}

TEST_F(CachingAllocatorTest, ALaterReaderIsWaitedForBesideARetiredOne) {
  void* const block = allocator_.allocate(4096, 1);
  allocator_.use(block, 2);
  device_.submit(2);
  retire_and_destroy(2);
  allocator_.use(block, 4);
  device_.submit(4);

  allocator_.free(block);

  device_.finish(4);
  allocator_.trim();
  EXPECT_EQ(allocator_.statistics().pending_blocks, 1u);
  device_.finish(2);
  allocator_.trim();
  EXPECT_EQ(allocator_.statistics().pending_blocks, 0u);
}

// The owner of the pool has waited for the stream, but another user has submitted more work to it.
TEST_F(CachingAllocatorTest, APoolThatMovesToNoStreamLeavesTheWorkOfOthersOnItsStreamPending) {
  std::optional<AccountPool> pool(std::in_place, cache_, cache_.own_account(),
                                  PoolOptions{.stream = 1});
  void* const own = pool->pool.allocate(16 * kMiB);
  void* const other = allocator_.allocate(4096, 3);
  allocator_.use(other, 1);
  device_.submit(1);
  allocator_.free(other);

  pool->segments.set_stream(kIdle);
  pool->pool.free(own);
  pool.reset();
  allocator_.retire(1);
  cache_.progress().retire(1);

  allocator_.trim();
  EXPECT_EQ(allocator_.statistics().pending_blocks, 1u);
  device_.finish(1);
  allocator_.trim();
  EXPECT_EQ(allocator_.statistics().pending_blocks, 0u);
}

TEST_F(CachingAllocatorTest, ADestroyedStreamHoldsUpNoBlockOfAnother) {
  set_log_sink([](LogLevel, const std::string&) {});
  void* const lost = allocator_.allocate(4096, 1);
  void* const block = allocator_.allocate(4096, 1);
  allocator_.use(lost, 2);
  allocator_.use(block, 3);
  allocator_.free(lost);
  allocator_.free(block);
  device_.destroy_stream(2);

  allocator_.trim();
  EXPECT_EQ(allocator_.statistics().pending_blocks, 1u);
  void* const large = allocator_.allocate(70 * kMiB, 1);
  allocator_.free(large);
  set_log_sink(nullptr);
}

}  // namespace
}  // namespace cgtree
