// A full host heap leaves the pools of an allocator as they were, also while a capture is open.
#include <gtest/gtest.h>

#include <new>
#include <vector>

#include "tests/allocator/allocator_fixture.h"
#include "tests/allocator/host_allocation_limit.h"

namespace cgtree {
namespace {

constexpr StreamId kStream = 7;
constexpr std::size_t kGiB = std::size_t{1} << 30;

class AllocatorFaultTest : public testing::Test {
 protected:
  // Makes the call with room for ever more host allocations, until it succeeds; returns how often
  // it has failed. After each failure the pool has the segments that it had.
  template <typename Call>
  int until_it_succeeds(Pool& pool, Call call) {
    const std::vector<Range> before = pool.segments();
    for (int failures = 0;; ++failures) {
      limit_host_allocations(failures);
      try {
        call();
        lift_host_allocation_limit();
        return failures;
      } catch (const std::exception&) {
        lift_host_allocation_limit();
      }
      EXPECT_EQ(pool.segments(), before) << failures << " host allocations";
      pool.validate();
    }
  }

  FakeDevice device_;
  SegmentCache cache_{device_, nullptr, &device_};
  CachingAllocator allocator_{cache_};
};

// The map of addresses needs a new leaf: one is for 16 GiB.
TEST_F(AllocatorFaultTest, ASegmentGrowsWhileACaptureIsOpenOrStaysAsItWas) {
  PoolHandle handle = allocator_.make_pool({.pool = {.growth = Growth::kInPlace}});
  Pool& pool = handle.pool_on(kStream);
  void* const block = pool.allocate(16 * kGiB - 2 * kMiB);
  void* added = nullptr;
  {
    const DeferredFrees capture = cache_.defer_frees();
    EXPECT_GT(until_it_succeeds(pool, [&] { added = pool.allocate(4 * kMiB); }), 0);
  }

  EXPECT_EQ(device_.bytes_held(), 16 * kGiB + 2 * kMiB);
  allocator_.free(added);
  allocator_.free(block);
}

TEST_F(AllocatorFaultTest, ASegmentThatCannotBeShrunkForWantOfHostMemoryStaysAsItWas) {
  PoolHandle handle = allocator_.make_pool({.pool = {.growth = Growth::kInPlace}});
  Pool& pool = handle.pool_on(kStream);
  void* const block = pool.allocate(kMiB);
  for (int left = 0;; ++left) {
    pool.free(pool.allocate(20 * kMiB));
    limit_host_allocations(left);
    (void)pool.give_back_unused();
    const bool was_refused = host_allocations_refused() > 0;
    lift_host_allocation_limit();
    pool.validate();
    EXPECT_EQ(device_.bytes_held(), pool.segments()[0].bytes);
    if (!was_refused) break;
  }

  EXPECT_EQ(device_.bytes_held(), kMiB);
  allocator_.free(block);
}

}  // namespace
}  // namespace cgtree
