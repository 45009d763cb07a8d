// How a pool gets segments and gives them back. The source is called without the pool's lock.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "allocator/pool/pool.h"
#include "allocator/pool/sizes.h"
#include "base/error.h"
#include "base/log.h"

namespace cgtree {
namespace {

void add_others(MemoryReport& report, const MemoryReport& from_source) {
  const PoolUse& self = report.pools.front();
  std::vector<PoolUse> others = from_source.pools;
  auto again = std::find(others.begin(), others.end(), self);
  if (again == others.end()) {  // asked at another moment
    again = std::find_if(others.begin(), others.end(),
                         [&](const PoolUse& use) { return use.name == self.name; });
  }
  if (again != others.end()) others.erase(again);
  report.pools.insert(report.pools.end(), others.begin(), others.end());
  report.capture_open = from_source.capture_open;
}

std::size_t usual_segment_bytes(const PoolOptions& options, std::size_t block) {
  if (!options.splits) return block;
  switch (options.growth) {
    case Growth::kFast:
      break;
    case Growth::kCompact:
      return compact_segment_bytes(block);
    case Growth::kInPlace:
      return round_up(block, kLargeRounding);
  }
  return segment_bytes(block);
}

std::string limit_reason(std::size_t bytes, std::size_t limit) {
  return fmt::format("a segment of {} bytes would exceed the pool's limit of {}", bytes, limit);
}

}  // namespace

struct Pool::Refusal {
  std::string reason;
  std::optional<MemoryReport> report;  // the source's
  bool is_refused = false;

  void note(const OutOfMemory& error) {
    is_refused = true;
    reason = error.message();
    if (error.report() != nullptr) report = *error.report();
  }
};

void* Pool::allocate_slowly(std::size_t requested) {
  if (requested == 0) {
    throw InvalidArgument(
        fmt::format("0 bytes asked of pool '{}'; an empty tensor needs no memory", options_.name));
  }
  Refusal refusal{.reason = "the size cannot be rounded"};
  if (requested <= kLargestRequest) {
    const std::lock_guard turn(growth_mutex_);
    {
      const std::lock_guard lock(mutex_);
      expect_open();
    }
    if (void* const block = grow(requested, refusal)) return block;
  }
  refuse(requested, refusal);
}

// Ends the growth whatever happens.
struct Pool::OpenGrowth {
  explicit OpenGrowth(Pool& owner) : pool(owner) {}
  ~OpenGrowth() {
    if (segment == nullptr) return;
    const std::lock_guard lock(pool.mutex_);
    const std::size_t before = segment->range().bytes;
    pool.layout_.end_growth(*segment, succeeded ? bytes : before);
    if (!succeeded) return;
    pool.tallies_.segments_began(segment->is_small, {.bytes = bytes - before});
    ++pool.tallies_.events.num_device_alloc;
  }

  Pool& pool;
  Segment* segment = nullptr;
  std::size_t bytes = 0;  // what it grows to
  bool succeeded = false;
};

// Null when the newest segment cannot be made larger.
void* Pool::try_growth(std::size_t requested, Refusal& refusal) {
  for (;;) {  // others may take what has been added
    OpenGrowth open(*this);
    {
      const std::lock_guard lock(mutex_);
      if (void* const block = take(requested)) return block;
      if (!begin_growth(open, block_bytes(requested), refusal)) return nullptr;
    }
    try {
      open.succeeded = open.segment->grow(open.bytes);
    } catch (const OutOfMemory& error) {
      refusal.note(error);
    }
    if (!open.succeeded) return nullptr;
  }
}

// Requires the lock.
bool Pool::begin_growth(OpenGrowth& open, std::size_t bytes, Refusal& refusal) {
  const std::optional<Layout::Growth> growth = layout_.growth_for(bytes);
  if (!growth) return false;
  const std::size_t left = options_.max_bytes - tallies_.reserved_bytes();
  const std::size_t room = left - left % kBlockAlignment;
  if (growth->missing > room) {
    refusal.reason = limit_reason(growth->missing, options_.max_bytes);
    return false;
  }
  Segment& segment = layout_.begin_growth(*growth);
  open.segment = &segment;
  open.bytes = segment.range().bytes + std::min(round_up(growth->missing, kLargeRounding), room);
  return true;
}

// Null, with the reason, when nothing helps.
void* Pool::grow(std::size_t requested, Refusal& refusal) {
  if (grows_in_place()) {
    if (void* const block = try_growth(requested, refusal)) return block;
  }
  if (void* const block = try_new_segment(requested, refusal)) return block;
  if (is_compact() && give_back_unpinned() > 0) {
    if (void* const block = try_new_segment(requested, refusal)) return block;
  }
  const std::lock_guard lock(mutex_);
  return take(requested);  // others may have freed something while the source was asked
}

// Null, with the reason, when both a segment of the usual size and one of just the block's are
// refused.
void* Pool::try_new_segment(std::size_t requested, Refusal& refusal) {
  const std::size_t rounded = block_bytes(requested);
  const std::size_t usual = usual_segment_bytes(options_, rounded);
  for (const std::size_t bytes : {usual, rounded}) {
    try {
      return allocate_in_new_segment(bytes, requested, refusal);
    } catch (const OutOfMemory& error) {
      refusal.note(error);
    }
    if (usual == rounded) break;
  }
  return nullptr;
}

void* Pool::allocate_in_new_segment(std::size_t bytes, std::size_t requested,
                                    const Refusal& refusal) {
  Layout::SegmentMap given_back;
  {
    const std::lock_guard lock(mutex_);
    // Whoever had the turn before may have left room.
    if (void* const block = take(requested)) return block;
    given_back = make_room(bytes);
    if (refusal.is_refused) ++tallies_.events.num_alloc_retries;
  }
  given_back.clear();
  Layout::SegmentMap added;  // given back, without the lock, when the layout cannot have it
  Segment segment(source_, bytes, options_.stream);
  segment.is_small = bytes <= kSmallSegment && !grows_in_place();
  const bool is_small = segment.is_small;
  added.try_emplace(segment.range().address, std::move(segment));
  const std::lock_guard lock(mutex_);
  layout_.add(added);
  tallies_.segments_began(is_small, {.count = 1, .bytes = bytes});
  ++tallies_.events.num_device_alloc;
  return take(requested);  // needs no host memory now
}

// Throws OutOfMemory where `bytes` more would exceed the limit; what it returns must be given back.
// What is reserved grows by none but the thread whose turn it is. Requires the lock.
Layout::SegmentMap Pool::make_room(std::size_t bytes) {
  const std::size_t room = tallies_.peak_reserved_bytes() - tallies_.reserved_bytes();
  Layout::SegmentMap given_back;
  if (is_compact() && bytes > room) {
    given_back = layout_.extract_unpinned_segments(bytes - room);
    count_given_back(given_back);
  }
  if (bytes > options_.max_bytes - tallies_.reserved_bytes()) {
    throw OutOfMemory(limit_reason(bytes, options_.max_bytes));
  }
  return given_back;
}

void Pool::refuse(std::size_t requested, const Refusal& refusal) {
  const std::lock_guard lock(mutex_);
  ++tallies_.events.num_ooms;
  if (observer_ != nullptr) observer_->refused(requested);
  const PoolUse self = present_use();
  MemoryReport report{requested, self.largest_free_block, {self}};
  if (refusal.report) add_others(report, *refusal.report);
  throw OutOfMemory(
      fmt::format("pool '{}' has no room for {} bytes: reserved {}, live {}, largest free block "
                  "{}; {}; drop tensors, trim() other pools or allow more",
                  options_.name, requested, self.reserved, self.live, self.largest_free_block,
                  refusal.reason),
      std::move(report));
}

std::size_t Pool::trim() {
  if (grows_in_place()) return give_back_unpinned();
  return trim(std::span<const Range>());
}

std::size_t Pool::trim(std::span<const Range> kept) noexcept {
  Layout::SegmentMap given_back;  // destroyed, and so given back, without the lock
  const std::lock_guard lock(mutex_);
  const std::size_t before = tallies_.reserved_bytes();
  given_back = layout_.extract_free_segments(kept);
  count_given_back(given_back);
  return before - tallies_.reserved_bytes();
}

std::size_t Pool::give_back_unused() noexcept {
  return options_.keeps_segments ? 0 : give_back_unpinned();
}

std::size_t Pool::give_back_unpinned() noexcept {
  Layout::SegmentMap given_back;  // destroyed, and so given back, without the lock
  const std::lock_guard lock(mutex_);
  const std::size_t before = tallies_.reserved_bytes();
  given_back = layout_.extract_unpinned_segments(SIZE_MAX);
  count_given_back(given_back);
  if (grows_in_place()) {
    const Amount shrunk = layout_.shrink_segments();
    tallies_.segments_ended(/*is_small=*/false, {.bytes = shrunk.bytes});
    tallies_.events.num_device_free += shrunk.count;
  }
  return before - tallies_.reserved_bytes();
}

void Pool::close() noexcept {
  const std::lock_guard turn(growth_mutex_);
  Layout::SegmentMap given_back;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_closed_, true)) return;
    const std::size_t blocks = tallies_.live_blocks();
    const std::size_t bytes = tallies_.live_bytes();
    if (blocks > 0) {
      log_event(LogLevel::kError, "pool_closed_with_live_blocks pool={} blocks={} bytes={}",
                options_.name, blocks, bytes);
    }
    given_back = layout_.extract_all_segments();
    count_given_back(given_back);
    for (const bool is_small : {false, true})
      tallies_.blocks_ended(is_small, tallies_.live(is_small));
  }
  given_back.clear();
  // Last, so that the source finds every segment's user among those it knows. It may still ask
  // this pool until then, which has nothing to give.
  source_.detach(*this);
}

void Pool::count_given_back(const Layout::SegmentMap& segments) noexcept {
  for (const auto& [address, segment] : segments) {
    tallies_.segments_ended(segment.is_small, {.count = 1, .bytes = segment.range().bytes});
    ++tallies_.events.num_device_free;
  }
}

}  // namespace cgtree
