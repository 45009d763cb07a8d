// A pool is unchanged after a failure of its source or of a host allocation, at each call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <new>
#include <vector>

#include "allocator/pool/block.h"
#include "allocator/pool/pool.h"
#include "allocator/segments/segment_cache.h"
#include "base/error.h"
#include "tests/allocator/fake_segment_source.h"
#include "tests/allocator/host_allocation_limit.h"

namespace cgtree {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

void free_all(Pool& pool) {
  for (const Range& block : pool.live())
    pool.free(reinterpret_cast<void*>(block.address));
}

// Requests that make the pool grow, fit into its segments, and make it grow again.
const std::vector<std::size_t> kRequests = {700,        2 * kMiB,  600 * 1024, 30 * kMiB, 512,
                                            900 * 1024, 19 * kMiB, 11 * kMiB,  3 * kMiB};

// Makes the requests, and expects refused requests to change nothing. Returns the number of refused
// ones.
int request_all(Pool& pool) {
  int refused = 0;
  for (const std::size_t bytes : kRequests) {
    const PoolCheckpoint before = pool.checkpoint();
    try {
      pool.allocate(bytes);
    } catch (const OutOfMemory&) {
      ++refused;
      EXPECT_EQ(pool.checkpoint(), before) << bytes;
    }
    pool.validate();
  }
  return refused;
}

TEST(PoolFaultTest, OneRefusalIsSurvivedWhereASmallerSegmentWillDo) {
  FakeSegmentSource counting;
  {
    Pool pool(counting);
    ASSERT_EQ(request_all(pool), 0);
    free_all(pool);
  }
  for (std::size_t k = 1; k <= counting.asked().size(); ++k) {
    FakeSegmentSource source;
    Pool pool(source);
    source.fail_at(k);
    const std::size_t bytes = counting.asked()[k - 1];
    const bool has_smaller = bytes == kSmallSegment || bytes == kMediumSegment;
    EXPECT_EQ(request_all(pool), has_smaller ? 0 : 1) << "call " << k;
    free_all(pool);
  }
}

TEST(PoolFaultTest, RefusalsFromTheKthCallOnLeaveThePoolAsItWas) {
  for (std::size_t k = 1;; ++k) {
    FakeSegmentSource source;
    Pool pool(source);
    source.fail_from(k);
    const int refused = request_all(pool);
    EXPECT_EQ(pool.statistics().num_ooms, static_cast<std::size_t>(refused));
    free_all(pool);
    if (refused == 0) break;
  }
}

TEST(PoolFaultTest, ErrorsOtherThanOutOfMemoryPassThroughAtOnce) {
  class BrokenSource : public SegmentSource {
   public:
    void* allocate(std::size_t, StreamId) override {
      ++calls;
      throw DeviceError(999, "the device is gone");
    }
    void free(void*, std::size_t, StreamId) noexcept override {}
    int calls = 0;
  } source;
  Pool pool(source);

  EXPECT_THROW(pool.allocate(512), DeviceError);

  EXPECT_EQ(source.calls, 1);
  EXPECT_EQ(pool.statistics().num_ooms, 0u);
  pool.validate();
}

// Makes the k-th host allocation in `operation` fail, for every k, and calls `unchanged` each time.
// Returns the number of failures before it succeeded.
int fail_every_host_allocation(const std::function<void()>& operation,
                               const std::function<void()>& expect_unchanged) {
  for (int k = 0;; ++k) {
    limit_host_allocations(k);
    try {
      operation();
      lift_host_allocation_limit();
      return k;
    } catch (const std::bad_alloc&) {
      lift_host_allocation_limit();
      expect_unchanged();
    }
  }
}

class PoolHostMemoryTest : public testing::Test {
 protected:
  PoolHostMemoryTest() {
    for (const std::size_t bytes : kRequests)
      pool_.allocate(bytes);
    checkpoint_ = pool_.checkpoint();
    free_all(pool_);
    pool_.allocate(100);
    pool_.allocate(12 * kMiB);
    before_ = pool_.checkpoint();
    statistics_ = pool_.statistics();
  }
  ~PoolHostMemoryTest() override { free_all(pool_); }

  void expect_unchanged() {
    pool_.validate();
    const PoolStatistics statistics = pool_.statistics();
    EXPECT_EQ(statistics.allocated_bytes, statistics_.allocated_bytes);
    EXPECT_EQ(statistics.reserved_bytes, statistics_.reserved_bytes);
    EXPECT_EQ(pool_.checkpoint(), before_);
    EXPECT_EQ(pool_.segments(), source_.held());
  }

  FakeSegmentSource source_;
  Pool pool_{source_};
  PoolCheckpoint checkpoint_;
  PoolCheckpoint before_;
  PoolStatistics statistics_;
};

TEST_F(PoolHostMemoryTest, AFailedRestoreLeavesThePoolAsItWas) {
  const int failures = fail_every_host_allocation([&] { pool_.restore(checkpoint_, kAllMayDie); },
                                                  [&] { expect_unchanged(); });

  EXPECT_GT(failures, 5);
  EXPECT_EQ(pool_.live(), checkpoint_.live());
}

TEST_F(PoolHostMemoryTest, AFailedRestoreOfLiveRangesLeavesThePoolAsItWas) {
  const std::vector<Range> live = checkpoint_.live();

  const int failures =
      fail_every_host_allocation([&] { pool_.restore_live(live); }, [&] { expect_unchanged(); });

  EXPECT_GT(failures, 5);
  EXPECT_EQ(pool_.live(), live);
}

TEST_F(PoolHostMemoryTest, AFailedAllocationLeavesThePoolAsItWas) {
  for (const std::size_t bytes : {100 * kMiB, 100 * kMiB + 512}) {
    before_ = pool_.checkpoint();
    statistics_ = pool_.statistics();
    const int failures =
        fail_every_host_allocation([&] { pool_.allocate(bytes); }, [&] { expect_unchanged(); });
    EXPECT_GT(failures, 0) << bytes;
  }
}

TEST_F(PoolHostMemoryTest, AFailureToMakeRoomForMoreBlocksLeavesThePoolAsItWas) {
  int failures = 0;
  for (int i = 0; i < 1000; ++i) {
    before_ = pool_.checkpoint();
    statistics_ = pool_.statistics();
    failures +=
        fail_every_host_allocation([&] { pool_.allocate(512); }, [&] { expect_unchanged(); });
  }
  EXPECT_GT(failures, 3);
}

TEST_F(PoolHostMemoryTest, AHitAndAFreeTakeNoHostMemory) {
  const std::size_t asked = source_.asked().size();
  std::vector<void*> blocks(3);

  limit_host_allocations(0);
  for (int i = 0; i < 1000; ++i) {
    for (std::size_t k = 0; k < blocks.size(); ++k)
      blocks[k] = pool_.allocate(512 << k);
    for (void* const block : blocks)
      pool_.free(block);
  }
  lift_host_allocation_limit();

  EXPECT_EQ(source_.asked().size(), asked);
}

TEST_F(PoolHostMemoryTest, AFailedCheckpointLeavesThePoolAsItWas) {
  pool_.allocate(512);
  const std::vector<Range> live = pool_.live();

  const int failures =
      fail_every_host_allocation([&] { pool_.checkpoint(); }, [&] { pool_.validate(); });

  EXPECT_GT(failures, 1);
  EXPECT_EQ(pool_.checkpoint().live(), live);
}

TEST(SegmentCacheFaultTest, AFailedAllocationLosesNoSegment) {
  FakeSegmentSource upstream;
  SegmentCache cache(upstream);
  void* segment = nullptr;

  const int failures = fail_every_host_allocation(
      [&] { segment = cache.allocate(2 * kMiB, 0); },
      [&] { EXPECT_EQ(cache.statistics().bytes_in_use, upstream.held().size() * 2 * kMiB); });

  EXPECT_GT(failures, 0);
  cache.free(segment, 2 * kMiB, 0);
}

}  // namespace
}  // namespace cgtree
