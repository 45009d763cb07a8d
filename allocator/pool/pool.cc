// Allocates, frees, restores and reports the blocks of a pool, under its lock.
#include "allocator/pool/pool.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "allocator/pool/block.h"
#include "base/check.h"
#include "base/error.h"
#include "base/format.h"
#include "base/log_event.h"

namespace cgtree {
namespace {

std::vector<std::uintptr_t> sorted_addresses(std::span<void* const> pointers) {
  std::vector<std::uintptr_t> addresses;
  addresses.reserve(pointers.size());
  for (void* const pointer : pointers)
    addresses.push_back(reinterpret_cast<std::uintptr_t>(pointer));
  if (!std::is_sorted(addresses.begin(), addresses.end())) {
    std::sort(addresses.begin(), addresses.end());
  }
  return addresses;
}

// Throws for the first difference. Requires: both are sorted.
[[noreturn]] void refuse_declaration(const std::vector<std::uintptr_t>& died,
                                     const std::vector<std::uintptr_t>& declared,
                                     const Layout& layout, const std::string& pool) {
  const auto again = std::adjacent_find(declared.begin(), declared.end());
  if (again != declared.end()) {
    throw InvalidArgument(
        str_format("restore of pool '{}': {:#x} is declared to die twice", pool, *again));
  }
  std::vector<std::uintptr_t> missing;
  std::set_difference(died.begin(), died.end(), declared.begin(), declared.end(),
                      std::back_inserter(missing));
  if (!missing.empty()) {
    throw InvalidArgument(str_format(
        "restore of pool '{}' would end {} live block(s) not declared to die, the first at {}; "
        "declare every block that its holder has let go, free it, or say kAllMayDie",
        pool, missing.size(), layout.describe(missing.front())));
  }
  const std::uintptr_t extra =
      *std::find_if(declared.begin(), declared.end(), [&](std::uintptr_t address) {
        return !std::binary_search(died.begin(), died.end(), address);
      });
  throw InvalidArgument(
      str_format("restore of pool '{}': declared to die, but would not: {}; declare the addresses "
                 "of live blocks that the checkpoint does not have, and no others",
                 pool, layout.describe(extra)));
}

void expect_declared(const std::vector<Range>& died, std::span<void* const> dying,
                     const Layout& layout, const std::string& pool) {
  const std::vector<std::uintptr_t> declared = sorted_addresses(dying);
  const auto is_start = [](const Range& range, std::uintptr_t address) {
    return range.address == address;
  };
  if (std::equal(died.begin(), died.end(), declared.begin(), declared.end(), is_start)) return;
  std::vector<std::uintptr_t> starts;
  for (const Range& range : died)
    starts.push_back(range.address);
  refuse_declaration(starts, declared, layout, pool);
}

Layout::Fit fit_of(const PoolOptions& options) {
  if (options.growth == Growth::kInPlace) return Layout::Fit::kEndLast;
  return options.small_apart ? Layout::Fit::kSmallApart : Layout::Fit::kBest;
}

}  // namespace

Pool::Pool(SegmentSource& source, PoolOptions options)
    : source_(source),
      options_(std::move(options)),
      caches_(options_.thread_caching == ThreadCaching::kNever || options_.make_caches == nullptr
                  ? nullptr
                  : options_.make_caches(*this)),
      has_caches_(caches_ != nullptr && options_.thread_caching == ThreadCaching::kAlways),
      layout_(fit_of(options_)) {
  if (options_.thread_caching == ThreadCaching::kAlways && caches_ == nullptr) {
    throw InvalidArgument(
        str_format("pool '{}' is to have threads keep blocks always: give PoolOptions::make_caches",
                   options_.name));
  }
  if (options_.small_apart && options_.growth != Growth::kFast) {
    throw InvalidArgument(str_format(
        "pool '{}' serves small requests apart, which needs segments of two sizes: choose "
        "Growth::kFast",
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
    bool marks = false;
    if (has_caches()) [[unlikely]] {
      if (void* const block = caches_->allocate(bytes, marks)) return block;
    }
    const Turn turn(*this);
    if (void* const block = take(bytes, marks)) return block;
  }
  return allocate_slowly(bytes);
}

// Returns a free block that holds the request, or null; marks the block if threads may keep it.
// Requires: the lock is held.
template <bool kAnywhere>
void* Pool::take(std::size_t requested, bool marks) {
  const std::size_t bytes = block_bytes(requested);
  const BlockNode* const node =
      kAnywhere ? layout_.allocate_anywhere(bytes, requested) : layout_.allocate(bytes, requested);
  if (node == nullptr) return nullptr;
  const Range& range = node->block.range;
  if (has_pages()) [[unlikely]] {
    const std::size_t offset = range.address - node->segment->range().address;
    if (node->segment->pages.missing({offset, range.bytes}) > 0) {
      layout_.free(range.address);
      return nullptr;
    }
  }
  tallies_.blocks_began({1, range.bytes, requested});
  void* const address = reinterpret_cast<void*>(range.address);
  // Blocks in other segments are few per page of words, which would not fit processors' caches.
  if (marks && node->segment->is_small) [[unlikely]] {
    caches_->mark(address, range.bytes, requested);
  }
  return address;
}

template void* Pool::take<false>(std::size_t, bool);
template void* Pool::take<true>(std::size_t, bool);

void Pool::free(void* address) {
  if (has_caches()) [[unlikely]] {
    const PoolCaches::Freed freed = caches_->free(address);
    if (freed == PoolCaches::Freed::kKept) return;
    if (freed == PoolCaches::Freed::kMarked) {
      return try_free_marked(address) ? void() : refuse_free(address);
    }
  }
  {
    const Turn turn(*this);
    // If the block is freed twice, another thread may have got and marked it since.
    const bool is_marked = has_caches() && caches_->find_marked(address) != nullptr;
    const Block freed =
        is_marked ? Block() : layout_.free(reinterpret_cast<std::uintptr_t>(address));
    if (freed.is_live()) [[likely]] {
      tallies_.blocks_ended({1, freed.range.bytes, freed.requested});
      return;
    }
  }
  refuse_free(address);
}

// A separate function, so that the code of successful calls stays small.
[[gnu::cold, gnu::noinline]] void Pool::refuse_address(const char* call, void* address) const {
  expect_open();
  throw InvalidArgument(str_format(
      "pool '{}' cannot {} {}; give what allocate() returned, once to free(), and in the "
      "pool it came from",
      options_.name, call, layout_.describe(reinterpret_cast<std::uintptr_t>(address))));
}

void Pool::expect_live(void* address) const {
  const BlockMark mark = mark_of({{reinterpret_cast<std::uintptr_t>(address), 0}});
  if (mark.state() == BlockMark::State::kLive) return;
  if (mark.state() == BlockMark::State::kCached) empty_caches();
  const std::lock_guard lock(mutex_);
  if (!layout_.is_live(reinterpret_cast<std::uintptr_t>(address))) refuse_address("use", address);
}

void Pool::expect_open() const {
  if (!is_closed_) return;
  throw InvalidArgument(str_format(
      "pool '{}' is closed and has given all its memory back; close() it after its last use",
      options_.name));
}

void Pool::expect_restorable() const {
  if (has_pages()) {
    throw InvalidArgument(
        str_format("pool '{}' gives the memory of free pages back, so that a layout cannot be "
                   "restored; choose another Growth",
                   options_.name));
  }
  if (caches_ != nullptr) {
    throw InvalidArgument(
        str_format("threads may cache blocks of pool '{}', so that a layout cannot be restored; "
                   "choose ThreadCaching::kNever",
                   options_.name));
  }
}

std::size_t Pool::trim() {
  if (grows_in_place()) return give_back_unused();
  return trim(std::span<const Range>());
}

std::size_t Pool::trim(std::span<const Range> kept) noexcept {
  empty_caches();
  Layout::SegmentMap given_back;  // destroyed, and so given back, without the lock
  const std::lock_guard lock(mutex_);
  const std::size_t before = tallies_.reserved_bytes();
  given_back = layout_.extract_free_segments(kept);
  count_given_back(given_back);
  return before - tallies_.reserved_bytes();
}

std::size_t Pool::give_back_unused() noexcept {
  empty_caches();
  Layout::SegmentMap given_back;  // destroyed, and so given back, without the lock
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    const std::size_t before = tallies_.reserved_bytes();
    given_back = layout_.extract_unpinned_segments();
    count_given_back(given_back);
    bytes = before - tallies_.reserved_bytes();
  }
  if (has_pages()) return bytes + unmap(SIZE_MAX);
  return grows_in_place() ? bytes + shrink() : bytes;
}

// Gives free ends of segments back; returns their bytes.
std::size_t Pool::shrink() noexcept {
  std::size_t bytes = 0;
  for (std::uintptr_t from = 0;;) {
    Layout::Shrink shrink;
    {
      const std::lock_guard lock(mutex_);
      shrink = layout_.begin_shrink(from);
      if (shrink.segment == nullptr) return bytes;
      from = shrink.segment->range().address + 1;
      tallies_.segments_ended({.bytes = shrink.before - shrink.segment->range().bytes});
    }
    Segment& segment = *shrink.segment;
    const std::size_t stays = segment.shrink(shrink.before, segment.range().bytes);
    const std::lock_guard lock(mutex_);
    tallies_.segments_began({.bytes = stays - segment.range().bytes});
    layout_.end_resize(segment, stays);
    resized_.notify_all();
    bytes += shrink.before - stays;
    if (stays < shrink.before) ++tallies_.events.num_device_free;
  }
}

void Pool::close() noexcept {
  const std::lock_guard turn(growth_mutex_);
  const Flow flow = caches_ == nullptr ? Flow() : caches_->close();
  Layout::SegmentMap given_back;
  {
    std::unique_lock lock(mutex_);
    if (std::exchange(is_closed_, true)) return;
    resized_.wait(lock, [this] { return !layout_.is_resizing(); });
    const Amount live = tallies_.live();
    if (live.count > 0) {
      log_event(LogLevel::kError, "pool_closed_with_live_blocks pool={} blocks={} bytes={}",
                options_.name, live.count, live.bytes);
    }
    given_back = layout_.extract_all_segments();
    count_given_back(given_back);
    tallies_.blocks_ended(live);
    flow_ += flow;
    flow_.ended = flow_.began;
  }
  given_back.clear();
  // Detaches last, so that the source always knows the user of each segment. Until then it may
  // still ask this pool, which has nothing to give.
  source_.detach(*this);
}

void Pool::count_given_back(const Layout::SegmentMap& segments) noexcept {
  for (const auto& [address, segment] : segments) {
    tallies_.segments_ended({.count = 1, .bytes = segment.reserved_bytes()});
    ++tallies_.events.num_device_free;
  }
}

PoolCheckpoint Pool::checkpoint() const {
  expect_restorable();
  const std::lock_guard lock(mutex_);
  PoolCheckpoint checkpoint = layout_.checkpoint();
  ++tallies_.events.checkpoints_taken;
  return checkpoint;
}

PoolDelta Pool::restore(const PoolCheckpoint& checkpoint, std::span<void* const> dying) {
  const std::lock_guard lock(mutex_);
  expect_open();
  Transition transition = layout_.transition_to(checkpoint);
  expect_declared(transition.delta.died, dying, layout_, options_.name);
  return apply(std::move(transition));
}

PoolDelta Pool::restore(const PoolCheckpoint& checkpoint, AllMayDie) {
  const std::lock_guard lock(mutex_);
  expect_open();
  return apply(layout_.transition_to(checkpoint));
}

PoolDelta Pool::restore_live(std::span<const Range> live) {
  expect_restorable();
  const std::lock_guard lock(mutex_);
  expect_open();
  return apply(layout_.transition_to(live));
}

// Does not throw: the transition was computed before.
PoolDelta Pool::apply(Transition transition) {
  layout_.apply(transition);
  // The blocks that end come first, so that the peaks do not count blocks that were never live
  // together.
  tallies_.blocks_ended(transition.amount_ended);
  tallies_.blocks_began(transition.amount_began);
  ++tallies_.events.restores;
  tallies_.events.segments_touched += transition.changes.size();
  return std::move(transition.delta);
}

std::vector<Range> Pool::live() const {
  const PoolCaches::Held held(caches_.get());
  const std::lock_guard lock(mutex_);
  std::vector<Range> ranges;
  ranges.reserve(layout_.live_blocks());
  for (const auto& [base, segment] : layout_.segments()) {
    for (const Block& block : layout_.blocks(segment)) {
      const bool is_cached = mark_of(block).state() == BlockMark::State::kCached;
      if (block.is_live() && !is_cached) ranges.push_back(block.range);
    }
  }
  return ranges;
}

std::vector<Range> Pool::segments() const {
  const std::lock_guard lock(mutex_);
  std::vector<Range> ranges;
  ranges.reserve(layout_.segments().size());
  for (const auto& [base, segment] : layout_.segments())
    ranges.push_back(segment.range());
  return ranges;
}

bool Pool::owns(const void* address) const {
  const std::lock_guard lock(mutex_);
  return layout_.find(reinterpret_cast<std::uintptr_t>(address)) != nullptr;
}

PoolUse Pool::use() const {
  const PoolCaches::Held held(caches_.get());
  const std::lock_guard lock(mutex_);
  return present_use(held);
}

PoolUse Pool::present_use(const PoolCaches::Held& held) const {
  const PoolStatistics now = present_statistics(held);
  return {options_.name, now.reserved_bytes.current, now.allocated_bytes.current,
          now.largest_free_block};
}

PoolStatistics Pool::statistics() const {
  const PoolCaches::Held held(caches_.get());
  const std::lock_guard lock(mutex_);
  return present_statistics(held);
}

std::size_t Pool::largest_free_block() const {
  const std::lock_guard lock(mutex_);
  return layout_.largest_free_block();
}

PoolStatistics Pool::present_statistics(const PoolCaches::Held& held) const {
  PoolStatistics statistics = tallies_.statistics();
  if (has_caches()) {
    Flow flow = held.flow();
    add_to(statistics, flow += flow_);
  }
  statistics.largest_free_block = layout_.largest_free_block();
  return statistics;
}

void Pool::validate() const {
  const PoolCaches::Held held(caches_.get());
  const std::lock_guard lock(mutex_);
  layout_.validate();

  const PoolStatistics counted = tallies_.statistics();
  PoolCounters sum;  // over the layout
  for (const auto& [base, segment] : layout_.segments()) {
    sum.segment.current += 1;
    sum.reserved_bytes.current += segment.reserved_bytes();
    for (const Block& block : layout_.blocks(segment)) {
      if (!block.is_live()) continue;
      sum.allocation.current += 1;
      sum.allocated_bytes.current += block.range.bytes;
      sum.requested_bytes.current += block.requested;
    }
  }
#define CGTREE_VALIDATE(name)                                                        \
  CGTREE_CHECK(counted.name.current == sum.name.current);                            \
  CGTREE_CHECK(counted.name.current <= counted.name.peak);                           \
  CGTREE_CHECK(counted.name.allocated - counted.name.freed == counted.name.current); \
  CGTREE_CHECK(counted.name.allocated >= counted.name.current);
  CGTREE_POOL_COUNTERS(CGTREE_VALIDATE)
#undef CGTREE_VALIDATE
  if (caches_ != nullptr) validate_marks(held);
}

}  // namespace cgtree
