// Blocks that threads keep: the thread that gets them again, and the same behaviour for callers.
#include "caching/threads/thread_caches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "allocator/pool/pool.h"
#include "base/error.h"
#include "tests/allocator/fake_segment_source.h"
#include "tests/allocator/other_thread.h"

namespace cgtree {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::size_t kMiB = std::size_t{1} << 20;

class ThreadCachesTest : public testing::Test {
 protected:
  std::string refusal_to_free(void* address) {
    const PoolStatistics before = pool_.statistics();
    try {
      pool_.free(address);
    } catch (const InvalidArgument& error) {
      pool_.validate();
      EXPECT_EQ(pool_.statistics().allocation, before.allocation);
      EXPECT_EQ(pool_.statistics().requested_bytes, before.requested_bytes);
      return std::string(error.message());
    }
    return "nothing was thrown";
  }
  // Allocates often enough for this thread to keep blocks of the size; one is kept.
  void demand(std::size_t bytes) {
    for (int i = 0; i < 2; ++i)
      pool_.free(pool_.allocate(bytes));
  }
  // Bytes that are neither live nor free: threads keep them.
  std::size_t cached_bytes() const {
    const PoolStatistics now = pool_.statistics();
    return now.reserved_bytes.current - now.allocated_bytes.current - now.largest_free_block;
  }

  FakeSegmentSource source_{8 * kMiB};
  Pool pool_{source_,
             {.name = "eager",
              .thread_caching = ThreadCaching::kAlways,
              .make_caches = make_thread_caches}};
  OtherThread other_;
};

TEST_F(ThreadCachesTest, AThreadGetsTheBlockThatItFreedLast) {
  demand(1024);
  void* const first = pool_.allocate(700);
  void* const second = pool_.allocate(1000);
  pool_.free(first);
  pool_.free(second);

  EXPECT_EQ(pool_.allocate(1024), second);
  EXPECT_EQ(pool_.allocate(513), first);
  pool_.validate();
}

TEST_F(ThreadCachesTest, AThreadDoesNotGetWhatAnotherKeeps) {
  demand(512);
  void* const block = pool_.allocate(512);
  pool_.free(block);

  other_.run([&] { EXPECT_NE(pool_.allocate(512), block); });
  EXPECT_EQ(pool_.allocate(512), block);
}

TEST_F(ThreadCachesTest, ABlockBelongsToTheThreadThatFreesIt) {
  demand(512);
  void* const block = pool_.allocate(512);
  other_.run([&] {
    demand(512);
    pool_.free(block);
    EXPECT_EQ(pool_.allocate(100), block);
  });
}

TEST_F(ThreadCachesTest, OnlyBlocksOfSizesThatComeBackAreKept) {
  for (std::size_t bytes = 512; bytes <= 64 * 512; bytes += 512) {
    pool_.free(pool_.allocate(bytes));
    EXPECT_EQ(cached_bytes(), 0u) << bytes;
  }
  demand(2048);
  EXPECT_EQ(cached_bytes(), 2048u);
}

TEST_F(ThreadCachesTest, NewSizesInDemandReplaceTheOthers) {
  std::vector<void*> others;
  for (std::size_t i = 0; i < ThreadCache::kMostBlocks + 1; ++i)
    others.push_back(pool_.allocate(1024));
  for (std::size_t i = 0; i < 2; ++i)
    others.push_back(pool_.allocate(2048));
  for (void* const other : others)
    pool_.free(other);

  EXPECT_EQ(pool_.allocate(2048), others.back());
  pool_.validate();
}

TEST_F(ThreadCachesTest, AThreadThatIsRarelyServedKeepsNothingForAWhile) {
  demand(512);
  for (std::size_t i = 0; i < 4096; ++i)  // sizes that do not repeat soon
    pool_.free(pool_.allocate((2 + i % 1000) * 512));
  pool_.trim();
  for (int i = 0; i < 8; ++i)  // enough for any earlier count
    demand(512);
  EXPECT_EQ(cached_bytes(), 0u);

  for (int i = 0; i < 64 * 1024; ++i)
    pool_.free(pool_.allocate(512));
  EXPECT_EQ(cached_bytes(), 512u);
  pool_.validate();
}

TEST_F(ThreadCachesTest, OtherSizesAndLargeBlocksAreNotKept) {
  demand(kMiB + 1);
  EXPECT_EQ(cached_bytes(), 0u);
  demand(512);
  void* const block = pool_.allocate(512);
  pool_.free(block);
  EXPECT_EQ(cached_bytes(), 512u);

  EXPECT_NE(pool_.allocate(513), block);
}

TEST_F(ThreadCachesTest, ACachedBlockIsFreeToEverybodyWhoAsks) {
  demand(512);
  void* const block = pool_.allocate(512);
  pool_.free(block);

  EXPECT_THAT(pool_.live(), IsEmpty());
  EXPECT_EQ(pool_.statistics().allocation.current, 0u);
  EXPECT_EQ(pool_.use().live, 0u);
  EXPECT_THAT(refusal_to_free(block), HasSubstr("already free"));
}

TEST_F(ThreadCachesTest, AskingTakesNothingFromTheThreads) {
  demand(512);
  void* const first = pool_.allocate(512);
  void* const second = pool_.allocate(512);
  void* const third = pool_.allocate(512);
  pool_.free(first);
  pool_.free(second);
  EXPECT_EQ(cached_bytes(), 1024u);

  EXPECT_EQ(pool_.live(), (std::vector<Range>{{reinterpret_cast<std::uintptr_t>(third), 512}}));
  EXPECT_EQ(pool_.use().live, 512u);
  EXPECT_EQ(cached_bytes(), 1024u);
  pool_.free(third);
  EXPECT_THAT(pool_.live(), IsEmpty());
}

TEST_F(ThreadCachesTest, ADoubleFreeIsRefusedOnAnyThread) {
  demand(512);
  void* const block = pool_.allocate(512);
  void* const neighbour = pool_.allocate(512);
  pool_.free(block);

  other_.run([&] { EXPECT_THAT(refusal_to_free(block), HasSubstr("already free")); });
  pool_.free(pool_.allocate(512));  // kept again
  EXPECT_THAT(refusal_to_free(block), HasSubstr("already free"));
  EXPECT_EQ(pool_.live().size(), 1u);
  pool_.free(neighbour);
}

TEST_F(ThreadCachesTest, AWrongAddressIsRefusedWithTheSameWords) {
  demand(2048);
  auto* const block = static_cast<std::byte*>(pool_.allocate(2048));

  EXPECT_THAT(refusal_to_free(nullptr), HasSubstr("pool 'eager' cannot free null"));
  EXPECT_THAT(refusal_to_free(block - 512), HasSubstr("in no segment of the pool"));
  EXPECT_THAT(refusal_to_free(block + 1), HasSubstr("1 bytes into the live block"));
  EXPECT_THAT(refusal_to_free(block + 512), HasSubstr("512 bytes into the live block"));
  EXPECT_THAT(refusal_to_free(block + 2048), HasSubstr("already free"));
  pool_.free(block);
  EXPECT_THAT(refusal_to_free(block + 512), HasSubstr("already free"));
}

TEST_F(ThreadCachesTest, OnlyALiveBlockIsExpectedLive) {
  demand(512);
  void* const block = pool_.allocate(512);
  EXPECT_NO_THROW(pool_.expect_live(block));
  pool_.free(block);

  EXPECT_THROW(pool_.expect_live(block), InvalidArgument);
  EXPECT_THROW(pool_.expect_live(static_cast<std::byte*>(block) + 1), InvalidArgument);
}

TEST_F(ThreadCachesTest, TrimTakesBackWhatAllThreadsKeep) {
  demand(512);
  void* const block = pool_.allocate(512);
  demand(512);
  other_.run([&] {
    demand(512);
    pool_.free(block);
    demand(4096);
  });
  EXPECT_EQ(cached_bytes(), 3 * 512 + 4096u);

  EXPECT_EQ(pool_.trim(), kSmallSegment);
  EXPECT_THAT(source_.held(), IsEmpty());
}

TEST_F(ThreadCachesTest, ARequestIsNotRefusedForWhatThreadsKeep) {
  other_.run([&] { demand(kMiB); });
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i)
    blocks.push_back(pool_.allocate(kMiB));
  other_.run([&] {
    for (int i = 0; i < 4; ++i)
      pool_.free(blocks[i]);
  });
  EXPECT_EQ(cached_bytes(), 2 * kMiB);  // the other two began their segments
  EXPECT_EQ(source_.given(), 4u);

  std::vector<void*> more;
  for (int i = 0; i < 4; ++i)
    more.push_back(pool_.allocate(kMiB));
  EXPECT_THROW(pool_.allocate(512), OutOfMemory);
  EXPECT_EQ(source_.given(), 4u);
}

TEST_F(ThreadCachesTest, TheBlocksOfAThreadAreBounded) {
  std::vector<void*> blocks;
  for (std::size_t i = 0; i < 2 * ThreadCache::kMostBlocks; ++i)
    blocks.push_back(pool_.allocate(512));
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block)
    pool_.free(*block);
  EXPECT_GT(cached_bytes(), 0u);
  pool_.validate();  // checks the bounds

  blocks.clear();
  pool_.trim();
  for (int i = 0; i < 8; ++i)
    blocks.push_back(pool_.allocate(kMiB));
  for (void* const block : blocks)
    pool_.free(block);
  pool_.validate();
}

TEST_F(ThreadCachesTest, TheEndOfAThreadGivesItsBlocksBack) {
  other_.run([&] { demand(512); });
  EXPECT_EQ(cached_bytes(), 512u);
  other_.end();

  EXPECT_EQ(cached_bytes(), 0u);
  EXPECT_EQ(pool_.statistics().allocation.allocated, 2u);
  pool_.validate();
}

TEST_F(ThreadCachesTest, APoolMayEndBeforeItsThreads) {
  FakeSegmentSource source;
  std::optional<Pool> pool;
  for (int i = 0; i < 20; ++i) {  // at one address
    pool.emplace(source, PoolOptions{.thread_caching = ThreadCaching::kAlways,
                                     .make_caches = make_thread_caches});
    const auto demand_one = [&] {
      for (int k = 0; k < 2; ++k)
        pool->free(pool->allocate(512));
    };
    demand_one();
    void* const block = pool->allocate(512);
    other_.run([&] {
      demand_one();
      pool->free(block);
    });
    demand_one();
    pool->validate();
  }
  pool.reset();
  other_.end();

  EXPECT_THAT(source.held(), IsEmpty());
}

TEST_F(ThreadCachesTest, AClosedPoolRefusesEveryCall) {
  demand(512);
  void* const block = pool_.allocate(512);
  pool_.free(pool_.allocate(512));
  pool_.free(block);
  demand(1024);
  void* const live = pool_.allocate(700);
  void* const marked = pool_.allocate(700);
  pool_.close();

  EXPECT_THROW(pool_.allocate(512), InvalidArgument);
  EXPECT_THROW(pool_.free(block), InvalidArgument);
  EXPECT_THROW(pool_.free(live), InvalidArgument);
  EXPECT_THROW(pool_.free(marked), InvalidArgument);
  EXPECT_EQ(pool_.statistics().requested_bytes.current, 0u);
  pool_.validate();
}

TEST_F(ThreadCachesTest, RequestedBytesAreThoseOfTheLastRequest) {
  demand(512);
  void* const block = pool_.allocate(3);
  EXPECT_EQ(pool_.statistics().requested_bytes.current, 3u);

  pool_.free(block);
  EXPECT_EQ(pool_.statistics().requested_bytes.current, 0u);
  EXPECT_EQ(pool_.statistics().requested_bytes.allocated, 1027u);
  EXPECT_EQ(pool_.statistics().requested_bytes.freed, 1027u);
  pool_.trim();
  EXPECT_EQ(pool_.statistics().requested_bytes.freed, 1027u);
  pool_.validate();
}

TEST_F(ThreadCachesTest, ALayoutIsNotRestored) {
  EXPECT_THROW((void)pool_.checkpoint(), InvalidArgument);
  EXPECT_THROW((void)pool_.restore_live({}), InvalidArgument);
}

TEST_F(ThreadCachesTest, APoolOfOneThreadHasNoCachesUntilOthersWait) {
  Pool pool(source_,
            {.thread_caching = ThreadCaching::kWhenContended, .make_caches = make_thread_caches});
  for (int i = 0; i < 1000; ++i) {
    void* const block = pool.allocate(512);
    other_.run([&] { pool.free(block); });
    ASSERT_EQ(pool.largest_free_block(), kSmallSegment);
  }
}

}  // namespace
}  // namespace cgtree
