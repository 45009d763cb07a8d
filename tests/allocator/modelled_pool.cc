// Steps a pool and its model side by side.
#include "tests/allocator/modelled_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "allocator/sizes.h"
#include "base/error.h"

namespace cgtree {
namespace {

constexpr const char* kVerbs[] = {"allocate",     "free", "checkpoint", "restore",
                                  "restore_live", "trim", "fail_next"};

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

// Most are small; some need a segment of their own.
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
  return out << kVerbs[static_cast<int>(step.verb)] << '(' << step.value << ')';
}

ModelledPool::~ModelledPool() {
  for (const Range& block : pool_.live())
    pool_.free(reinterpret_cast<void*>(block.address));
}

void ModelledPool::take(const Step& step) {
  switch (step.verb) {
    case Verb::kAllocate:
      allocate(step.value);
      break;
    case Verb::kFree:
      free(step.value);
      break;
    case Verb::kCheckpoint:
      saved_.push_back({pool_.checkpoint(), live_, segments_});
      require(saved_.back().checkpoint == pool_.checkpoint(),
              "two checkpoints of one state differ");
      break;
    case Verb::kRestore:
      restore(step.value);
      break;
    case Verb::kRestoreLive:
      restore_live(step.value);
      break;
    case Verb::kTrim:
      trim();
      break;
    case Verb::kFailNext:
      source_.fail_from(1);
      allocate(step.value);
      source_.fail_no_more();
      break;
  }
  compare();
}

void ModelledPool::allocate(std::uint32_t value) {
  const std::size_t bytes = size_from(value);
  const std::optional<Range> expected = best_fit(block_bytes(bytes));
  const PoolCheckpoint before = pool_.checkpoint();
  try {
    const auto address = reinterpret_cast<std::uintptr_t>(pool_.allocate(bytes));
    note_new_segments();
    require(!expected || address == expected->address, "not the lowest of the smallest that fit");
    require(live_.emplace(address, block_bytes(bytes)).second, "handed out twice");
  } catch (const OutOfMemory&) {
    require(!expected, "refused although a free block holds it");
    require(pool_.checkpoint() == before, "a refused allocation changed the layout");
  }
}

void ModelledPool::free(std::uint32_t value) {
  if (live_.empty()) return;
  const auto block = std::next(live_.begin(), value % live_.size());
  pool_.free(reinterpret_cast<void*>(block->first));
  live_.erase(block);
}

void ModelledPool::restore(std::uint32_t value) {
  if (saved_.empty()) return;
  const Saved& saved = saved_[value % saved_.size()];
  const bool possible = std::includes(segments_.begin(), segments_.end(), saved.segments.begin(),
                                      saved.segments.end());
  const PoolCheckpoint before = pool_.checkpoint();
  try {
    const PoolDelta delta = pool_.restore(saved.checkpoint, kAllMayDie);
    require(possible, "restored a segment that is gone");
    expect_delta(delta, live_, saved.live);
    live_ = saved.live;
    require((segments_ == saved.segments) == (pool_.checkpoint() == saved.checkpoint),
            "a restored layout is another one");
  } catch (const InvalidArgument&) {
    require(!possible, "refused a checkpoint whose segments are all here");
    require(pool_.checkpoint() == before, "a refused restore changed the layout");
  }
}

// Some of the blocks of a checkpoint, some of which may lie in segments that are gone.
void ModelledPool::restore_live(std::uint32_t value) {
  Sizes target;
  const Sizes& from = saved_.empty() ? live_ : saved_[value % saved_.size()].live;
  std::uint32_t coin = value;
  for (const auto& [address, bytes] : from) {
    coin = coin * 1664525 + 1013904223;
    if (coin >> 30 != 0) target.emplace(address, bytes);
  }
  const std::vector<Range> ranges = ranges_of(target);
  const std::vector<Range> segments = pool_.segments();
  const bool possible = std::all_of(ranges.begin(), ranges.end(), [&](const Range& range) {
    return std::any_of(segments.begin(), segments.end(),
                       [&](const Range& segment) { return segment.contains(range); });
  });
  const PoolCheckpoint before = pool_.checkpoint();
  try {
    const PoolDelta delta = pool_.restore_live(ranges);
    require(possible, "accepted a range outside the segments");
    expect_delta(delta, live_, target);
    live_ = target;
  } catch (const InvalidArgument&) {
    require(!possible, "refused ranges that lie in the segments");
    require(pool_.checkpoint() == before, "a refused restore changed the layout");
  }
}

void ModelledPool::trim() {
  std::size_t expected = 0;
  for (const Range& segment : pool_.segments()) {
    const auto block = live_.lower_bound(segment.address);
    if (block != live_.end() && block->first < segment.end()) continue;
    expected += segment.bytes;
    segments_.erase(segment.address);
  }
  require(pool_.trim() == expected, "trim() gave other segments back than the free ones");
}

// The smallest gap between live blocks that holds `bytes`; of several the lowest.
std::optional<Range> ModelledPool::best_fit(std::size_t bytes) const {
  std::optional<Range> best;
  const auto offer = [&](std::uintptr_t from, std::uintptr_t to) {
    const std::size_t gap = to - from;
    if (gap >= bytes && (!best || gap < best->bytes)) best = Range{from, gap};
  };
  for (const Range& segment : source_.held()) {
    std::uintptr_t position = segment.address;
    for (auto block = live_.lower_bound(segment.address);
         block != live_.end() && block->first < segment.end(); ++block) {
      offer(position, block->first);
      position = block->first + block->second;
    }
    offer(position, segment.end());
  }
  return best;
}

void ModelledPool::expect_delta(const PoolDelta& delta, const Sizes& before, const Sizes& after) {
  require(delta.died == difference(ranges_of(before), ranges_of(after)), "delta.died is wrong");
  require(delta.became_live == difference(ranges_of(after), ranges_of(before)),
          "delta.became_live is wrong");
}

void ModelledPool::note_new_segments() {
  for (const Range& segment : pool_.segments()) {
    if (segments_.emplace(segment.address, segments_seen_).second) ++segments_seen_;
  }
}

void ModelledPool::compare() {
  pool_.validate();
  require(pool_.live() == ranges_of(live_), "other blocks are live than in the model");
  require(pool_.segments() == source_.held(), "other segments than the source has given");
  require(pool_.segments().size() == segments_.size(), "other segments than in the model");
}

}  // namespace cgtree
