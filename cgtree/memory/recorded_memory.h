// Footprint and KeptStorages: the memory, apart from inputs, that replays of a recording use. A
// Footprint is memory that the recording allocated itself; it must be free at a replay. A
// KeptStorages holds all other memory: it lives as long as the recording, or its end drops the
// recording.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "allocator/pool/block.h"
#include "interop/tensor/storage.h"

namespace cgtree {

class ContextMemory;

// A Footprint is a set of ranges: sorted, disjoint and not touching.
class Footprint {
 public:
  Footprint() = default;
  explicit Footprint(std::vector<Range> ranges);

  bool overlaps(const Range& range) const;

  const std::vector<Range>& ranges() const noexcept { return ranges_; }
  std::size_t bytes() const noexcept {
    std::size_t sum = 0;
    for (const Range& range : ranges_)
      sum += range.bytes;
    return sum;
  }

 private:
  std::vector<Range> ranges_;
};

// A KeptStorages keeps memory alive for the replays of a recording: both sides of its copies, the
// tensors whose address the step function asked for, and the workspaces that step functions of the
// context kept when it was made, because it may use any of them. When it is destroyed, replays may
// still be running: it notes the context's present stream with the owners of the memory, which wait
// for it before they reuse the memory. A stream that captures cannot be noted; the keeper then
// takes the memory over. An owner that ends the life of a storage tells the keeper.
class KeptStorages {
 public:
  KeptStorages() = default;
  // `keeper`: the context of the recording; must outlive it. `room`: for this many calls of add().
  // Throws std::bad_alloc.
  KeptStorages(std::vector<StorageRef> storages, ContextMemory& keeper, std::size_t room = 0);
  ~KeptStorages() {
    if (!storages_.empty()) end();
  }
  // Makes the owners of the storages, which the keeper no longer keeps, wait for its replays.
  static void let_go(std::span<const StorageRef> storages, ContextMemory& keeper) noexcept;
  // Throws std::bad_alloc, unless there is room and the keeper itself owns the memory.
  void add(StorageRef storage);
  // Returns true if mark_step() has ended one of them, an output of an earlier call.
  bool any_stale() const noexcept;
  // Throws StaleTensor if one of them has ended.
  void expect_live() const {
    for (const StorageRef& storage : storages_)
      (void)storage->data();
  }
  const std::vector<StorageRef>& storages() const noexcept { return storages_; }

  KeptStorages(KeptStorages&&) = default;
  KeptStorages& operator=(KeptStorages&& other) noexcept {
    std::swap(storages_, other.storages_);
    std::swap(keeper_, other.keeper_);
    return *this;
  }

 private:
  explicit KeptStorages(ContextMemory& keeper) noexcept : keeper_(&keeper) {}
  void end() noexcept;

  std::vector<StorageRef> storages_;
  ContextMemory* keeper_ = nullptr;
};

}  // namespace cgtree
