// Locks and counts a layout.
#include "allocator/pool/pool.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "allocator/pool/sizes.h"
#include "base/error.h"

namespace cgtree {
Pool::Pool(SegmentSource& source, PoolOptions options)
    : source_(source), options_(std::move(options)), layout_(options_.splits) {
  if (grows_in_place() && !options_.splits) {
    throw InvalidArgument(
        fmt::format("pool '{}' grows in place and does not split: a segment that is one block "
                    "cannot grow for another; choose one of the two",
                    options_.name));
  }
  source_.attach(*this);
}

Pool::~Pool() {
  close();
}

void* Pool::allocate(std::size_t bytes) {
  const bool can_be_rounded = bytes - 1 < kLargestRequest;
  if (can_be_rounded) [[likely]] {
    const std::lock_guard lock(mutex_);
    if (void* const block = take(bytes)) return block;
  }
  return allocate_slowly(bytes);
}

// A block of what is there, null when none holds the request. Requires the lock.
void* Pool::take(std::size_t requested) {
  const BlockNode* const node = layout_.allocate(block_bytes(requested), requested);
  if (node == nullptr) return nullptr;
  const Range& range = node->block.range;
  tallies_.blocks_began(node->segment->is_small, {1, range.bytes, requested});
  void* const address = reinterpret_cast<void*>(range.address);
  if (observer_ != nullptr) [[unlikely]] {
    observer_->allocated(address, requested);
  }
  return address;
}

void Pool::free(void* address) {
  const std::lock_guard lock(mutex_);
  const auto [freed, is_small] = layout_.free(reinterpret_cast<std::uintptr_t>(address));
  if (!freed.is_live()) [[unlikely]] {
    refuse_free(address);
  }
  tallies_.blocks_ended(is_small, {1, freed.range.bytes, freed.requested});
  if (observer_ != nullptr) [[unlikely]] {
    observer_->freed(address, freed.requested);
  }
}

// Out of the way of those that are right.
[[gnu::cold, gnu::noinline]] void Pool::refuse_free(void* address) const {
  expect_open();
  throw InvalidArgument(
      fmt::format("pool '{}' cannot free {}; free what allocate() returned, once, in the pool it "
                  "came from",
                  options_.name, layout_.describe(reinterpret_cast<std::uintptr_t>(address))));
}

void Pool::expect_open() const {
  if (!is_closed_) return;
  throw InvalidArgument(fmt::format(
      "pool '{}' is closed and has given all its memory back; close() it after its last use",
      options_.name));
}

void Pool::set_observer(PoolObserver* observer) noexcept {
  const std::lock_guard lock(mutex_);
  observer_ = observer;
}

void Pool::reset_peak_statistics() {
  const std::lock_guard lock(mutex_);
  tallies_.reset_peaks();
}

void Pool::reset_total_statistics() {
  const std::lock_guard lock(mutex_);
  tallies_.reset_totals();
}

}  // namespace cgtree
