// Footprint and KeptStorages: the memory that the replays of a recording use and that is no input.
// The first is what the recording has allocated itself, which must be free when it is replayed. The
// second is all else: it lives as long as the recording does, or ends it.
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
// tensors whose address the step function has asked for, and the workspaces that step functions of
// the context had kept when it was made, any of which it may use. When it ends, replays may still
// be running: it notes the stream where the context works by then at the owners of the memory,
// which wait for it before they use the memory again. A stream that captures cannot be noted, and
// then the keeper takes the memory over. An owner that ends the life of one of them tells the
// keeper.
class KeptStorages {
 public:
  KeptStorages() = default;
  // `keeper`: has the recording; must outlive it. `room`: for so many calls of add(). Throws
  // std::bad_alloc.
  KeptStorages(std::vector<StorageRef> storages, ContextMemory& keeper, std::size_t room = 0);
  ~KeptStorages() {
    if (!storages_.empty()) end();
  }
  // Has the owners of the storages, which the keeper keeps no longer, wait for its replays.
  static void let_go(std::span<const StorageRef> storages, ContextMemory& keeper) noexcept;
  // Throws std::bad_alloc, unless there is room and the keeper itself owns the memory.
  void add(StorageRef storage);
  // Returns true if mark_step() has ended one of them: an output of an earlier call.
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
