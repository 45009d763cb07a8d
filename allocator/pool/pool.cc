// Locks and counts a layout, gets segments for it and gives them back.
#include "allocator/pool/pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include "allocator/pool/block.h"
#include "base/check.h"
#include "base/error.h"
#include "base/log.h"

namespace cgtree {
namespace {

// So often threads have to wait before they get caches: a pool that one thread uses after another
// has none.
constexpr unsigned kTurnsUntilCaches = 64;

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
    case Growth::kInPages:
      return round_up(block, kLargeRounding);
  }
  return segment_bytes(block);
}

std::string limit_reason(std::size_t bytes, std::size_t limit) {
  return fmt::format("a segment of {} bytes would exceed the pool's limit of {}", bytes, limit);
}

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
        fmt::format("restore of pool '{}': {:#x} is declared to die twice", pool, *again));
  }
  std::vector<std::uintptr_t> missing;
  std::set_difference(died.begin(), died.end(), declared.begin(), declared.end(),
                      std::back_inserter(missing));
  if (!missing.empty()) {
    throw InvalidArgument(fmt::format(
        "restore of pool '{}' would end {} live block(s) not declared to die, the first at {}; "
        "declare every block that its holder has let go, free it, or say kAllMayDie",
        pool, missing.size(), layout.describe(missing.front())));
  }
  const std::uintptr_t extra =
      *std::find_if(declared.begin(), declared.end(), [&](std::uintptr_t address) {
        return !std::binary_search(died.begin(), died.end(), address);
      });
  throw InvalidArgument(
      fmt::format("restore of pool '{}': declared to die, but would not: {}; declare the addresses "
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

}  // namespace

Pool::Pool(SegmentSource& source, PoolOptions options)
    : source_(source),
      options_(std::move(options)),
      caches_(options_.thread_caching == ThreadCaching::kNever
                  ? nullptr
                  : std::make_unique<ThreadCaches>(static_cast<CachedPool&>(*this))),
      has_caches_(options_.thread_caching == ThreadCaching::kAlways),
      layout_(options_.splits, options_.growth == Growth::kInPlace) {
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

// A Turn holds the lock, and notes that it was waited for.
class Pool::Turn {
 public:
  explicit Turn(Pool& pool) : pool_(pool) {
    if (!pool.mutex_.try_lock()) [[unlikely]] {
      pool.wait_for_turn();
    }
  }
  ~Turn() { pool_.mutex_.unlock(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Pool& pool_;
};

[[gnu::cold, gnu::noinline]] void Pool::wait_for_turn() noexcept {
  mutex_.lock();
  if (caches_ == nullptr || has_caches() || ++turns_waited_for_ < kTurnsUntilCaches) return;
  has_caches_.store(true, std::memory_order_relaxed);
}

void* Pool::allocate(std::size_t bytes) {
  const bool can_be_rounded = bytes - 1 < kLargestRequest;
  if (can_be_rounded) [[likely]] {
    if (has_caches()) [[unlikely]] {
      if (void* const block = caches_->allocate(bytes)) return block;
    }
    const Turn turn(*this);
    if (void* const block = take(bytes)) return block;
  }
  return allocate_slowly(bytes);
}

// Returns a free block that holds the request, or null. Requires: the lock is held.
void* Pool::take(std::size_t requested) {
  const BlockNode* const node = layout_.allocate(block_bytes(requested), requested);
  if (node == nullptr) return nullptr;
  const Range& range = node->block.range;
  if (has_pages()) [[unlikely]] {
    const std::size_t offset = range.address - node->segment->range().address;
    if (node->segment->pages.missing({offset, range.bytes}) > 0) {
      layout_.free(range.address);
      return nullptr;
    }
  }
  tallies_.blocks_began(node->is_small, {1, range.bytes, requested});
  void* const address = reinterpret_cast<void*>(range.address);
  // Blocks that lie elsewhere are few to a page of words, which would not fit processors' caches.
  if (has_caches() && node->is_small) [[unlikely]] {
    caches_->mark(address, range.bytes, requested, node->is_small);
  }
  if (observer_ != nullptr) [[unlikely]] {
    observer_->allocated(address, requested);
  }
  return address;
}

void Pool::free(void* address) {
  if (has_caches()) [[unlikely]] {
    return free_beside_caches(address);
  }
  const Turn turn(*this);
  const auto [freed, is_small] = layout_.free(reinterpret_cast<std::uintptr_t>(address));
  if (!freed.is_live()) [[unlikely]] {
    refuse_address("free", address);
  }
  tallies_.blocks_ended(is_small, {1, freed.range.bytes, freed.requested});
  if (observer_ != nullptr) [[unlikely]] {
    observer_->freed(address, freed.requested);
  }
}

void Pool::free_beside_caches(void* address) {
  if (caches_->free(address) || try_free_marked(address)) return;
  empty_caches();  // then the layout knows what is wrong
  const std::lock_guard lock(mutex_);
  refuse_address("free", address);
}

// Frees a block that no cache takes. Returns false if the address is not that of a live block.
bool Pool::try_free_marked(void* address) {
  BlockMarks::Word* const word = caches_->find(address);
  const Turn turn(*this);
  std::uint32_t value = word == nullptr ? 0 : word->load(std::memory_order_relaxed);
  const BlockMark mark(value);
  const bool is_marked = mark.state() != BlockMark::State::kNone;
  if (mark.state() == BlockMark::State::kCached) return false;
  // Another thread may be caching the block, and has freed it then.
  if (is_marked && !word->compare_exchange_strong(value, 0, std::memory_order_relaxed)) {
    return false;
  }
  const auto [freed, is_small] = layout_.free(reinterpret_cast<std::uintptr_t>(address));
  if (!freed.is_live()) return false;
  const std::size_t requested = is_marked ? mark.requested() : freed.requested;
  tallies_.blocks_ended(is_small, {1, freed.range.bytes, freed.requested});
  flow_.ended[is_small].requested += requested - freed.requested;
  if (observer_ != nullptr) observer_->freed(address, requested);
  return true;
}

BlockMark Pool::mark_of(const Block& block) const {
  if (caches_ == nullptr) return {};
  const BlockMarks::Word* const word =
      caches_->find(reinterpret_cast<const void*>(block.range.address));
  return word == nullptr ? BlockMark() : BlockMark(word->load(std::memory_order_relaxed));
}

void Pool::empty_caches() const noexcept {
  if (!has_caches()) return;
  ThreadCaches::Held held(caches_.get());
  held.empty();
}

void Pool::take_back(std::span<const CachedBlock> blocks, Flow& flow) noexcept {
  const Turn turn(*this);
  for (const CachedBlock& cached : blocks) {
    cached.word->store(0, std::memory_order_relaxed);
    const auto [freed, is_small] = layout_.free(reinterpret_cast<std::uintptr_t>(cached.address));
    CGTREE_CHECK(freed.is_live());
    const Amount amount{1, freed.range.bytes, freed.requested};
    tallies_.blocks_ended(is_small, amount);
    flow.ended[is_small] += -amount;  // it was counted when its thread freed it
  }
}

// Is a function of its own, so that the code of calls that succeed stays small.
[[gnu::cold, gnu::noinline]] void Pool::refuse_address(const char* call, void* address) const {
  expect_open();
  throw InvalidArgument(fmt::format(
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
  throw InvalidArgument(fmt::format(
      "pool '{}' is closed and has given all its memory back; close() it after its last use",
      options_.name));
}

void Pool::set_observer(PoolObserver* observer) noexcept {
  ThreadCaches::Held held(caches_.get());
  held.empty();
  held.set_open(observer == nullptr);  // what a cache serves is not reported
  const std::lock_guard lock(mutex_);
  observer_ = observer;
}

void Pool::reset_peak_statistics() {
  ThreadCaches::Held held(caches_.get());
  held.empty();
  const std::lock_guard lock(mutex_);
  tallies_.reset_peaks();
}

void Pool::reset_total_statistics() {
  ThreadCaches::Held held(caches_.get());
  held.empty();
  const std::lock_guard lock(mutex_);
  tallies_.reset_totals();
  flow_ += held.flow();
  held.reset_flow();
  for (const bool is_small : {false, true}) {
    const Amount ended = std::exchange(flow_.ended[is_small], {});
    // What is left is the difference that the last requests of live blocks make.
    flow_.began[is_small] += -ended;
    CGTREE_CHECK(flow_.began[is_small].count == 0 && flow_.began[is_small].bytes == 0);
  }
}

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
    pool.tallies_.segments_began(segment->is_small, {.bytes = bytes - before});
    ++pool.tallies_.events.num_device_alloc;
  }

  Pool& pool;
  Segment* segment = nullptr;
  std::size_t bytes = 0;  // what it grows to
  bool succeeded = false;
};

// Returns null if the newest segment cannot be made larger.
void* Pool::try_growth(std::size_t requested, Refusal& refusal) {
  for (;;) {  // another thread may take what has been added
    if (has_pages()) {
      if (void* const block = try_mapping(requested, refusal)) return block;
      if (refusal.is_refused) return nullptr;
      unmap_beyond_peak(growth_bytes(block_bytes(requested)));
    }
    OpenGrowth open(*this);
    {
      std::unique_lock lock(mutex_);
      // Another thread may be giving the end of the segment back.
      resized_.wait(lock, [this] { return !layout_.is_resizing(); });
      if (void* const block = take(requested)) return block;
      if (layout_.largest_free_block() >= block_bytes(requested)) continue;  // it has to be mapped
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

// Requires: the lock is held.
bool Pool::begin_growth(OpenGrowth& open, std::size_t bytes, Refusal& refusal) {
  const std::optional<Layout::Growth> growth = layout_.growth_for(bytes);
  if (!growth) return false;
  const std::size_t left = options_.max_bytes - tallies_.reserved_bytes();
  const std::size_t room = left - left % kBlockAlignment;
  if ((has_pages() ? round_up(growth->missing, kLargeRounding) : growth->missing) > room) {
    refusal.reason = limit_reason(growth->missing, options_.max_bytes);
    return false;
  }
  Segment& segment = layout_.begin_growth(*growth);
  open.segment = &segment;
  const std::size_t step = round_up(growth->missing, kLargeRounding);
  open.bytes = segment.range().bytes + (has_pages() ? step : std::min(step, room));
  if (has_pages()) segment.pages.reserve(open.bytes);
  return true;
}

// Returns null if no free block holds the request, or, with the reason, if there is no memory for
// its pages. The block is live while the lock is not held, so that no other thread takes its pages.
void* Pool::try_mapping(std::size_t requested, Refusal& refusal) {
  std::unique_lock lock(mutex_);
  resized_.wait(lock, [this] { return !layout_.is_resizing(); });
  const BlockNode* const node = layout_.allocate(block_bytes(requested), requested);
  if (node == nullptr) return nullptr;
  const Range block = node->block.range;
  Segment& segment = *node->segment;
  const Range place{block.address - segment.range().address, block.bytes};
  void* const address = reinterpret_cast<void*>(block.address);
  tallies_.blocks_began(/*is_small=*/false, {1, block.bytes, requested});
  const auto undo = [&] {
    if (!lock.owns_lock()) lock.lock();
    tallies_.blocks_ended(/*is_small=*/false, {1, block.bytes, requested});
    layout_.free(block.address);
  };
  try {
    const std::size_t missing = segment.pages.missing(place);
    if (missing > options_.max_bytes - tallies_.reserved_bytes()) {
      throw OutOfMemory(limit_reason(missing, options_.max_bytes));
    }
    if (missing > 0) {
      lock.unlock();
      unmap_beyond_peak(missing);
      lock.lock();
    }
    while (const std::optional<Range> run = segment.pages.find(place, false)) {
      lock.unlock();
      segment.map(*run);
      lock.lock();
      segment.pages.set(*run, true);
      tallies_.segments_began(/*is_small=*/false, {.bytes = run->bytes});
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
  if (observer_ != nullptr) observer_->allocated(address, requested);
  return address;
}

// Returns by how much the pool would grow for a block, or 0 if a free one holds it.
std::size_t Pool::growth_bytes(std::size_t bytes) const noexcept {
  const std::lock_guard lock(mutex_);
  if (layout_.largest_free_block() >= bytes) return 0;
  const std::optional<Layout::Growth> growth = layout_.growth_for(bytes);
  return growth ? round_up(growth->missing, kLargeRounding) : 0;
}

// Gives free pages back, so that `more` bytes fit under the peak if possible.
void Pool::unmap_beyond_peak(std::size_t more) noexcept {
  std::size_t beyond = 0;
  {
    const std::lock_guard lock(mutex_);
    const std::size_t room = tallies_.peak_reserved_bytes() - tallies_.reserved_bytes();
    beyond = more - std::min(more, room);
  }
  if (beyond > 0) (void)unmap(beyond);
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
    tallies_.segments_ended(/*is_small=*/false, {.bytes = pages.run.bytes});
    ++tallies_.events.num_device_free;
  }
  return bytes;
}

void Pool::expect_restorable() const {
  if (has_pages()) {
    throw InvalidArgument(
        fmt::format("pool '{}' gives the memory of free pages back, so that a layout cannot be "
                    "restored; choose another Growth",
                    options_.name));
  }
  if (caches_ != nullptr) {
    throw InvalidArgument(
        fmt::format("threads may cache blocks of pool '{}', so that a layout cannot be restored; "
                    "choose ThreadCaching::kNever",
                    options_.name));
  }
}

// Returns null, with the reason, if nothing helps.
void* Pool::grow(std::size_t requested, Refusal& refusal) {
  if (grows_in_place()) {
    if (void* const block = try_growth(requested, refusal)) return block;
    if ((has_pages() || options_.has_one_segment) && refusal.is_refused) return nullptr;
  }
  if (void* const block = try_new_segment(requested, refusal)) return block;
  if (is_compact() && give_back_unused() > 0) {
    if (void* const block = try_new_segment(requested, refusal)) return block;
  }
  empty_caches();
  const std::lock_guard lock(mutex_);
  return take(requested);  // another thread may have freed a block meanwhile
}

// Returns null, with the reason, if both a segment of the usual size and one of the block's size
// are refused. No pool has to give memory back for what the usual size has beyond the block's.
void* Pool::try_new_segment(std::size_t requested, Refusal& refusal) {
  const std::size_t rounded = block_bytes(requested);
  const std::size_t usual = usual_segment_bytes(options_, rounded);
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
  Layout::SegmentMap given_back;
  {
    const std::lock_guard lock(mutex_);
    // The thread whose turn it was before may have left room.
    if (void* const block = take(requested)) return block;
    given_back = make_room(bytes);
    if (refusal.is_refused) ++tallies_.events.num_alloc_retries;
  }
  given_back.clear();
  Layout::SegmentMap added;  // given back, without the lock, if the layout cannot add it
  Segment segment(source_, bytes, options_.stream, makes_room);
  segment.is_small = bytes <= kSmallSegment && !grows_in_place();
  const bool is_small = segment.is_small;
  if (has_pages()) segment.pages.set_bytes(bytes);
  added.try_emplace(segment.range().address, std::move(segment));
  const std::lock_guard lock(mutex_);
  layout_.add(added);
  tallies_.segments_began(is_small, {.count = 1, .bytes = bytes});
  ++tallies_.events.num_device_alloc;
  return take(requested);  // does not allocate host memory now
}

// Throws OutOfMemory if `bytes` more would exceed the limit; what it returns must be given back.
// Only the thread whose turn it is reserves more. Requires: the lock is held.
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
  ThreadCaches::Held held(caches_.get());
  held.empty();
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
    given_back = layout_.extract_unpinned_segments(SIZE_MAX);
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
      tallies_.segments_ended(/*is_small=*/false,
                              {.bytes = shrink.before - shrink.segment->range().bytes});
    }
    Segment& segment = *shrink.segment;
    const std::size_t stays = segment.shrink(shrink.before, segment.range().bytes);
    const std::lock_guard lock(mutex_);
    tallies_.segments_began(/*is_small=*/false, {.bytes = stays - segment.range().bytes});
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
    flow_ += flow;
    for (const bool is_small : {false, true})
      flow_.ended[is_small] = flow_.began[is_small];
  }
  given_back.clear();
  // Detaches last, so that the source knows the user of every segment. Until then it may still ask
  // this pool, which has nothing to give.
  source_.detach(*this);
}

void Pool::count_given_back(const Layout::SegmentMap& segments) noexcept {
  for (const auto& [address, segment] : segments) {
    tallies_.segments_ended(segment.is_small, {.count = 1, .bytes = segment.reserved_bytes()});
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
  Transition transition = layout_.transition_to(checkpoint, observer_ != nullptr);
  expect_declared(transition.delta.died, dying, layout_, options_.name);
  return apply(std::move(transition));
}

PoolDelta Pool::restore(const PoolCheckpoint& checkpoint, AllMayDie) {
  const std::lock_guard lock(mutex_);
  expect_open();
  return apply(layout_.transition_to(checkpoint, observer_ != nullptr));
}

PoolDelta Pool::restore_live(std::span<const Range> live) {
  expect_restorable();
  const std::lock_guard lock(mutex_);
  expect_open();
  return apply(layout_.transition_to(live, observer_ != nullptr));
}

// Does not throw: the transition was worked out before.
PoolDelta Pool::apply(Transition transition) {
  layout_.apply(transition);
  // The blocks that end come first, so that the peaks do not count what was never live together.
  for (const bool is_small : {false, true})
    tallies_.blocks_ended(is_small, transition.amount_ended[is_small]);
  for (const bool is_small : {false, true})
    tallies_.blocks_began(is_small, transition.amount_began[is_small]);
  ++tallies_.events.restores;
  tallies_.events.segments_touched += transition.changes.size();
  if (observer_ != nullptr) tell(transition);
  return std::move(transition.delta);
}

void Pool::tell(const Transition& transition) noexcept {
  for (const Block& block : transition.ended)
    observer_->freed(reinterpret_cast<void*>(block.range.address), block.requested);
  for (const Block& block : transition.began)
    observer_->allocated(reinterpret_cast<void*>(block.range.address), block.requested);
}

std::vector<Range> Pool::live() const {
  ThreadCaches::Held held(caches_.get());
  held.empty();
  const std::lock_guard lock(mutex_);
  std::vector<Range> ranges;
  ranges.reserve(layout_.live_blocks());
  for (const auto& [base, segment] : layout_.segments()) {
    for (const Block& block : layout_.blocks(segment)) {
      if (block.is_live()) ranges.push_back(block.range);
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

std::vector<BlockList> Pool::blocks() const {
  ThreadCaches::Held held(caches_.get());
  held.empty();
  const std::lock_guard lock(mutex_);
  std::vector<BlockList> lists;
  lists.reserve(layout_.segments().size());
  for (const auto& [base, segment] : layout_.segments()) {
    const BlockTable::Walk walk = layout_.blocks(segment);
    BlockList& list = lists.emplace_back(walk.begin(), walk.end());
    if (!has_caches()) continue;
    for (Block& block : list)
      if (const BlockMark mark = mark_of(block); mark.word() != 0)
        block.requested = mark.requested();
  }
  return lists;
}

bool Pool::owns(const void* address) const {
  const std::lock_guard lock(mutex_);
  return layout_.find(reinterpret_cast<std::uintptr_t>(address)) != nullptr;
}

PoolUse Pool::use() const {
  ThreadCaches::Held held(caches_.get());
  held.empty();
  const std::lock_guard lock(mutex_);
  return present_use();
}

PoolUse Pool::present_use() const {
  return {options_.name, tallies_.reserved_bytes(), tallies_.live_bytes(),
          layout_.largest_free_block()};
}

PoolStatistics Pool::statistics() const {
  const ThreadCaches::Held held(caches_.get());
  const std::lock_guard lock(mutex_);
  return present_statistics(held);
}

std::size_t Pool::largest_free_block() const {
  const std::lock_guard lock(mutex_);
  return layout_.largest_free_block();
}

PoolStatistics Pool::present_statistics(const ThreadCaches::Held& held) const {
  PoolStatistics statistics = tallies_.statistics();
  if (has_caches()) {
    Flow flow = held.flow();
    add_to(statistics, flow += flow_);
  }
  statistics.largest_free_block = layout_.largest_free_block();
  return statistics;
}

PoolGauges Pool::gauges() const {
  ThreadCaches::Held held(caches_.get());
  held.empty();
  const std::lock_guard lock(mutex_);
  return present_gauges();
}

PoolGauges Pool::present_gauges() const {
  PoolGauges gauges;
  for (const auto& [base, segment] : layout_.segments()) {
    gauges.bytes_pinned += segment.pinned_bytes();
    if (layout_.is_wholly_free(segment)) continue;
    PoolGauges::Split& split = segment.is_small ? gauges.small_pool : gauges.large_pool;
    for (const Block& block : layout_.blocks(segment)) {
      if (block.is_live()) continue;
      ++split.blocks;
      split.bytes += block.range.bytes;
    }
  }
  return gauges;
}

std::string Pool::flat_statistics() const {
  PoolStatistics statistics;
  PoolGauges gauges;
  {
    ThreadCaches::Held held(caches_.get());
    held.empty();
    const std::lock_guard lock(mutex_);
    statistics = present_statistics(held);
    gauges = present_gauges();
  }
  return to_flat_json(statistics, gauges);
}

void Pool::validate() const {
  const ThreadCaches::Held held(caches_.get());
  const std::lock_guard lock(mutex_);
  layout_.validate();
  held.validate();

  const PoolStatistics counted = tallies_.statistics();
  PoolCounters sums[2];  // over the layout
  for (const auto& [base, segment] : layout_.segments()) {
    PoolCounters& sum = sums[segment.is_small];
    sum.segment.current += 1;
    sum.reserved_bytes.current += segment.reserved_bytes();
    for (const Block& block : layout_.blocks(segment)) {
      if (!block.is_live()) continue;
      sum.allocation.current += 1;
      sum.allocated_bytes.current += block.range.bytes;
      sum.requested_bytes.current += block.requested;
    }
  }
#define CGTREE_VALIDATE(name)                                                                     \
  CGTREE_CHECK(counted.large_pool.name.current == sums[false].name.current);                      \
  CGTREE_CHECK(counted.small_pool.name.current == sums[true].name.current);                       \
  for (const Counter& counter :                                                                   \
       {counted.name, counted.large_pool.name, counted.small_pool.name}) {                        \
    CGTREE_CHECK(counter.current <= counter.peak);                                                \
    CGTREE_CHECK(counter.allocated - counter.freed == counter.current);                           \
    CGTREE_CHECK(counter.allocated >= counter.current);                                           \
  }                                                                                               \
  CGTREE_CHECK(counted.name.peak <= counted.large_pool.name.peak + counted.small_pool.name.peak); \
  CGTREE_CHECK(counted.name.current == sums[0].name.current + sums[1].name.current);
  CGTREE_POOL_COUNTERS(CGTREE_VALIDATE)
#undef CGTREE_VALIDATE
  CGTREE_CHECK(counted.reserved_bytes.current <= options_.max_bytes);
  if (caches_ != nullptr) validate_marks(held);
}

// What callers have is what the layout says is live, except for what the marks say is cached.
void Pool::validate_marks(const ThreadCaches::Held& held) const {
  Amount live;
  std::size_t cached = 0;
  for (const auto& [base, segment] : layout_.segments()) {
    for (const Block& block : layout_.blocks(segment)) {
      const BlockMark mark = mark_of(block);
      const bool is_marked = mark.state() != BlockMark::State::kNone;
      if (is_marked) {
        CGTREE_CHECK(block.is_live());
        CGTREE_CHECK(mark.bytes() == block.range.bytes);
        CGTREE_CHECK(mark.is_small() == segment.is_small);
      }
      if (mark.state() == BlockMark::State::kCached) {
        ++cached;
      } else if (block.is_live()) {
        live += {1, block.range.bytes, is_marked ? mark.requested() : block.requested};
      }
    }
  }
  CGTREE_CHECK(cached == held.blocks());
  const PoolStatistics counted = present_statistics(held);
  CGTREE_CHECK(counted.allocation.current == live.count);
  CGTREE_CHECK(counted.allocated_bytes.current == live.bytes);
  CGTREE_CHECK(counted.requested_bytes.current == live.requested);
}

}  // namespace cgtree
