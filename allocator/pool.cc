// Locks and counts a layout.
#include "allocator/pool.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "allocator/sizes.h"
#include "base/log.h"

namespace cgtree {
namespace {

std::size_t sum_of(const std::vector<Range>& ranges) {
  std::size_t bytes = 0;
  for (const Range& range : ranges)
    bytes += range.bytes;
  return bytes;
}

}  // namespace

Pool::Pool(SegmentSource& source, PoolOptions options)
    : source_(source), options_(std::move(options)) {
  source_.attach(*this);
}

// The source may ask this pool until it is detached, and finds it whole: the members end later.
Pool::~Pool() {
  source_.detach(*this);
  if (statistics_.allocation.current == 0) return;
  log_event(LogLevel::kError, "pool_destroyed_with_live_blocks pool={} blocks={} bytes={}",
            options_.name, statistics_.allocation.current, statistics_.allocated_bytes.current);
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
  const std::optional<Range> block = layout_.allocate(block_bytes(requested), requested);
  if (!block) return nullptr;
  statistics_.allocated_bytes.increase(block->bytes);
  statistics_.requested_bytes.increase(requested);
  statistics_.allocation.increase(1);
  void* const address = reinterpret_cast<void*>(block->address);
  if (observer_ != nullptr) [[unlikely]] {
    observer_->allocated(address, requested);
  }
  return address;
}

void Pool::free(void* address) noexcept {
  const std::lock_guard lock(mutex_);
  const Block freed = layout_.free(reinterpret_cast<std::uintptr_t>(address));
  statistics_.allocated_bytes.decrease(freed.range.bytes);
  statistics_.requested_bytes.decrease(freed.requested);
  statistics_.allocation.decrease(1);
  if (observer_ != nullptr) [[unlikely]] {
    observer_->freed(address, freed.requested);
  }
}

PoolCheckpoint Pool::checkpoint() const {
  const std::lock_guard lock(mutex_);
  PoolCheckpoint checkpoint = layout_.checkpoint();
  ++statistics_.checkpoints_taken;
  return checkpoint;
}

PoolDelta Pool::restore(const PoolCheckpoint& checkpoint) {
  const std::lock_guard lock(mutex_);
  return apply(layout_.transition_to(checkpoint, observer_ != nullptr));
}

PoolDelta Pool::restore_live(std::span<const Range> live) {
  const std::lock_guard lock(mutex_);
  return apply(layout_.transition_to(live, observer_ != nullptr));
}

// Nothing in here throws: the transition was worked out before.
PoolDelta Pool::apply(Transition transition) {
  layout_.apply(transition);
  const PoolDelta& delta = transition.delta;
  // What ends comes first: the peak must not count what never was there together.
  statistics_.allocated_bytes.decrease(sum_of(delta.died));
  statistics_.allocated_bytes.increase(sum_of(delta.became_live));
  statistics_.requested_bytes.decrease(transition.requested_ended);
  statistics_.requested_bytes.increase(transition.requested_began);
  statistics_.allocation.decrease(delta.died.size());
  statistics_.allocation.increase(delta.became_live.size());
  ++statistics_.restores;
  if (observer_ != nullptr) tell(transition);
  return std::move(transition.delta);
}

void Pool::tell(const Transition& transition) noexcept {
  for (const Block& block : transition.ended)
    observer_->freed(reinterpret_cast<void*>(block.range.address), block.requested);
  for (const Block& block : transition.began)
    observer_->allocated(reinterpret_cast<void*>(block.range.address), block.requested);
}

void Pool::set_observer(PoolObserver* observer) noexcept {
  const std::lock_guard lock(mutex_);
  observer_ = observer;
}

void Pool::reset_peak_statistics() {
  const std::lock_guard lock(mutex_);
  statistics_.reset_peaks();
}

void Pool::reset_total_statistics() {
  const std::lock_guard lock(mutex_);
  statistics_.reset_totals();
}

}  // namespace cgtree
