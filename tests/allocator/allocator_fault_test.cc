// A pool over a cache is unchanged after a failed host allocation, also while a capture is open.
#include <gtest/gtest.h>

#include <new>
#include <vector>

#include "base/error.h"
#include "tests/allocator/account_pool.h"
#include "tests/allocator/fake_device.h"
#include "tests/allocator/host_allocation_limit.h"

namespace cgtree {
namespace {

constexpr StreamId kStream = 7;
constexpr std::size_t kMiB = std::size_t{1} << 20;

class AllocatorFaultTest : public testing::Test {
 protected:
  // Makes the call with room for 0, 1, 2, ... host allocations until it succeeds. Returns the
  // number of failures. After each failure the pool has the same segments.
  template <typename Call>
  int until_it_succeeds(Call call) {
    const std::vector<Range> before = pool_.segments();
    for (int failures = 0;; ++failures) {
      limit_host_allocations(failures);
      try {
        call();
        lift_host_allocation_limit();
        return failures;
      } catch (const std::exception&) {
        lift_host_allocation_limit();
      }
      EXPECT_EQ(pool_.segments(), before) << failures << " host allocations";
      pool_.validate();
    }
  }

  FakeDevice device_;
  SegmentCache cache_{device_, nullptr, &device_};
  AccountPool own_{cache_, cache_.own_account(), {.growth = Growth::kInPlace, .stream = kStream}};
  Pool& pool_ = own_.pool;
};

TEST_F(AllocatorFaultTest, ASegmentGrowsWhileACaptureIsOpenOrStaysAsItWas) {
  void* const block = pool_.allocate(30 * kMiB);
  void* added = nullptr;
  {
    const DeferredFrees capture = cache_.defer_frees();
    EXPECT_GT(until_it_succeeds([&] { added = pool_.allocate(4 * kMiB); }), 0);
  }

  EXPECT_EQ(device_.bytes_held(), 34 * kMiB);
  pool_.free(added);
  pool_.free(block);
}

TEST_F(AllocatorFaultTest, ASegmentThatCannotBeShrunkForWantOfHostMemoryStaysAsItWas) {
  void* const block = pool_.allocate(kMiB);
  for (int left = 0;; ++left) {
    pool_.free(pool_.allocate(20 * kMiB));
    limit_host_allocations(left);
    (void)pool_.give_back_unused();
    const bool was_refused = host_allocations_refused() > 0;
    lift_host_allocation_limit();
    pool_.validate();
    EXPECT_EQ(device_.bytes_held(), pool_.segments()[0].bytes);
    if (!was_refused) break;
  }

  EXPECT_EQ(device_.bytes_held(), kMiB);
  pool_.free(block);
}

}  // namespace
}  // namespace cgtree
