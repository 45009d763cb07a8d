// A caching allocator on a fake device.
#pragma once

#include <gtest/gtest.h>

#include "base/error.h"
#include "caching/caching_allocator.h"
#include "tests/allocator/fake_device.h"

namespace cgtree {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;

class AllocatorFixture : public testing::Test {
 protected:
  FakeDevice device_{100 * kMiB};
  Budget budget_{"device", 100 * kMiB};
  SegmentCache cache_{device_, &budget_, &device_};
  CachingAllocator allocator_{cache_};
};

}  // namespace cgtree
