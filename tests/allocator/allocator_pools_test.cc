// Private pools: what each has, and when it ends.
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/allocator/allocator_fixture.h"

namespace cgtree {
namespace {

constexpr StreamId kStream = 7;

class AllocatorPoolsTest : public AllocatorFixture {};

// A device of a caller's own: as soon as the end of a segment is given back, others get it.
class ShrinkingDevice final : public FakeDevice {
 public:
  std::size_t shrink(void* segment, std::size_t bytes, std::size_t least,
                     StreamId stream) noexcept override {
    const std::size_t left = FakeDevice::shrink(segment, bytes, least + kept, stream);
    if (after_shrinking) std::exchange(after_shrinking, nullptr)();
    return left;
  }

  std::size_t kept = 0;  // bytes of the end that it keeps
  std::function<void()> after_shrinking;
};

class ShrinkingPoolsTest : public testing::Test {
 protected:
  // A pool that grows in place, with one live block of `bytes` and a free end.
  void* make_in_place(std::size_t bytes) {
    in_place_ = allocator_.make_pool({.pool = {.growth = Growth::kInPlace}});
    void* const block = in_place_.pool_on(kStream).allocate(bytes);
    void* const end = in_place_.pool_on(kStream).allocate(20 * kMiB);
    allocator_.free(end);
    return block;
  }
  std::size_t bytes_of(const PoolHandle& pool) const {
    return pool.statistics().allocated_bytes.current;
  }

  ShrinkingDevice device_;
  SegmentCache cache_{device_, nullptr, &device_};
  CachingAllocator allocator_{cache_};
  PoolHandle in_place_;
  PoolHandle other_ = allocator_.make_pool();
};

TEST_F(ShrinkingPoolsTest, APoolThatGetsWhatAnotherGivesBackOwnsIt) {
  void* const first = make_in_place(512);
  void* block = nullptr;
  device_.after_shrinking = [&] { block = other_.pool_on(kStream).allocate(6 * kMiB); };

  (void)in_place_.pool_on(kStream).give_back_unused();

  ASSERT_NE(block, nullptr);
  EXPECT_EQ(bytes_of(other_), 6 * kMiB);
  EXPECT_NO_THROW(allocator_.use(block, kStream));
  EXPECT_NO_THROW(allocator_.free(block));
  EXPECT_EQ(bytes_of(other_), 0u);
  allocator_.free(first);
}

// The device keeps more than it was asked to.
TEST_F(ShrinkingPoolsTest, WhatTheDeviceKeepsOfTheEndStaysThePools) {
  device_.kept = 3 * kMiB + 512;
  void* const first = make_in_place(512);

  (void)in_place_.pool_on(kStream).give_back_unused();

  Pool& pool = in_place_.pool_on(kStream);
  ASSERT_EQ(pool.segments()[0].bytes, 3 * kMiB + 1024);
  void* const block = pool.allocate(3 * kMiB + 512);
  EXPECT_NO_THROW(allocator_.use(block, kStream));
  EXPECT_NO_THROW(allocator_.free(block));
  allocator_.free(first);
}

// Two segments share a page of the map, of which the first once had more.
TEST_F(ShrinkingPoolsTest, NothingOfASharedPageStaysWithAPoolThatHasGivenItBack) {
  void* const first = make_in_place(kMiB);
  (void)in_place_.pool_on(kStream).give_back_unused();
  ASSERT_EQ(in_place_.pool_on(kStream).segments()[0].bytes, kMiB);
  void* const second = other_.pool_on(kStream).allocate(512);  // behind it
  const auto beside = static_cast<std::byte*>(second);
  ASSERT_EQ(beside, static_cast<std::byte*>(first) + kMiB);

  allocator_.free(first);
  in_place_ = PoolHandle();
  allocator_.trim();

  EXPECT_EQ(bytes_of(other_), 512u);
  EXPECT_NO_THROW(allocator_.free(second));
  EXPECT_EQ(bytes_of(other_), 0u);
}

TEST_F(ShrinkingPoolsTest, AnAddressThatWasGivenBackIsNobodys) {
  void* const first = make_in_place(kMiB);
  (void)in_place_.pool_on(kStream).give_back_unused();
  void* const behind = static_cast<std::byte*>(first) + kMiB;

  try {
    allocator_.free(behind);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.message()).find("in no segment of this allocator"),
              std::string::npos)
        << error.message();
  }

  allocator_.free(first);
}

// test_mempool_id
// Acceptance: pools mempool_id.
TEST_F(AllocatorPoolsTest, MempoolId) {
  std::mutex mutex;
  std::set<PoolId> ids;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k) {
        const PoolId id = allocator_.make_pool().id();
        const std::lock_guard lock(mutex);
        EXPECT_TRUE(ids.insert(id).second);
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
}

std::shared_ptr<SegmentAccount> account_of(std::shared_ptr<SegmentSource> source) {
  return std::make_shared<SegmentAccount>(SegmentAccount::Options{.source = std::move(source)});
}

// test_mempool_with_allocator
// Acceptance: pools mempool_with_allocator.
TEST_F(AllocatorPoolsTest, MempoolWithAllocator) {
  const auto own = std::make_shared<FakeDevice>();
  PoolHandle pool = allocator_.make_pool({.account = account_of(own)});
  std::vector<void*> blocks;
  blocks.push_back(allocator_.allocate_in(pool, kMiB, kStream));
  EXPECT_EQ(segments(pool), 1u);
  blocks.push_back(allocator_.allocate_in(pool, kMiB, kStream));
  EXPECT_EQ(segments(pool), 1u);
  blocks.push_back(allocator_.allocate_in(pool, 20 * kMiB, kStream));
  EXPECT_EQ(segments(pool), 2u);
  EXPECT_EQ(own->held().size(), 2u);
  EXPECT_TRUE(device_.held().empty());

  for (void* const block : blocks)
    allocator_.free(block);
  EXPECT_EQ(own->held().size(), 2u) << "a pool in use keeps its segments";
  pool = PoolHandle();
  EXPECT_TRUE(own->held().empty());
}

// test_tensor_delete_after_allocator_delete
// Acceptance: pools tensor_delete_after_allocator_delete.
TEST_F(AllocatorPoolsTest, TensorDeleteAfterAllocatorDelete) {
  auto own = std::make_shared<FakeDevice>();
  const std::weak_ptr<FakeDevice> watched = own;
  PoolHandle pool = allocator_.make_pool({.account = account_of(std::move(own))});
  void* const block = allocator_.allocate_in(pool, kMiB, kStream);
  pool = PoolHandle();
  ASSERT_FALSE(watched.expired()) << "a live block keeps its source";

  allocator_.free(block);

  EXPECT_TRUE(watched.expired());
}

// test_mempool_empty_cache
// Acceptance: pools mempool_empty_cache.
TEST_F(AllocatorPoolsTest, MempoolEmptyCache) {
  PoolHandle pool = allocator_.make_pool();
  allocator_.free(allocator_.allocate_in(pool, kMiB, kStream));
  allocator_.trim();
  EXPECT_EQ(segments(pool), 1u) << "a pool in use keeps its segments";

  pool = PoolHandle();
  allocator_.trim();
  EXPECT_TRUE(device_.held().empty());
}

// test_mempool_empty_cache_inactive
// Acceptance: pools mempool_empty_cache.
TEST_F(AllocatorPoolsTest, MempoolEmptyCacheInactive) {
  PoolHandle pool = allocator_.make_pool();
  void* const block = allocator_.allocate_in(pool, kMiB, kStream);
  allocator_.free(allocator_.allocate_in(pool, 20 * kMiB, kStream));
  pool = PoolHandle();
  allocator_.trim();
  EXPECT_EQ(device_.bytes_held(), 2 * kMiB) << "live segments of a pool without a handle stay";

  allocator_.free(block);
  allocator_.trim();
  EXPECT_TRUE(device_.held().empty());
}

// test_mempool_multithread
// Acceptance: pools mempool_multithread.
TEST_F(AllocatorPoolsTest, MempoolMultithread) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const PoolHandle pool = allocator_.make_pool();
      void* const block = allocator_.allocate_in(pool, kMiB, kStream);
      EXPECT_EQ(segments(pool), 1u);
      EXPECT_EQ(pool.statistics().allocation.current, 1u);
      allocator_.free(block);
    });
  }
  for (std::thread& thread : threads)
    thread.join();

  EXPECT_EQ(allocator_.statistics().pools.size(), 0u);
}

// test_mempool_emptycache_multithread
// Acceptance: pools mempool_emptycache_multithread.
TEST_F(AllocatorPoolsTest, MempoolEmptycacheMultithread) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k) {
        const PoolHandle pool = allocator_.make_pool();
        allocator_.free(allocator_.allocate_in(pool, kMiB, kStream));
        allocator_.trim();
        EXPECT_EQ(segments(pool), 1u);
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  allocator_.trim();

  EXPECT_TRUE(device_.held().empty());
}

TEST_F(AllocatorPoolsTest, PendingBlocksOfPrivatePoolsAreCountedAmongAll) {
  const PoolHandle pool = allocator_.make_pool();
  void* const block = allocator_.allocate_in(pool, 4096, 1);
  device_.submit(2);
  allocator_.free(block, 2);

  EXPECT_EQ(allocator_.statistics().pending_blocks, 1u);
  EXPECT_EQ(allocator_.statistics(pool).pending_blocks, 1u);
  device_.finish(2);
}

// Its owner has waited for the stream, on which another user has submitted more work since.
TEST_F(AllocatorPoolsTest, APoolThatMovesToNoStreamLeavesTheWorkOfOthersOnItsStreamPending) {
  PoolHandle pool = allocator_.make_pool({.keeps_segments = false});
  void* const own = allocator_.allocate_in(pool, 16 * kMiB, 1);
  void* const other = allocator_.allocate(4096, 3);
  allocator_.use(other, 1);
  device_.submit(1);
  allocator_.free(other);

  pool.move_pool(1, kIdle);
  allocator_.free(own);
  pool = PoolHandle();
  allocator_.retire(1);
  cache_.progress().retire(1, StreamProgress::Work::kMayBePending);

  allocator_.trim();
  EXPECT_EQ(allocator_.statistics().pending_blocks, 1u);
  device_.finish(1);
  allocator_.trim();
  EXPECT_EQ(allocator_.statistics().pending_blocks, 0u);
}

}  // namespace
}  // namespace cgtree
