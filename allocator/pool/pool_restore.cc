// Takes checkpoints of a pool and restores them.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "allocator/pool/pool.h"
#include "base/error.h"

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

// Both sorted. Throws for the first way in which they differ.
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

PoolCheckpoint Pool::checkpoint() const {
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
  const std::lock_guard lock(mutex_);
  expect_open();
  return apply(layout_.transition_to(live, observer_ != nullptr));
}

// Nothing in here throws: the transition was worked out before.
PoolDelta Pool::apply(Transition transition) {
  layout_.apply(transition);
  // What ends comes first: the peaks must not count what never was there together.
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

}  // namespace cgtree
