// Joins the ranges of footprints, and tells owners which recordings keep their memory.
#include "cgtree/memory/recorded_memory.h"

#include <algorithm>
#include <exception>

#include "base/log_event.h"
#include "cgtree/memory/context_memory.h"

namespace cgtree {
namespace {

void tell(Storage& storage, const ContextMemory& keeper) noexcept {
  try {
    storage.owner().used(storage, keeper.stream());
  } catch (const std::exception& error) {
    log_event(LogLevel::kError, "use_not_noted bytes={} error=\"{}\"", storage.bytes(),
              error.what());
  }
}

}  // namespace

Footprint::Footprint(std::vector<Range> ranges) : ranges_(std::move(ranges)) {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const Range& a, const Range& b) { return a.address < b.address; });
  std::size_t kept = 0;
  for (const Range& range : ranges_) {
    if (kept > 0 && range.address <= ranges_[kept - 1].end()) {
      Range& last = ranges_[kept - 1];
      last.bytes = std::max(last.end(), range.end()) - last.address;
    } else {
      ranges_[kept++] = range;
    }
  }
  ranges_.resize(kept);
}

bool Footprint::overlaps(const Range& range) const {
  const auto after = std::upper_bound(
      ranges_.begin(), ranges_.end(), range.address,
      [](std::uintptr_t address, const Range& candidate) { return address < candidate.end(); });
  return after != ranges_.end() && after->overlaps(range);
}

KeptStorages::KeptStorages(std::vector<StorageRef> storages, ContextMemory& keeper,
                           std::size_t room)
    : KeptStorages(keeper) {
  storages_.reserve(storages.size() + room);
  for (StorageRef& storage : storages)
    add(std::move(storage));
}

void KeptStorages::add(StorageRef storage) {
  if (ContextMemory* const owner = ContextMemory::of(*storage))
    owner->add_keeper(*storage, *keeper_);
  storages_.push_back(std::move(storage));
}

void KeptStorages::end() noexcept {
  if (!keeper_->takes_over(storages_)) let_go(storages_, *keeper_);
}

void KeptStorages::let_go(std::span<const StorageRef> storages, ContextMemory& keeper) noexcept {
  for (const StorageRef& storage : storages) {
    tell(*storage, keeper);
    ContextMemory* const owner = ContextMemory::of(*storage);
    if (owner != nullptr) owner->remove_keeper(*storage, keeper);
  }
}

bool KeptStorages::any_stale() const noexcept {
  return std::any_of(storages_.begin(), storages_.end(), [](const StorageRef& storage) {
    return storage->state() == Storage::State::kStale;
  });
}

}  // namespace cgtree
