// ContextMemory: the pools of a context, the storages in them, and which of them are live.
//
// While warming up or recording the pools' bookkeeping is the live memory ("tracking"). While
// replaying it is not touched: the live mask stands in for it, and the next warm-up or recording
// restores the layout that has exactly the live slots. Invariants, walked by validate():
//   tracking  =>  live blocks of retained and transient == ranges of tracked slots, outside a step
//   bit of slot set  =>  slot.current is live
//   references of the memory == 1 (the manager) + storages not yet released
//
// Threads: storages may be released on any thread; everything else belongs to the lane.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "allocator/caching/device_allocator.h"
#include "allocator/segments/limited_source.h"
#include "allocator/pool/pool.h"
#include "allocator/segments/segment_cache.h"
#include "allocator/segments/virtual_segment_source.h"
#include "cgtree/options.h"
#include "cgtree/memory/live_mask.h"
#include "cgtree/memory/slot.h"
#include "interop/device/current_stream.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/storage.h"
#include "interop/device/stream.h"

namespace cgtree {

// What a step in progress allocates from, and what it has allocated.
struct StepAllocations {
  enum class Kind { kWarmUp, kRecord, kEager };

  Kind kind = Kind::kEager;
  // kRecord: the allocations, by number in the step, that became outputs when it was warmed up.
  const std::vector<std::uint32_t>* retained = nullptr;
  std::uint32_t count = 0;       // allocations so far
  std::vector<Storage*> alive;   // tag.position is the index here
  std::vector<Range> ranges;     // of all of them, dead or alive
  std::vector<StorageRef> kept;  // kRecord: what is not of the step, but its work uses

  // Where the step has put work on a second stream, what it frees stays taken until it ends: the
  // other stream may not have come to it yet, and only at the end all streams have joined.
  bool defers_frees() const noexcept {
    return has_side_work || std::this_thread::get_id() != thread ||
           stream_scopes_opened() != scopes_before;
  }
  std::thread::id thread;  // that runs the step
  std::uint64_t scopes_before = 0;
  bool has_side_work = false;  // as told by note_use()
  std::vector<std::pair<Region, void*>> deferred;
};

class ContextMemory final : public StorageOwner, public StorageAllocator {
 public:
  ContextMemory(Device device, const ContextOptions& options);

  // The memory deletes itself when the last reference goes: the manager holds one, and each storage
  // that is not released yet.
  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void unretain() noexcept;

  StreamRef stream() const noexcept { return stream_; }
  Device device() const noexcept override { return device_; }
  const LiveMask& live() const noexcept { return live_; }
  std::uint64_t generation() const noexcept { return generation_.load(std::memory_order_relaxed); }
  std::uint64_t restores() const noexcept { return restores_; }
  std::uint32_t slot_count() const noexcept { return slot_count_; }
  const Slot& slot(std::uint32_t number) const { return slots_[number]; }
  // Whether the storage is an output (or left behind) of this lane, at an address of its own.
  bool manages(const Storage& storage) const noexcept {
    return &storage.owner() == this && storage.tag.kind == kInSlot;
  }
  // Whether any output is held.
  bool any_output_live() const noexcept { return live_.any_beside(persistent_); }
  std::size_t live_outputs() const;
  std::size_t live_bytes() const;
  std::size_t reserved_bytes() const;
  // Whether it lies in one of the pools.
  bool owns(const void* address) const;
  Pool& pool(Region region) noexcept { return *pools_[static_cast<int>(region)]; }

  // Ends the generation: live outputs become stale.
  void mark_step();

  // Before a step is warmed up or recorded / before a replay.
  void begin_tracking();
  void end_tracking() noexcept {
    if (tracking_.load(std::memory_order_relaxed)) [[unlikely]] {
      stop_tracking();
    }
  }

  // Steps. At most one is open; see StepScope.
  void begin_step(StepAllocations& step);
  void end_step(StepAllocations& step) noexcept;
  // Everything the step allocated is given up; the pools are as they were before it.
  void abandon_step(StepAllocations& step) noexcept;

  // For empty(), inside a step.
  StorageRef allocate(std::size_t bytes) override;
  bool keep(const StorageRef& storage) override;
  void used(Storage& storage, StreamRef stream) override;
  // The copy of an input; not counted among the step's own allocations.
  StorageRef allocate_input_copy(std::size_t bytes);

  // Moves an output of a warm-up to the retained region, on the stream. Requires an open step.
  void move_to_output_region(Storage& storage);
  // Makes the slots that settling what the step has alive will need, so that settling cannot fail.
  void reserve_slots();
  // From now on the storage lives in a slot: its release clears the slot's bit. Requires
  // reserve_slots().
  Slot& settle(Storage& storage, std::uint32_t function, std::uint32_t output) noexcept;
  // Settles all that the step has alive beside its outputs; mark_step() will leave it alone.
  void settle_rest(std::uint32_t function) noexcept;
  // Whether the storage was allocated by the open step (and not settled yet).
  bool in_step(const Storage& storage) const noexcept {
    return &storage.owner() == this && storage.tag.kind == kInStep;
  }

  // Another life for the slot's storage. Requires that the slot is not live.
  StorageRef revive(Slot& slot, std::uint32_t function, std::uint32_t output);

  // A storage in the eager pool, whatever step is open; not counted among its allocations.
  StorageRef allocate_value(std::size_t bytes) {
    return allocate_in(Region::kEager, bytes, kEagerBlock);
  }

  // A block of the eager pool, for tables that recordings read.
  void* allocate_table(std::size_t bytes) { return pool(Region::kEager).allocate(bytes); }
  void free_table(void* table) noexcept { pool(Region::kEager).free(table); }

  // StorageOwner.
  void release(Storage& storage, bool was_live) noexcept override;
  void throw_stale(const Storage& storage) const override;

  // While the hold lives, no memory goes back to the device: a capture is open.
  DeferredFrees defer_frees() noexcept { return cache_.defer_frees(); }

  // Whom to ask when memory is short, here or in another context of the device; null: nobody. The
  // bytes that are needed, to the bytes that trim() gave back. Any thread.
  void set_pressure(LimitedSource::Pressure pressure);
  // Gives the recorded pools' unused segments back, but for those in which one of `kept` lies;
  // returns their bytes. Not while a step is recorded.
  std::size_t trim(std::span<const Range> kept);
  // Whether the calling thread runs a step that is not recorded.
  bool runs_eager_step_here() const noexcept;

  // For messages about its outputs, which may outlive the function.
  void set_function_name(std::uint32_t function, std::string name);
  std::string function_name(std::uint32_t function) const;  // "" if there is none

  void validate() const;

 private:
  enum Kind : std::uint8_t { kInStep, kInSlot, kEagerBlock };
  static constexpr std::uint32_t kNoNumber = ~std::uint32_t{0};

  ~ContextMemory();
  // Whether all work on the lane's stream has ended.
  bool wait_for_stream() noexcept;
  StorageRef allocate_in(Region region, std::size_t bytes, Kind kind);
  Slot& settle_locked(Storage& storage, std::uint32_t function, std::uint32_t output,
                      bool persistent) noexcept;
  void release_from_step(Storage& storage, bool was_live) noexcept;
  void release_from_slot(Storage& storage, bool was_live) noexcept;
  void release_from_eager(Storage& storage) noexcept;
  void end_life(Slot& slot) noexcept;
  void free_if_dead(Slot& slot) noexcept;
  void close_step() noexcept;
  void free_slots() noexcept;
  void free_in_step(Region region, void* data) noexcept;
  void reserve_deferred();
  void stop_tracking() noexcept;
  Region region_of(const Storage& storage) const;

  // Constant after construction.
  const Device device_;
  const std::shared_ptr<const void> owner_;  // of what the options lend
  std::optional<Stream> own_stream_;
  StreamRef stream_;
  const std::shared_ptr<DeviceSegments> shared_;     // null: segments are not shared
  const std::unique_ptr<SegmentSource> own_source_;  // for pools that grow in place
  const std::unique_ptr<SegmentCache> own_cache_;    // where they are not shared
  SegmentCache& cache_;                              // the one or the other
  Budget budget_;
  LimitedSource segments_;
  std::optional<SegmentCache::ObserverId> pressure_;
  std::unique_ptr<Pool> pools_[3];  // by Region

  std::atomic<std::size_t> references_{1};
  std::atomic<bool> tracking_{true};

  // The lane's.
  LiveMask live_;
  SlotSet persistent_;            // slots that a warm-up left behind
  std::deque<Slot> slots_;        // by number; addresses are stable
  std::uint32_t slot_count_ = 0;  // == slots_.size(), which a deque has to work out
  std::map<std::pair<std::uintptr_t, std::size_t>, Slot*> slots_by_range_;
  std::atomic<std::uint64_t> generation_{0};  // written by the lane
  std::uint64_t restores_ = 0;
  StepAllocations* step_ = nullptr;           // written under mutex_
  std::atomic<std::size_t> eager_blocks_{0};  // live ones of the eager pool

  mutable std::mutex mutex_;
  std::map<std::uint32_t, std::string> names_;  // guarded by mutex_
};

}  // namespace cgtree
