// Gets memory for requests that no free block holds, and explains refusals.

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "allocator/pool/block.h"
#include "allocator/pool/pool.h"
#include "base/error.h"
#include "base/format.h"

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
        str_format("0 bytes asked of pool '{}'; an empty tensor needs no memory", options_.name));
  }
  empty_caches();
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

// An OpenGrowth is a growth of a segment in progress; its destructor ends it.
struct Pool::OpenGrowth {
  explicit OpenGrowth(Pool& owner) : pool(owner) {}
  ~OpenGrowth() {
    if (segment == nullptr) return;
    const std::lock_guard lock(pool.mutex_);
    const std::size_t before = segment->range().bytes;
    pool.layout_.end_resize(*segment, succeeded ? bytes : before);
    pool.resized_.notify_all();
    if (!succeeded) return;
    pool.tallies_.segments_began({.bytes = bytes - before});
    ++pool.tallies_.events.num_device_alloc;
  }

  Pool& pool;
  Segment* segment = nullptr;
  std::size_t bytes = 0;  // the new size
  bool succeeded = false;
};

// Returns null if the newest segment cannot be made larger.
void* Pool::try_growth(std::size_t requested, Refusal& refusal) {
  for (;;) {  // another thread may take the added memory
    if (has_pages()) {
      if (void* const block = try_mapping(requested, refusal)) return block;
      if (refusal.is_refused) return nullptr;
      unmap_beyond_slack(growth_bytes(block_bytes(requested)));
    }
    OpenGrowth open(*this);
    {
      std::unique_lock lock(mutex_);
      // Another thread may be giving the end of the segment back.
      resized_.wait(lock, [this] { return !layout_.is_resizing(); });
      if (void* const block = take(requested)) return block;
      if (layout_.largest_free_block() >= block_bytes(requested)) continue;  // it must be mapped
      if (!begin_growth(open, block_bytes(requested))) return nullptr;
    }
    try {
      open.succeeded = open.segment->grow(open.bytes);
    } catch (const OutOfMemory& error) {
      refusal.note(error);
    }
    if (open.succeeded) continue;
    if (!refusal.is_refused) {
      refusal.reason = "its segment cannot grow any further";
      return nullptr;
    }
    // Users asked to make room may have freed blocks of this pool.
    const std::size_t asked = open.bytes - open.segment->range().bytes;
    if (growth_bytes(block_bytes(requested)) >= asked) return nullptr;
    refusal.is_refused = false;
  }
}

// Requires: the lock is held.
bool Pool::begin_growth(OpenGrowth& open, std::size_t bytes) {
  const std::optional<Layout::Growth> growth = layout_.growth_for(bytes);
  if (!growth) return false;
  Segment& segment = layout_.begin_growth(*growth);
  open.segment = &segment;
  open.bytes = segment.range().bytes + round_up(growth->missing, kLargeRounding);
  if (has_pages()) segment.pages.reserve(open.bytes);
  return true;
}

// Returns null if no free block holds the request, or, with the reason, if there is no memory for
// its pages. The block is live while the lock is released, so that no other thread takes its pages.
void* Pool::try_mapping(std::size_t requested, Refusal& refusal) {
  std::unique_lock lock(mutex_);
  resized_.wait(lock, [this] { return !layout_.is_resizing(); });
  const BlockNode* const node = layout_.allocate(block_bytes(requested), requested);
  if (node == nullptr) return nullptr;
  const Range block = node->block.range;
  Segment& segment = *node->segment;
  const Range place{block.address - segment.range().address, block.bytes};
  void* const address = reinterpret_cast<void*>(block.address);
  tallies_.blocks_began({1, block.bytes, requested});
  const auto undo = [&] {
    if (!lock.owns_lock()) lock.lock();
    tallies_.blocks_ended({1, block.bytes, requested});
    layout_.free(block.address);
  };
  try {
    const std::size_t missing = segment.pages.missing(place);
    if (missing > 0) {
      lock.unlock();
      unmap_beyond_slack(missing);
      lock.lock();
    }
    while (const std::optional<Range> run = segment.pages.find(place, false)) {
      lock.unlock();
      segment.map(*run);
      lock.lock();
      segment.pages.set(*run, true);
      tallies_.segments_began({.bytes = run->bytes});
      ++tallies_.events.num_device_alloc;
    }
  } catch (const OutOfMemory& error) {
    undo();
    refusal.note(error);
    return nullptr;
  } catch (...) {
    undo();
    throw;
  }
  return address;
}

// Returns the growth of the pool for a block, or 0 if a free block holds it.
std::size_t Pool::growth_bytes(std::size_t bytes) const noexcept {
  const std::lock_guard lock(mutex_);
  if (layout_.largest_free_block() >= bytes) return 0;
  const std::optional<Layout::Growth> growth = layout_.growth_for(bytes);
  return growth ? round_up(growth->missing, kLargeRounding) : 0;
}

// Gives free pages back before much more is reserved than was ever live. Without slack, each pass
// of a loop unmaps pages, which waits for the stream (docs/decisions/0011).
void Pool::unmap_beyond_slack(std::size_t more) noexcept {
  std::unique_lock lock(mutex_);
  const std::size_t live = tallies_.peak_live_bytes();
  const std::size_t most = live + std::max(live / 12, std::size_t{16} << 20);
  more += tallies_.reserved_bytes();
  lock.unlock();
  if (more > most) (void)unmap(more - most);
}

// Gives free pages back until they have `enough` bytes; returns their bytes.
std::size_t Pool::unmap(std::size_t enough) noexcept {
  std::size_t bytes = 0;
  while (bytes < enough) {
    Layout::Unmap pages;
    {
      const std::lock_guard lock(mutex_);
      pages = layout_.begin_unmap(enough - bytes);
    }
    if (pages.segment == nullptr) break;
    const bool succeeded = pages.segment->unmap(pages.run);
    const std::lock_guard lock(mutex_);
    layout_.end_unmap(pages, succeeded);
    resized_.notify_all();
    if (!succeeded) break;
    bytes += pages.run.bytes;
    tallies_.segments_ended({.bytes = pages.run.bytes});
    ++tallies_.events.num_device_free;
  }
  return bytes;
}

bool Pool::may_add_segment(const Refusal& refusal) const {
  if (has_pages() && refusal.is_refused) return false;
  if (!options_.has_one_segment) return true;
  const std::lock_guard lock(mutex_);
  return layout_.segments().empty();
}

// Serves a small request from a new segment or, if none is available without making room, from a
// block that a large request has left. Returns null if there is neither.
void* Pool::serve_apart(std::size_t requested, Refusal& refusal) {
  const std::size_t rounded = block_bytes(requested);
  if (rounded > kSmallRequest || largest_free_block() < rounded) return nullptr;
  for (const std::size_t bytes : {kSmallSegment, rounded}) {
    try {
      return allocate_in_new_segment(bytes, /*makes_room=*/false, requested, refusal);
    } catch (const OutOfMemory&) {
    }
  }
  const std::lock_guard lock(mutex_);
  return take</*kAnywhere=*/true>(requested);
}

// Returns null, with the reason, if nothing helps.
void* Pool::grow(std::size_t requested, Refusal& refusal) {
  if (options_.small_apart) {
    if (void* const block = serve_apart(requested, refusal)) return block;
  }
  if (grows_in_place()) {
    if (void* const block = try_growth(requested, refusal)) return block;
    if (!may_add_segment(refusal)) return nullptr;
  }
  if (void* const block = try_new_segment(requested, refusal)) return block;
  empty_caches();
  const std::lock_guard lock(mutex_);
  return take(requested);  // another thread may have freed a block meanwhile
}

// Returns null, with the reason, if both a segment of the usual size and one of the block's size
// are refused. No pool has to give memory back for the part of the usual size beyond the block's.
void* Pool::try_new_segment(std::size_t requested, Refusal& refusal) {
  const std::size_t rounded = block_bytes(requested);
  const std::size_t usual =
      grows_in_place() ? round_up(rounded, kLargeRounding) : segment_bytes(rounded);
  for (const std::size_t bytes : {usual, rounded}) {
    try {
      return allocate_in_new_segment(bytes, bytes == rounded || has_pages(), requested, refusal);
    } catch (const OutOfMemory& error) {
      refusal.note(error);
    }
    if (usual == rounded || has_pages()) break;
  }
  return nullptr;
}

void* Pool::allocate_in_new_segment(std::size_t bytes, bool makes_room, std::size_t requested,
                                    const Refusal& refusal) {
  {
    const std::lock_guard lock(mutex_);
    // The previous thread may have left room.
    if (void* const block = take(requested)) return block;
    if (refusal.is_refused) ++tallies_.events.num_alloc_retries;
  }
  Layout::SegmentMap added;  // given back, without the lock, if the layout cannot add it
  Segment segment(source_, bytes, options_.stream, makes_room);
  segment.is_small = bytes <= kSmallSegment && !grows_in_place();
  if (has_pages()) segment.pages.set_bytes(bytes);
  added.try_emplace(segment.range().address, std::move(segment));
  const std::lock_guard lock(mutex_);
  layout_.add(added);
  tallies_.segments_began({.count = 1, .bytes = bytes});
  ++tallies_.events.num_device_alloc;
  return take(requested);  // does not allocate host memory now
}

void Pool::refuse(std::size_t requested, const Refusal& refusal) {
  PoolCaches::Held held(caches_.get());
  held.empty();
  const std::lock_guard lock(mutex_);
  ++tallies_.events.num_ooms;
  const PoolUse self = present_use(held);
  MemoryReport report{requested, self.largest_free_block, {self}};
  if (refusal.report) add_others(report, *refusal.report);
  throw OutOfMemory(
      str_format("pool '{}' has no room for {} bytes: reserved {}, live {}, largest free block "
                 "{}; {}; drop tensors, trim() other pools or allow more",
                 options_.name, requested, self.reserved, self.live, self.largest_free_block,
                 refusal.reason),
      std::move(report));
}

}  // namespace cgtree
