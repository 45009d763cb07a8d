// Hands out made-up addresses.
#include "tests/allocator/fake_segment_source.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "base/error.h"

namespace cgtree {

FakeSegmentSource::~FakeSegmentSource() {
  EXPECT_TRUE(held_.empty()) << held_.size() << " segments were never given back";
}

void* FakeSegmentSource::allocate(std::size_t bytes, StreamId) {
  const std::lock_guard lock(mutex_);
  asked_.push_back(bytes);
  const bool injected = asked_.size() >= fail_first_ && asked_.size() <= fail_last_;
  if (injected || bytes > largest_ || bytes > capacity_ - bytes_) {
    throw OutOfMemory(fmt::format("the fake device refuses {} bytes", bytes));
  }
  std::uintptr_t address = std::uintptr_t{1} << 40;
  for (const auto& [start, size] : held_) {
    if (start - address >= bytes) break;
    address = start + size;
  }
  held_.emplace(address, bytes);
  bytes_ += bytes;
  return reinterpret_cast<void*>(address);
}

void FakeSegmentSource::free(void* segment, std::size_t bytes, StreamId) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(reinterpret_cast<std::uintptr_t>(segment));
  CGTREE_CHECK(found != held_.end() && found->second == bytes);
  held_.erase(found);
  bytes_ -= bytes;
}

std::vector<Range> FakeSegmentSource::held() const {
  const std::lock_guard lock(mutex_);
  std::vector<Range> ranges;
  for (const auto& [address, bytes] : held_)
    ranges.push_back({address, bytes});
  return ranges;
}

}  // namespace cgtree
