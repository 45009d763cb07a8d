// Locks, counts and grows a layout.
#include "allocator/pool.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

#include "allocator/sizes.h"
#include "base/error.h"
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
}

Pool::~Pool() {
  if (statistics_.allocation.current == 0) return;
  log_event(LogLevel::kError, "pool_destroyed_with_live_blocks pool={} blocks={} bytes={}",
            options_.name, statistics_.allocation.current, statistics_.allocated_bytes.current);
}

void* Pool::allocate(std::size_t bytes) {
  if (bytes == 0) {
    throw InvalidArgument(
        fmt::format("0 bytes asked of pool '{}'; an empty tensor needs no memory", options_.name));
  }
  const std::lock_guard lock(mutex_);
  // A request that cannot be rounded is refused by grow().
  const std::size_t rounded = bytes > kLargestRequest ? bytes : block_bytes(bytes);
  std::optional<Range> block = layout_.allocate(rounded, bytes);
  if (!block) block = grow(bytes);
  statistics_.allocated_bytes.increase(rounded);
  statistics_.requested_bytes.increase(bytes);
  statistics_.allocation.increase(1);
  void* const address = reinterpret_cast<void*>(block->address);
  if (observer_ != nullptr) [[unlikely]] {
    observer_->allocated(address, bytes);
  }
  return address;
}

// The block of `requested` bytes that becomes live in a new segment.
Range Pool::grow(std::size_t requested) {
  std::string reason = "the size cannot be rounded";
  if (requested <= kLargestRequest) {
    std::optional<Range> block = try_new_segment(requested, reason);
    if (!block && is_compact() && give_back_unpinned(SIZE_MAX) > 0) {
      block = try_new_segment(requested, reason);
    }
    if (block) return *block;
  }
  ++statistics_.num_ooms;
  if (observer_ != nullptr) observer_->refused(requested);
  throw OutOfMemory(fmt::format(
      "pool '{}' has no room for {} bytes: reserved {}, live {}, largest free block {}; {}; drop "
      "tensors, trim() other pools or allow more",
      options_.name, requested, statistics_.reserved_bytes.current,
      statistics_.allocated_bytes.current, layout_.largest_free_block(), reason));
}

// Nothing, with the reason, when both a segment of the usual size and one of just the block's are
// refused.
std::optional<Range> Pool::try_new_segment(std::size_t requested, std::string& reason) {
  const std::size_t rounded = block_bytes(requested);
  const std::size_t usual = is_compact() ? compact_segment_bytes(rounded) : segment_bytes(rounded);
  for (const std::size_t bytes : {usual, rounded}) {
    try {
      return allocate_in_new_segment(bytes, requested);
    } catch (const OutOfMemory& error) {
      reason = error.message();
    }
    if (usual == rounded) break;
  }
  return std::nullopt;
}

Range Pool::allocate_in_new_segment(std::size_t bytes, std::size_t requested) {
  const Counter& reserved = statistics_.reserved_bytes;
  const std::size_t room = reserved.peak - reserved.current;
  if (is_compact() && bytes > room) give_back_unpinned(bytes - room);
  if (bytes > options_.max_bytes - statistics_.reserved_bytes.current) {
    throw OutOfMemory(fmt::format("a segment of {} bytes would exceed the pool's limit of {}",
                                  bytes, options_.max_bytes));
  }
  Segment segment(source_, bytes, options_.stream);
  const Range block = layout_.add(std::move(segment), block_bytes(requested), requested);
  statistics_.segment.increase(1);
  statistics_.reserved_bytes.increase(bytes);
  return block;
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

std::size_t Pool::give_back_unpinned(std::size_t enough) noexcept {
  const std::size_t before = statistics_.reserved_bytes.current;
  count_given_back(layout_.extract_unpinned_segments(enough));
  return before - statistics_.reserved_bytes.current;
}

void Pool::count_given_back(const Layout::SegmentMap& segments) noexcept {
  for (const auto& [address, segment] : segments) {
    statistics_.segment.decrease(1);
    statistics_.reserved_bytes.decrease(segment.range().bytes);
  }
}

std::size_t Pool::trim() {
  Layout::SegmentMap given_back;  // destroyed, and so given back, without the lock
  const std::lock_guard lock(mutex_);
  const std::size_t before = statistics_.reserved_bytes.current;
  given_back = layout_.extract_free_segments();
  count_given_back(given_back);
  return before - statistics_.reserved_bytes.current;
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
