// Executes steps on a pool and on its model.
#include "tests/allocator/modelled_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "allocator/pool/block.h"
#include "base/error.h"

namespace cgtree {
namespace {

constexpr const char* kActions[] = {
    "allocate",     "free",    "bad_free",         "checkpoint",
    "forget",       "restore", "restore_declared", "restore_misdeclared",
    "restore_live", "trim",    "give_back",        "fail_next",
    "reopen"};

constexpr std::size_t kMostSaved = 12;
constexpr std::size_t kGranularity = std::size_t{64} << 10;

void* pointer_to(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);
}

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

// Most sizes are small; some need a separate segment.
std::size_t size_from(std::uint32_t value) {
  const std::size_t most[] = {512, 8192, 300000, std::size_t{1} << 20, std::size_t{24} << 20};
  return 1 + (value / 5) % most[value % 5];
}

std::vector<Range> ranges_of(const std::map<std::uintptr_t, std::size_t>& sizes) {
  std::vector<Range> ranges;
  for (const auto& [address, bytes] : sizes)
    ranges.push_back({address, bytes});
  return ranges;
}

std::vector<Range> difference(const std::vector<Range>& all, const std::vector<Range>& less) {
  std::vector<Range> rest;
  std::copy_if(all.begin(), all.end(), std::back_inserter(rest), [&](const Range& range) {
    return std::find(less.begin(), less.end(), range) == less.end();
  });
  return rest;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Step& step) {
  return out << kActions[static_cast<int>(step.action)] << '(' << step.value << ')';
}

ModelledPool::~ModelledPool() {
  for (const Range& block : pool_->live())
    pool_->free(pointer_to(block.address));
}

ModelledPool::ModelledPool(Growth growth) : growth_(growth) {
  if (growth == Growth::kInPlace) source_.set_spacing(std::size_t{80} << 20);
  source_.set_granularity(kGranularity);
  open();
}

void ModelledPool::open() {
  pool_.emplace(source_, PoolOptions{.name = "modelled", .growth = growth_});
}

void ModelledPool::take(const Step& step) {
  switch (step.action) {
    case Action::kAllocate:
      allocate(step.value);
      break;
    case Action::kFree:
      free(step.value);
      break;
    case Action::kBadFree:
      free_badly(step.value);
      break;
    case Action::kCheckpoint:
      checkpoint();
      break;
    case Action::kForget:
      forget(step.value);
      break;
    case Action::kRestore:
      restore(step.value, Declaration::kAll);
      break;
    case Action::kRestoreDeclared:
      restore(step.value, Declaration::kRight);
      break;
    case Action::kRestoreMisdeclared:
      restore(step.value, Declaration::kWrong);
      break;
    case Action::kRestoreLive:
      restore_live(step.value);
      break;
    case Action::kTrim:
      trim(growth_ == Growth::kInPlace);
      break;
    case Action::kGiveBack:
      trim(true);
      break;
    case Action::kFailNext:
      source_.fail_from(1);
      allocate(step.value);
      source_.fail_no_more();
      break;
    case Action::kReopen:
      if (step.value % 16 == 0) reopen();
      break;
  }
  compare();
}

void ModelledPool::allocate(std::uint32_t value) {
  const std::size_t bytes = size_from(value);
  const std::optional<Range> expected = best_fit(block_bytes(bytes));
  const PoolCheckpoint before = pool_->checkpoint();
  try {
    const auto address = reinterpret_cast<std::uintptr_t>(pool_->allocate(bytes));
    note_segments();
    require(!expected || address == expected->address, "not the smallest that fits, or an end");
    require(live_.emplace(address, block_bytes(bytes)).second, "handed out twice");
  } catch (const OutOfMemory&) {
    require(!expected, "refused although a free block holds it");
    note_segments();
    require(pool_->checkpoint() == before, "a refused allocation changed the layout");
  }
}

void ModelledPool::free(std::uint32_t value) {
  if (live_.empty()) return;
  const auto block = std::next(live_.begin(), value % live_.size());
  pool_->free(reinterpret_cast<void*>(block->first));
  live_.erase(block);
}

// Frees null, a foreign address, the inside of a block, or a free block.
void ModelledPool::free_badly(std::uint32_t value) {
  const auto refuses = [&](std::uintptr_t address) {
    try {
      pool_->free(pointer_to(address));
    } catch (const InvalidArgument&) {
      return true;
    }
    return false;
  };
  require(refuses(0), "freed null");
  require(refuses(42 + value), "freed a foreign pointer");
  if (!live_.empty()) {
    const auto block = std::next(live_.begin(), value % live_.size());
    const std::uintptr_t address = block->first;
    require(refuses(address + 1 + value % (block->second - 1)), "freed an inner pointer");
    free(value);
    require(refuses(address), "freed twice");
  }
  for (const auto& [address, known] : segments_) {
    const std::uintptr_t inside = address + value % known.bytes;
    if (live_.count(inside) == 0) require(refuses(inside), "freed what is no block");
  }
}

void ModelledPool::checkpoint() {
  if (saved_.size() == kMostSaved) saved_.erase(saved_.begin());
  saved_.push_back({pool_->checkpoint(), live_, segments_, pools_closed_});
  require(saved_.back().checkpoint == pool_->checkpoint(), "two checkpoints of one state differ");
}

void ModelledPool::forget(std::uint32_t value) {
  if (!saved_.empty()) saved_.erase(saved_.begin() + value % saved_.size());
}

// Returns true if the pool still has these segments, possibly grown.
bool ModelledPool::is_here(const Segments& segments) const {
  return std::all_of(segments.begin(), segments.end(), [&](const auto& segment) {
    const auto found = segments_.find(segment.first);
    return found != segments_.end() && found->second.number == segment.second.number;
  });
}

// Makes a correct declaration wrong in one of four ways.
void ModelledPool::misdeclare(std::vector<void*>& dying, std::uint32_t value) const {
  const std::size_t place = dying.empty() ? 0 : value / 4 % dying.size();
  if (value % 4 == 0 && !dying.empty()) {
    dying.erase(dying.begin() + static_cast<std::ptrdiff_t>(place));
  } else if (value % 4 == 1 && !dying.empty()) {
    dying.push_back(dying[place]);
  } else if (value % 4 == 2 && !live_.empty()) {
    dying.push_back(pointer_to(std::next(live_.begin(), value % live_.size())->first));
  } else {
    dying.insert(dying.begin(), pointer_to(value));
  }
}

void ModelledPool::restore(std::uint32_t value, Declaration declaration) {
  if (saved_.empty()) return;
  const Saved& saved = saved_[value % saved_.size()];
  std::vector<void*> dying;
  for (const Range& range : difference(ranges_of(live_), ranges_of(saved.live)))
    dying.push_back(pointer_to(range.address));
  if (declaration == Declaration::kWrong) misdeclare(dying, value);
  std::reverse(dying.begin(), dying.end());
  const bool possible =
      saved.pool == pools_closed_ && is_here(saved.segments) && declaration != Declaration::kWrong;
  const PoolCheckpoint before = pool_->checkpoint();
  try {
    const PoolDelta delta = declaration == Declaration::kAll
                                ? pool_->restore(saved.checkpoint, kAllMayDie)
                                : pool_->restore(saved.checkpoint, dying);
    require(possible, "restored a segment that was given back, or ended what was not declared");
    expect_delta(delta, live_, saved.live);
    live_ = saved.live;
    require((segments_ == saved.segments) == (pool_->checkpoint() == saved.checkpoint),
            "a restored layout is another one");
  } catch (const InvalidArgument&) {
    require(!possible, "refused a right declaration for a checkpoint whose segments are all here");
    require(pool_->checkpoint() == before, "a refused restore changed the layout");
  }
}

// Restores some of the blocks of a checkpoint, possibly in segments that were freed.
void ModelledPool::restore_live(std::uint32_t value) {
  Sizes target;
  const Sizes& from = saved_.empty() ? live_ : saved_[value % saved_.size()].live;
  std::uint32_t coin = value;
  for (const auto& [address, bytes] : from) {
    coin = coin * 1664525 + 1013904223;
    if (coin >> 30 != 0) target.emplace(address, bytes);
  }
  const std::vector<Range> ranges = ranges_of(target);
  const std::vector<Range> segments = pool_->segments();
  const bool possible = std::all_of(ranges.begin(), ranges.end(), [&](const Range& range) {
    return std::any_of(segments.begin(), segments.end(),
                       [&](const Range& segment) { return segment.contains(range); });
  });
  const PoolCheckpoint before = pool_->checkpoint();
  try {
    const PoolDelta delta = pool_->restore_live(ranges);
    require(possible, "accepted a range outside the segments");
    expect_delta(delta, live_, target);
    live_ = target;
  } catch (const InvalidArgument&) {
    require(!possible, "refused ranges that lie in the segments");
    require(pool_->checkpoint() == before, "a refused restore changed the layout");
  }
}

std::size_t ModelledPool::pinned_bytes(std::uintptr_t address, const Known& known) const {
  std::size_t most = 0;
  for (const Saved& saved : saved_) {
    const auto found = saved.segments.find(address);
    if (found == saved.segments.end() || found->second.number != known.number) continue;
    most = std::max(most, found->second.bytes);
  }
  return most;
}

// Returns the bytes of a segment that stay after a trim; 0 if it is freed.
std::size_t ModelledPool::bytes_after_trim(std::uintptr_t address, const Known& known,
                                           bool spares_pinned) const {
  const std::size_t pinned = spares_pinned ? pinned_bytes(address, known) : 0;
  auto block = live_.lower_bound(address + known.bytes);
  const bool is_free = block == live_.begin() || (--block)->first < address;
  if (growth_ != Growth::kInPlace) return is_free && pinned == 0 ? 0 : known.bytes;
  const std::size_t used = is_free ? 0 : block->first + block->second - address;
  const std::size_t least = std::max(used, pinned);
  return std::min(known.bytes, (least + kGranularity - 1) / kGranularity * kGranularity);
}

void ModelledPool::trim(bool spares_pinned) {
  std::size_t expected = 0;
  for (auto position = segments_.begin(); position != segments_.end();) {
    auto& [address, known] = *position;
    const std::size_t stays = bytes_after_trim(address, known, spares_pinned);
    expected += known.bytes - stays;
    known.bytes = stays;
    position = stays == 0 ? segments_.erase(position) : std::next(position);
  }
  const std::size_t bytes =
      spares_pinned && growth_ != Growth::kInPlace ? pool_->give_back_unused() : pool_->trim();
  require(bytes == expected, "gave other bytes back than those without use");
}

// Closes the pool and continues with a new one, which accepts no checkpoint of the first.
void ModelledPool::reopen() {
  pool_->restore_live({});
  live_.clear();
  segments_.clear();
  pool_->close();
  ++pools_closed_;
  require(source_.held().empty(), "a closed pool has segments");
  int refusals = 0;
  try {
    pool_->allocate(1);
  } catch (const InvalidArgument&) {
    ++refusals;
  }
  try {
    pool_->free(pointer_to(std::uintptr_t{1} << 40));
  } catch (const InvalidArgument&) {
    ++refusals;
  }
  require(refusals == 2, "a closed pool was used");
  open();
}

// Returns the smallest gap between live blocks that holds `bytes`; the lowest of equal ones.
std::optional<Range> ModelledPool::best_fit(std::size_t bytes) const {
  struct Gap {
    Range range;
    bool is_end;  // of a segment
  };
  std::vector<Gap> gaps;
  const auto offer = [&](std::uintptr_t from, std::uintptr_t to, bool is_end) {
    if (to - from >= bytes) gaps.push_back({{from, to - from}, is_end});
  };
  for (const Range& segment : source_.held()) {
    std::uintptr_t position = segment.address;
    for (auto block = live_.lower_bound(segment.address);
         block != live_.end() && block->first < segment.end(); ++block) {
      offer(position, block->first, /*is_end=*/false);
      position = block->first + block->second;
    }
    offer(position, segment.end(), /*is_end=*/true);
  }
  if (gaps.empty()) return std::nullopt;
  std::sort(gaps.begin(), gaps.end(), [](const Gap& a, const Gap& b) {
    return std::pair(a.range.bytes, a.range.address) < std::pair(b.range.bytes, b.range.address);
  });
  const bool keeps_end = growth_ == Growth::kInPlace && gaps[0].is_end && gaps.size() > 1;
  return keeps_end && !gaps[1].is_end ? gaps[1].range : gaps[0].range;
}

void ModelledPool::expect_delta(const PoolDelta& delta, const Sizes& before, const Sizes& after) {
  require(delta.died == difference(ranges_of(before), ranges_of(after)), "delta.died is wrong");
  require(delta.became_live == difference(ranges_of(after), ranges_of(before)),
          "delta.became_live is wrong");
}

void ModelledPool::note_segments() {
  for (const Range& segment : pool_->segments()) {
    const auto [known, is_new] =
        segments_.try_emplace(segment.address, Known{segments_seen_, segment.bytes});
    if (is_new) ++segments_seen_;
    known->second.bytes = segment.bytes;
  }
}

void ModelledPool::compare() {
  pool_->validate();
  require(pool_->live() == ranges_of(live_), "other blocks are live than in the model");
  require(pool_->segments() == source_.held(), "other segments than the source has given");
  std::vector<Range> known;
  for (const auto& [address, segment] : segments_)
    known.push_back({address, segment.bytes});
  require(pool_->segments() == known, "other segments than in the model");
}

}  // namespace cgtree
