// Hands out addresses of an unused address range.
#include "tests/support/made_up_segment_source.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/error.h"

namespace cgtree {

void* MadeUpSegmentSource::allocate(std::size_t bytes, StreamId) {
  const std::lock_guard lock(mutex_);
  if (bytes > capacity_ - bytes_) {
    throw OutOfMemory(fmt::format("the simulated device has {} of {} bytes left, not {}",
                                  capacity_ - bytes_, capacity_, bytes));
  }
  const auto again = freed_.lower_bound({bytes, 0});
  std::uintptr_t address = end_;
  if (again != freed_.end() && again->first == bytes) {
    address = again->second;
    freed_.erase(again);
  } else {
    end_ += bytes;
  }
  held_.emplace(address, bytes);
  bytes_ += bytes;
  return reinterpret_cast<void*>(address);
}

void MadeUpSegmentSource::free(void* segment, std::size_t bytes, StreamId) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(reinterpret_cast<std::uintptr_t>(segment));
  CGTREE_CHECK(found != held_.end() && found->second == bytes);
  held_.erase(found);
  freed_.emplace(bytes, reinterpret_cast<std::uintptr_t>(segment));
  bytes_ -= bytes;
}

}  // namespace cgtree
