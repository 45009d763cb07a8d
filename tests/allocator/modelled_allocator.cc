// Executes steps on an allocator, and keeps the account.
#include "tests/allocator/modelled_allocator.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "base/check.h"
#include "base/error.h"

namespace cgtree {
namespace {

constexpr const char* kNames[kMoves] = {
    "allocate",     "free",         "free_elsewhere", "use",           "finish_one",
    "finish",       "plan",         "free_planned",   "checkpoint",    "restore",
    "misuse",       "end_foreign",  "start_stream",   "begin_capture", "end_capture",
    "trim",         "set_budget",   "fail_next",      "begin_foreign", "end_stream",
    "move_planned", "trim_planned", "switch_reclaims"};

std::size_t size_from(std::uint32_t value) {
  const std::size_t most[] = {512, 8192, 300'000, std::size_t{2} << 20, std::size_t{12} << 20};
  return 1 + (value / 5) % most[value % 5];
}

template <typename Call>
bool is_refused(const Call& call) {
  try {
    call();
    return false;
  } catch (const InvalidArgument&) {
    return true;
  }
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const AllocatorStep& step) {
  return out << kNames[static_cast<int>(step.move)] << '(' << step.value << ')';
}

ModelledAllocator::ModelledAllocator(ThreadCaching caching) : allocator_(cache_, caching) {
  device_.synchronize_frees();
  planned_.emplace(cache_, *account_, PoolOptions{.name = "planned", .stream = kPlanned},
                   /*keeps_segments=*/true);
  reclaim_ = cache_.add_reclaim([this](std::size_t) { return reclaim(); });
}

ModelledAllocator::~ModelledAllocator() {
  cache_.remove_reclaim(reclaim_);
  while (!captures_.empty())
    end_capture();
  // After a failure blocks are lost, and a budget in use must not be destroyed.
  if (account_->budget().current() > 0) new std::shared_ptr<SegmentAccount>(account_);
}

void ModelledAllocator::take(const AllocatorStep& step) {
  if (step.value % 16 == 0) {
    OtherThread().run([&] { act(step); });
  } else if (step.value % 16 < 4) {
    other_.run([&] { act(step); });
  } else {
    act(step);
  }
  compare();
}

void ModelledAllocator::act(const AllocatorStep& step) {
  const std::uint32_t value = step.value;
  const StreamId eager = at(1 + value % kEagerStreams);
  const StreamId user = at(1 + value % kReader);
  switch (step.move) {
    case Move::kAllocate:
      return allocate(value / 3, eager);
    case Move::kFree:
      return free(value, false);
    case Move::kFreeElsewhere:
      return free(value, true);
    case Move::kUse:
      return use(value, user);
    case Move::kFinishOne:
      return device_.finish_one(once_at(1 + value % kReader, value / kReader));
    case Move::kFinish:
      return device_.finish(once_at(1 + value % kReader, value / kReader));
    case Move::kBeginCapture:
      return begin_capture();
    case Move::kEndCapture:
      return end_capture();
    case Move::kTrim:
      allocator_.trim();
      return;
    case Move::kSetBudget:
      return set_budget(value);
    case Move::kFailNext:
      value % 2 == 0 ? device_.fail_at(1 + value / 8 % 3) : device_.fail_from(1);
      value % 8 == 0 ? plan(value / 8) : allocate(value / 3, eager);
      return device_.fail_no_more();
    case Move::kBeginForeign:
      if (!is_usable(user)) return;
      foreign_.insert(user);
      return device_.begin_foreign_capture(user);
    case Move::kEndForeign:
      if (foreign_.erase(user) > 0) device_.end_foreign_capture(user);
      return;
    case Move::kEndStream:
      return end_stream(user);
    case Move::kStartStream:
      return start_stream(user);
    case Move::kPlan:
      return plan(value);
    case Move::kFreePlanned:
      return free_planned(value);
    case Move::kCheckpoint:
      return checkpoint();
    case Move::kRestore:
      return restore(value);
    case Move::kMovePlanned:
      return move_planned();
    case Move::kTrimPlanned:
      planned().trim();
      for (Saved& saved : saved_)
        saved.may_be_gone = true;
      return;
    case Move::kMisuse:
      return misuse(value);
    case Move::kSwitchReclaims:
      reclaims_ = !reclaims_;
      return;
  }
}

StreamId ModelledAllocator::at(StreamId place) const {
  const auto found = started_.find(place);
  return place + kPlaces * (found == started_.end() ? 0 : found->second);
}

StreamId ModelledAllocator::once_at(StreamId place, std::uint32_t value) const {
  return place + kPlaces * (value % (at(place) / kPlaces + 1));
}

bool ModelledAllocator::is_usable(StreamId stream) const {
  return !foreign_.contains(stream) && !ended_.contains(stream);
}

// ---- Blocks -------------------------------------------------------------------------------------

void ModelledAllocator::allocate(std::uint32_t value, StreamId stream) {
  if (!is_usable(stream)) return;
  const std::size_t bytes = size_from(value);
  void* address = nullptr;
  try {
    address = allocator_.allocate(bytes, stream);
  } catch (const OutOfMemory&) {
    return;
  }
  ledger_.allocate({reinterpret_cast<std::uintptr_t>(address), bytes}, stream);
}

void ModelledAllocator::free(std::uint32_t value, bool elsewhere) {
  const auto block = ledger_.pick(value / 16);
  if (block == ledger_.live().end()) return;
  void* const address = reinterpret_cast<void*>(block->first);
  const StreamId stream = at(1 + value % kReader);
  if (elsewhere && is_usable(stream)) {
    ledger_.work(block->second, stream);
    allocator_.free(address, stream);
  } else {
    allocator_.free(address);
  }
  ledger_.free(block);
}

void ModelledAllocator::use(std::uint32_t value, StreamId stream) {
  const auto block = ledger_.pick(value / 16);
  if (block == ledger_.live().end() || !is_usable(stream)) return;
  ledger_.work(block->second, stream);
  allocator_.use(reinterpret_cast<void*>(block->first), stream);
}

// Frees a freed block, the inside of a block, or null.
void ModelledAllocator::misuse(std::uint32_t value) {
  void* address = nullptr;
  const auto block = ledger_.pick(value / 4);
  if (value % 2 == 0 && !ledger_.freed().empty()) {
    const auto freed = std::next(ledger_.freed().begin(),
                                 static_cast<std::ptrdiff_t>(value / 4 % ledger_.freed().size()));
    address = reinterpret_cast<void*>(freed->first);
  } else if (block != ledger_.live().end()) {
    address = reinterpret_cast<void*>(block->first + 256);
  }
  require(is_refused([&] { allocator_.free(address); }), "what is no live block was freed");
  require(is_refused([&] { allocator_.use(address, at(1 + value % kEagerStreams)); }),
          "what is no live block was used");
}

// Called when there is no room: frees a block.
std::size_t ModelledAllocator::reclaim() {
  const auto block = ledger_.pick(7);
  if (!reclaims_ || block == ledger_.live().end()) return 0;
  allocator_.free(reinterpret_cast<void*>(block->first));
  const std::size_t bytes = block->second.bytes;
  ledger_.free(block);
  return bytes;
}

// ---- Captures and streams -----------------------------------------------------------------------

void ModelledAllocator::begin_capture() {
  if (captures_.size() == 2) return;
  captures_.push_back(cache_.defer_frees());
  device_.begin_capture();
}

void ModelledAllocator::end_capture() {
  if (captures_.empty()) return;
  device_.end_capture();
  captures_.pop_back();
}

// The stream's work may go on.
void ModelledAllocator::end_stream(StreamId stream) {
  if (!is_usable(stream)) return;
  allocator_.retire(stream);
  cache_.progress().retire(stream);
  device_.destroy_stream(stream);
  ended_.insert(stream);
}

void ModelledAllocator::start_stream(StreamId ended) {
  if (ended_.erase(ended) == 0) return;
  CGTREE_CHECK(device_.records_refused(ended) == 0);
  ++started_[ended % kPlaces];
}

// ---- A pool that is restored --------------------------------------------------------------------

std::map<std::uintptr_t, std::size_t> ModelledAllocator::planned_live() {
  std::map<std::uintptr_t, std::size_t> live;
  for (const auto& [address, entry] : ledger_.live())
    if (entry.is_planned) live.emplace(address, entry.bytes);
  return live;
}

void ModelledAllocator::plan(std::uint32_t value) {
  const std::size_t bytes = block_bytes(size_from(value));
  try {
    const auto address = reinterpret_cast<std::uintptr_t>(planned().allocate(bytes));
    ledger_.allocate({address, bytes}, planned_stream_).is_planned = true;
  } catch (const OutOfMemory&) {
  }
}

void ModelledAllocator::free_planned(std::uint32_t value) {
  const auto live = planned_live();
  if (live.empty()) return;
  const std::uintptr_t address = std::next(live.begin(), value % live.size())->first;
  planned().free(reinterpret_cast<void*>(address));
  ledger_.free(ledger_.live().find(address));
}

void ModelledAllocator::checkpoint() {
  if (saved_.size() == 3) saved_.erase(saved_.begin());
  saved_.push_back({planned().checkpoint(), planned_live()});
}

void ModelledAllocator::restore(std::uint32_t value) {
  if (saved_.empty()) return;
  const Saved& saved = saved_[value % saved_.size()];
  const auto before = planned_live();
  try {
    if (value % 2 == 0) {
      planned().restore(saved.checkpoint, kAllMayDie);
    } else {
      std::vector<void*> dying;
      for (const auto& [address, bytes] : before)
        if (!saved.live.contains(address) || saved.live.at(address) != bytes)
          dying.push_back(reinterpret_cast<void*>(address));
      planned().restore(saved.checkpoint, dying);
    }
  } catch (const InvalidArgument&) {
    return require(saved.may_be_gone, "what was not given back cannot be restored");
  }
  for (const auto& [address, bytes] : before)
    if (!saved.live.contains(address) || saved.live.at(address) != bytes)
      ledger_.free(ledger_.live().find(address));
  for (const auto& [address, bytes] : saved.live) {
    if (before.contains(address) && before.at(address) == bytes) continue;
    ledger_.allocate({address, bytes}, planned_stream_).is_planned = true;
  }
}

// Moves the restored pool to its other stream, which waits for the former one.
void ModelledAllocator::move_planned() {
  const StreamId to = planned_stream_ == kPlanned ? kPlanned + 1 : kPlanned;
  device_.finish(planned_stream_);
  planned_->segments.set_stream(to);
  planned_stream_ = to;
}

// ---- Comparison ---------------------------------------------------------------------------------

void ModelledAllocator::set_budget(std::uint32_t value) {
  const std::size_t limit = std::size_t{value % 96} << 20;
  budget_.set_max_bytes(limit);
  ceiling_ = std::max(limit, budget_.current());
}

void ModelledAllocator::compare() {
  cache_.validate();
  planned().validate();
  const AllocatorStatistics now = allocator_.statistics();
  const PoolStatistics of_planned = planned().statistics();
  const std::size_t blocks = now.total.allocation.current + of_planned.allocation.current;
  require(blocks == ledger_.live().size() + now.pending_blocks,
          "the blocks that are counted are not those that live or wait");
  require(of_planned.allocation.current == planned_live().size(), "a pool counts other blocks");
  note_takeovers(now);
  compare_owners(now, now.pending_blocks == 0);
  require(now.cache.bytes_in_use ==
              now.total.reserved_bytes.current + of_planned.reserved_bytes.current,
          "the cache has given out what no pool has");
  require(now.cache.bytes_in_use + now.cache.bytes_cached == device_.bytes_held(),
          "the cache does not count what it has");
  require(budget_.current() == device_.bytes_held(), "the budget does not count what is held");
  for (StreamId reader = kReader; reader <= at(kReader); reader += kPlaces)
    require(device_.records_refused(reader) == 0, "a stream that is gone was named");
  require(budget_.current() <= ceiling_, "more is reserved than the budget allows");
  require(account_->budget().current() <= account_->budget().max_bytes(),
          "more is reserved than the account allows");
  ceiling_ = std::max(budget_.max_bytes(), budget_.current());
}

// Another stream takes over the eager pool of an ended stream, with its blocks: at most one per
// step.
void ModelledAllocator::note_takeovers(const AllocatorStatistics& now) {
  std::set<StreamId> eager;
  for (const AllocatorStatistics::OfPool& one : now.pools)
    require(eager.insert(one.stream).second, "a stream has two eager pools");
  std::vector<StreamId> gone, made;
  std::ranges::set_difference(eager_, eager, std::back_inserter(gone));
  std::ranges::set_difference(eager, eager_, std::back_inserter(made));
  require(gone.size() <= made.size() && made.size() <= 1, "an eager pool is gone");
  for (auto& [address, entry] : ledger_.live())
    if (!gone.empty() && entry.owner == gone[0]) entry.owner = made[0];
  eager_ = std::move(eager);
}

// Compares the counts of each pool; `is_exact` if no block waits to be free.
void ModelledAllocator::compare_owners(const AllocatorStatistics& now, bool is_exact) {
  std::map<StreamId, std::pair<std::size_t, std::size_t>> sums;  // blocks, bytes
  for (const auto& [address, entry] : ledger_.live()) {
    if (entry.is_planned) continue;
    auto& [blocks, bytes] = sums[entry.owner];
    ++blocks;
    bytes += block_bytes(entry.bytes);
  }
  for (const AllocatorStatistics::OfPool& one : now.pools) {
    const auto found = sums.find(one.stream);
    const auto [blocks, bytes] =
        found == sums.end() ? std::pair<std::size_t, std::size_t>{} : found->second;
    if (found != sums.end()) sums.erase(found);
    const std::size_t counted = one.statistics.allocation.current;
    require(is_exact ? counted == blocks : counted >= blocks, "a pool counts other blocks");
    const std::size_t counted_bytes = one.statistics.allocated_bytes.current;
    require(is_exact ? counted_bytes == bytes : counted_bytes >= bytes,
            "a pool counts other bytes");
    require(counted_bytes <= one.statistics.reserved_bytes.current,
            "a pool has blocks without segments");
  }
  require(sums.empty(), "a pool with blocks is not listed");
}

void ModelledAllocator::finish() {
  reclaims_ = false;
  while (!captures_.empty())
    end_capture();
  for (StreamId place = 1; place <= kReader; ++place) {
    if (foreign_.erase(at(place)) > 0) device_.end_foreign_capture(at(place));
    if (place != kReader) start_stream(at(place));
  }
  while (!planned_live().empty())
    free_planned(0);
  while (!ledger_.live().empty())
    free(0, false);
  for (StreamId place = 1; place <= kPlanned + 1; ++place)
    for (StreamId stream = place; stream <= at(place); stream += kPlaces)
      device_.finish(stream);
  saved_.clear();
  planned_.reset();
  allocator_.trim();
  require(device_.held().empty(), "something was not given back");
  require(budget_.current() == 0, "something is still reserved");
  require(account_->budget().current() == 0, "something is still charged to the account");
}

}  // namespace cgtree
