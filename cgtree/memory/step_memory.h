// StepAllocations: the allocations of a step in progress, and the blocks that it frees at its end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "allocator/pool/block.h"
#include "base/room.h"
#include "cgtree/memory/plain_memory.h"
#include "cgtree/memory/slots.h"
#include "interop/device/graph_api.h"
#include "interop/device/stream.h"
#include "interop/tensor/storage.h"

namespace cgtree {

// A ConditionalBodies is a conditional node of a graph, with the graphs that it runs.
struct ConditionalBodies {
  NodeHandle node;
  std::vector<GraphHandle> graphs;
};

// A StepAllocations belongs to one step: a warm-up, a recording or an eager call.
//
// Thread safety: guarded by the mutex of ContextMemory while the step is open, except members that
// only the thread of the step uses.
struct StepAllocations {
  enum class Kind { kWarmUp, kRecord, kEager };

  Kind kind = Kind::kEager;
  // For kEager: the id of the foreign capture that is open on the step's stream, or 0.
  std::uint64_t foreign_capture = 0;
  // For kRecord: the allocations, by number in the step, that became outputs in the warm-up.
  // Sorted; null if there are none.
  const std::vector<std::uint32_t>* output_allocations = nullptr;
  std::uint32_t count = 0;            // the number of allocations so far
  std::vector<Storage*> alive;        // tag.position is the index in this list
  std::vector<Storage*> eager;        // for kEager: live storages; tag.place is this step
  std::vector<Range> ranges;          // of all allocations, dead or alive
  std::vector<StorageRef> kept;       // for kRecord: other memory that the work of the step uses
  std::vector<StorageRef> elsewhere;  // for kRecord: allocated outside of the pools
  std::vector<ConditionalBodies> bodies;  // for kRecord: of its graphs, and of their bodies
  bool has_run_out = false;               // for kRecord: memory has run out
  std::vector<std::uint64_t> workspaces;  // for kWarmUp: those that it uses
  std::vector<const Storage*> written;    // for kRecord: written in place by nested calls
  std::vector<PlainUse> plain_uses;       // for kRecord: of nested calls
  // For kRecord: storages that replace allocations, by number in the step, and the replaced ones.
  std::vector<std::pair<std::uint32_t, StorageRef>> stand_ins;
  std::vector<StorageRef> replaced;
  bool is_in_replay = false;     // for kEager: a recording is in use, so all must stay
  bool is_verification = false;  // for kEager: a verification, which does not count as a call
  bool is_paused = false;        // for kRecord: code outside of the step is running
  bool is_in_body = false;       // for kRecord: captured work may run again, and read memory

  // The thread of the step, and the streams that it has forked.
  std::thread::id thread;
  std::optional<StreamFork> fork;
  bool has_side_work = false;                      // a storage was used on another stream
  bool has_freed_remotely = false;                 // another thread has freed a block
  bool has_ended_remotely = false;                 // another thread has ended an output
  std::vector<std::pair<Region, void*>> deferred;  // blocks that are freed when the step ends

  void begin() noexcept {
    thread = std::this_thread::get_id();
    fork.emplace(current_stream_or_none());
  }

  // Returns true in a body, and if work of the step on a second stream may not be joined yet.
  // Blocks that are freed then stay allocated: the second stream may not have reached their use.
  // After note_use() on another stream, or a free on another thread, only the end of the step
  // guarantees that all streams have joined.
  bool defers_frees() const noexcept {
    return has_side_work || std::this_thread::get_id() != thread || is_in_body ||
           !fork->is_joined();
  }
  // Returns true if deferred blocks may be freed before the end.
  bool may_free_deferred() const noexcept {
    return !deferred.empty() && !has_freed_remotely && !defers_frees();
  }

  // Notes a workspace that a warm-up uses, once. `workspace`: 0 for none.
  void note_workspace(std::uint64_t workspace) {
    if (workspace != 0 &&
        std::find(workspaces.begin(), workspaces.end(), workspace) == workspaces.end())
      workspaces.push_back(workspace);
  }

  bool is_output(std::uint32_t number) const noexcept {
    return output_allocations != nullptr &&
           std::binary_search(output_allocations->begin(), output_allocations->end(), number);
  }

  // Returns the replacement of allocation `number`, or the storage itself.
  StorageRef handed_out(std::uint32_t number, StorageRef storage) {
    for (const auto& [replaced_number, stand_in] : stand_ins) {
      if (replaced_number != number || stand_in->bytes() != storage->bytes()) continue;
      replaced.push_back(std::move(storage));
      return stand_in;
    }
    return storage;
  }

  // Adds a storage of the step. Throws std::bad_alloc; nothing has changed then.
  void add(Storage& storage) {
    make_room(ranges);
    alive.push_back(&storage);
    ranges.push_back({storage.address(), storage.bytes()});
    storage.tag.position = static_cast<std::uint32_t>(alive.size() - 1);
  }
  bool contains(const Storage& storage) const noexcept {
    const std::uint32_t position = storage.tag.position;
    return position < alive.size() && alive[position] == &storage;
  }
  // Removes a storage from `alive`. Requires: contains(storage).
  void remove(const Storage& storage) noexcept {
    const std::uint32_t position = storage.tag.position;
    alive[position] = alive.back();
    alive[position]->tag.position = position;
    alive.pop_back();
  }

  void remove_eager(Storage& storage) noexcept {
    eager.back()->tag.position = storage.tag.position;
    eager[storage.tag.position] = eager.back();
    eager.pop_back();
    storage.tag.place = nullptr;
  }

  // Makes room in `deferred` for all live storages and `more` others: a release must not throw.
  void reserve_deferred(std::size_t more) {
    const std::size_t most = deferred.size() + alive.size() + more;
    if (deferred.capacity() < most) deferred.reserve(2 * most);
  }
};

}  // namespace cgtree
