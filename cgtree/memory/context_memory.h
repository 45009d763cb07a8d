// ContextMemory: the storages of a context, and which of them are live.
//
// While a step is warmed up or recorded, the bookkeeping of the pools describes the live memory
// ("tracking"). Replays do not touch it: the live mask of the slots replaces it, and the next
// warm-up or recording restores the layout of exactly the live slots. Invariants, checked by
// validate():
//
//   tracking, outside a step  =>  live blocks of output and scratch == ranges of tracked slots
//   references                ==  1 (the manager) + storages not yet released that are in no slot;
//                                 once the manager has ended, + live slots
//
// The release of an output is one atomic operation on its storage. Everything else in a release
// comes before it, because the context may revive the storage once it has no references:
//
//   a slot's storage has references  =>  only the thread of the last reference ends its life, or
//                                        mark_step(): one compare-and-swap decides
//   a slot's storage has none        =>  only the caller of the context uses it
//   a storage is invalidated         =>  it is in no slot; the last release deletes it
//
// Example: step f is recorded, with its output in slot 0.
//
//   replay f            slot 0 is live; the pools are not touched
//   record g            begin_tracking() restores {slot 0} in the pools, so that g's allocations
//                       avoid f's output; g's output is settled into slot 1
//   release f's output  ends the life in slot 0 and, while tracking, frees its block
//   replay f            end_tracking(); from here on only lives begin and end
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"
#include "base/published.h"
#include "cgtree/memory/context_pools.h"
#include "cgtree/memory/context_stream.h"
#include "cgtree/memory/declared_memory.h"
#include "cgtree/memory/plain_memory.h"
#include "cgtree/memory/slots.h"
#include "cgtree/memory/step_memory.h"
#include "cgtree/values/options.h"
#include "interop/device/stream.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/storage.h"

namespace cgtree {

// Thread safety: any thread may release storages, and monitors may read counts and pools;
// everything else belongs to the caller of the context.
class ContextMemory final : public StorageOwner, public StorageAllocator, public StorageDomain {
 public:
  // Throws InvalidArgument if the options contradict the device.
  ContextMemory(Device device, const ContextOptions& options);

  const bool is_checked;  // see ContextOptions
  // Returns the context that owns a storage, or null for other memory.
  static ContextMemory* of(const Storage& storage) noexcept;

  // Drops the manager's reference. The memory deletes itself with its last reference: the
  // manager's, or that of a storage that is not released yet.
  void end() noexcept;

  // Returns the stream where the context works now. May be called from any thread.
  StreamRef stream() const noexcept { return stream_.get(); }
  // Returns whether this stream is of another partition of processors than recordings are for.
  bool is_apart() const noexcept { return stream_.is_apart(); }
  ContextStream& streams() noexcept { return stream_; }
  const ContextStream& streams() const noexcept { return stream_; }
  PlainMemoryUser& plain() noexcept { return plain_; }
  Device device() const noexcept override { return device_; }
  const LiveMask& live() const noexcept { return slots_.live(); }
  std::uint64_t generation() const noexcept { return slots_.generation(); }
  std::uint64_t restores() const noexcept { return restores_; }  // read by any thread
  std::uint32_t slot_count() const noexcept { return slots_.count(); }
  const Slot& slot(std::uint32_t number) const { return slots_[number]; }
  // Any thread.
  bool is_live(const Slot& slot) const {
    const std::lock_guard lock(mutex_);
    return slot.is_live();
  }
  // See Slots.
  const std::vector<std::uint32_t>& changed_slots() const noexcept { return slots_.changed(); }
  void clear_changed_slots() noexcept { slots_.clear_changed(); }
  // Returns true if the storage lives in a slot: an output of this context, or kept by a warm-up.
  bool manages(const Storage& storage) const noexcept {
    return &storage.owner() == this && storage.tag.kind == kInSlot;
  }
  // Returns true if a handle to any output exists.
  bool any_output_live() noexcept { return slots_.any_output_live(); }
  // Any thread.
  std::size_t live_outputs() const {
    const std::lock_guard lock(mutex_);
    return slots_.live_count();
  }
  std::size_t live_bytes() const {
    const std::lock_guard lock(mutex_);
    return slots_.live_bytes();
  }
  std::size_t reserved_bytes() const { return pools_.reserved_bytes(); }
  // A SlotState is a copy of a slot, for monitors.
  struct SlotState {
    std::uint32_t number;
    Range range;
    Region region;
    bool is_live;
    bool is_workspace;  // a warm-up has kept it
    Holder holder;      // if it is live
  };
  // Returns the slots that represent a range, by number. Any thread.
  std::vector<SlotState> slot_states() const;
  // Returns true if the address lies in one of the pools.
  bool owns(const void* address) const { return pools_.owns(address); }
  Pool& pool(Region region) const noexcept { return pools_[region]; }

  // Ends the generation: live outputs become stale unless a lease holds them. Returns true if a
  // recording used one of them. Storages used by another context's recordings stay until a later
  // mark_step() while that context's stream is captured: the end of its replays is then unknown.
  bool mark_step();

  // Exempts the storage from mark_step(). Requires: the caller holds a reference, so that the slot
  // is the storage's. Throws StaleTensor, and InvalidArgument for another context's storage.
  void keep_across_steps(const Storage& storage);

  // begin_tracking() must be called before a step is warmed up or recorded, end_tracking() before a
  // replay. keeps_apart: unless memory runs out, the next step avoids the outputs of all
  // recordings, held or not.
  void begin_tracking(bool keeps_apart = false);
  void end_tracking() noexcept {
    if (tracking_.load(std::memory_order_relaxed)) [[unlikely]] {
      stop_tracking();
    }
  }

  // At most one step is open; see StepScope.
  void begin_step(StepAllocations& step);
  void end_step(StepAllocations& step) noexcept;
  // Invalidates everything that the step allocated, except storages with a lease of another
  // library, which stay live; otherwise the pools are as before the step.
  void abandon_step(StepAllocations& step) noexcept;

  // The next functions serve empty() and copies inside a step.
  StorageRef allocate(std::size_t bytes) override;
  void made_elsewhere(const StorageRef& storage) override;
  bool keep(const StorageRef& storage) override;
  // Returns the workspaces that step functions keep: memory that warm-ups and eager runs kept,
  // unless only recordings have references to it.
  std::vector<StorageRef> workspaces() const;
  // Returns the numbers of workspaces that are `used`, or that the function or a failed step made:
  // a step function may have asked for an address in an earlier call.
  std::vector<std::uint64_t> workspaces_of(std::uint32_t function,
                                           std::span<const std::uint64_t> used) const;
  // Returns whether all of these are still workspaces.
  bool holds_workspaces(std::span<const std::uint64_t> workspaces) const;
  // Allocates the copy of an input; it does not count among the step's own allocations.
  StorageRef allocate_input_copy(std::size_t bytes);

  // Returns the number of an allocation in the open step; nothing for copies of inputs and other
  // memory.
  std::optional<std::uint32_t> number_in_step(const Storage& storage) const noexcept {
    if (!in_step(storage) || storage.tag.number == kNoNumber) return std::nullopt;
    return static_cast<std::uint32_t>(storage.tag.number);
  }

  // Moves an output of a warm-up to the output region, on the stream. Requires: a step is open.
  void move_to_output_region(Storage& storage);
  // Makes the slots that the live storages of the step need, so that settling cannot fail: settle()
  // for those of `outputs`, settle_rest() for the rest.
  void reserve_slots(std::span<const Tensor> outputs);
  // Puts the storage into a slot, which is live as long as the storage has references. Requires:
  // reserve_slots() was called.
  Slot& settle(Storage& storage, std::uint32_t function, std::uint32_t output) noexcept;
  // Settles all other live storages of the step; mark_step() does not end them.
  void settle_rest(std::uint32_t function) noexcept;
  // Notes, when an open eager step has ended, the memory that it keeps besides its outputs: these
  // are workspaces. Throws std::bad_alloc.
  void note_kept(std::uint32_t function, std::span<const Tensor> outputs);
  // Returns true if the storage was allocated by the open step and is not settled yet.
  bool in_step(const Storage& storage) const noexcept {
    return &storage.owner() == this && storage.tag.kind == kInStep;
  }

  // Makes the slot's storage live again. Requires: the slot is not live. `now`: generation().
  StorageRef revive(Slot& slot, std::uint32_t function, std::uint32_t output, std::uint64_t now) {
    CGTREE_DCHECK(!slot.is_live());
    slot.outlives_steps = false;
    Storage* const last = slot.current();
    Storage& current = last != nullptr ? *last : add_storage(slot);
    current.tag.position = output;
    current.tag.function = function;
    current.tag.number = now;
    slot.holder = Holder{function, output};
    Slots::set_live(slot);
    return StorageRef::first(current);
  }

  // Allocates a storage in the eager pool, whatever step is open, and does not count it in the
  // step.
  StorageRef allocate_value(std::size_t bytes) {
    return allocate_in(Region::kEager, bytes, kEagerBlock);
  }

  // Returns pinned memory for data that replays read from the host.
  Tensor empty_pinned(const Shape& shape, DType dtype) { return pools_.empty_pinned(shape, dtype); }

  // Allocates a block of the eager pool, for tables that recordings read.
  void* allocate_table(std::size_t bytes) { return pool(Region::kEager).allocate(bytes); }
  void free_table(void* table) noexcept { pool(Region::kEager).free(table); }

  // StorageOwner.
  void release(Storage& storage) noexcept override;
  void release_last(Storage& storage) noexcept override;
  void throw_stale(const Storage& storage) const override;
  void used(Storage& storage, StreamRef stream) override;
  StreamRef stream(const Storage&) const noexcept override { return stream(); }

  // Registers `keeper`, whose recordings use a storage of this context by its address: it is told
  // when invalidate() ends the storage (at once if it has ended), and its replays are waited for.
  // The caller must hold a reference until it calls remove_keeper(), once for each call. References
  // of this context's recordings are counted in the slot: mark_step() returns whether it has ended
  // a storage that they use. Throws std::bad_alloc. Both: any thread.
  void add_keeper(Storage& storage, ContextMemory& keeper);
  void remove_keeper(Storage& storage, ContextMemory& keeper) noexcept;
  // Called when a recording that keeps these storages is destroyed. If its stream is captured, so
  // that the end of its replays is unknown, takes the storages over and returns true.
  bool takes_over(std::vector<StorageRef>& storages) noexcept;
  // Drops the storages that were taken over, unless the stream is still captured.
  void let_go() noexcept;
  // Sets the function that is called, on any thread, when another context has ended a storage that
  // a recording of this context uses. Must be called before recordings exist; the function must not
  // wait, throw or call back.
  void set_on_kept_end(std::function<void()> on_kept_end) { on_kept_end_ = std::move(on_kept_end); }

  // Destroys code of the caller's, which may call the context, after the thread inside has left.
  void leave_behind(std::shared_ptr<const void> code) noexcept {
    if (leave_behind_) leave_behind_(std::move(code));
  }
  // Returns the same code with a deleter that does this.
  template <typename Code>
  std::shared_ptr<Code> end_outside(std::shared_ptr<Code> code) {
    Code* const place = code.get();
    return {place,
            [this, code = std::move(code)](Code*) mutable { leave_behind(std::move(code)); }};
  }
  // Sets the function that does this. Must be called before recordings exist; it must not throw.
  void set_leave_behind(std::function<void(std::shared_ptr<const void>)> leave_behind) {
    leave_behind_ = std::move(leave_behind);
  }

  // Keeps a storage for the graph of a foreign open capture: the graph contains its address, and
  // may run at any time. mark_step() does not end the storage.
  void hold_for_capture(std::uint64_t capture, const StorageRef& storage);
  // Drops the storages held for the graph of one capture, or of all. Returns their number.
  std::size_t release_captured(std::optional<std::uint64_t> capture);

  // Defers frees on the device while the result lives, because a capture is open.
  std::shared_ptr<const void> defer_frees() { return pools_.defer_frees(); }

  // Sets the function that is called when memory is short, here or in another context of the
  // device; null for none. It takes the number of bytes that are needed, and returns the bytes that
  // trim() released. Any thread may call it.
  void set_reclaim(ContextPools::Reclaim reclaim) { pools_.set_reclaim(std::move(reclaim)); }
  // Releases unused segments of the output and scratch regions, except those that contain one of
  // `kept`; returns their bytes. While a step is open, memory whose life has ended is unused if no
  // side stream of the step may still use it. Requires: no step is being recorded.
  std::size_t trim(std::span<const Range> kept);
  // Releases idle segments of the cache to the device.
  void give_back_cached() { pools_.give_back_cached(); }
  // Releases all memory without a storage, and idle segments of the device's cache. Requires: no
  // step is open, and there are no recordings. Throws OutOfMemory.
  void give_back_unused();
  // Returns true if the calling thread runs a step that is not recorded.
  bool runs_eager_step_here() const noexcept;

  // The ranges that the caller has declared. Any thread; shared with code that undeclares later.
  const std::shared_ptr<DeclaredMemory>& declared() const noexcept { return declared_; }

  // Returns the outputs that are held, and storages that warm-ups kept.
  std::vector<StorageRef> live_storages() const;

  // Called when the context ends. A storage that outlives it keeps only its segment.
  void end_calls() noexcept;

  // Sets and returns the name of a function for messages about its outputs, which may outlive it.
  void set_function_name(std::uint32_t function, std::string name);
  // Says that the function was removed: its name is forgotten after kRetiredNames others. Any
  // thread.
  void retire_function_name(std::uint32_t function) noexcept;
  // Returns the name, or "#" and the number if the name was forgotten.
  std::string function_name(std::uint32_t function) const;

  // Checks the invariants, and aborts at the first that is broken.
  void validate() const;

 private:
  void kept_has_ended() noexcept {
    if (on_kept_end_) on_kept_end_();
  }
  // The kind of a storage of the context, in Storage::tag.kind.
  enum Kind : std::uint8_t { kInStep, kInSlot, kEagerBlock };
  static constexpr std::uint32_t kNoNumber = ~std::uint32_t{0};
  static constexpr std::uint32_t kNoFunction = 0;  // of storages that a failed step kept

  ~ContextMemory();
  Slot* slot_of(const Storage& storage) const noexcept;
  std::uint32_t* keepers_of(Storage& storage) noexcept;
  std::uint64_t workspace_of(const Storage& storage) const noexcept;
  template <typename Visit>
  void for_each_workspace(Visit&& visit) const;
  Storage& add_storage(Slot& slot);
  StorageRef allocate_in(Region region, std::size_t bytes, Kind kind);
  bool keep_if_leased(Storage& storage) noexcept;
  void settle_locked(Slot& slot, Storage& storage, std::uint32_t function,
                     std::uint32_t output) noexcept;
  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void unretain() noexcept;
  // Atomic, because settle() may change the kind on another thread.
  static Kind kind_of(Storage& storage) noexcept {
    return static_cast<Kind>(__atomic_load_n(&storage.tag.kind, __ATOMIC_ACQUIRE));
  }
  [[gnu::noinline]] void release_in_order(Storage& storage) noexcept;
  void release_from_step(Storage& storage) noexcept;
  void release_from_slot(Storage& storage) noexcept;
  void release_while_tracking(Storage& storage) noexcept;
  void finish_release(Storage& storage, Storage::End end) noexcept {
    if (end != Storage::End::kLive && end != Storage::End::kNotYet) [[unlikely]] {
      finish_late_release(storage, end);
    }
  }
  void finish_late_release(Storage& storage, Storage::End end) noexcept;
  void release_from_eager(Storage& storage) noexcept;
  void free_while_tracking(Slot& slot) noexcept;
  void free_if_dead(Slot& slot) noexcept;
  void free_dead_slots() noexcept;
  void close_step() noexcept;
  void free_deferred() noexcept;
  void free_what_has_joined() noexcept;
  void free_slots() noexcept;
  void free_in_step(Region region, void* data) noexcept;
  void reserve_deferred();
  void stop_tracking() noexcept;
  Region region_of(const Storage& storage) const;
  void order_allocation();
  void tell_keepers() noexcept;
  static bool runs_now(const StepAllocations& step) noexcept;
  bool is_held_for_capture(const Storage& storage) const;
  bool is_kept_by_capture(const Storage& storage) const;

  // Constant after construction.
  const Device device_;
  const std::shared_ptr<const void> owner_;  // owner of objects that the options point to
  const std::shared_ptr<DeclaredMemory> declared_ = std::make_shared<DeclaredMemory>();
  std::optional<Stream> own_stream_;
  ContextPools pools_;
  ContextStream stream_;  // moves the pools
  PlainMemoryUser plain_{stream_};
  std::atomic<std::size_t> references_{1};
  std::atomic<bool> tracking_{true};

  // Used by the caller of the context.
  Slots slots_;
  Published<std::uint64_t> restores_;
  StepAllocations* step_ = nullptr;           // written under mutex_
  std::atomic<std::size_t> eager_blocks_{0};  // live storages of the eager pool
  std::vector<StorageRef> taken_over_;        // of destroyed recordings

  mutable Mutex<LockRank::kContextMemory> mutex_;
  static constexpr std::size_t kRetiredNames = 256;
  // Guarded by mutex_.
  std::map<std::uint32_t, std::string> names_;
  std::array<std::uint32_t, kRetiredNames> retired_names_{};  // a ring; 0: no function
  std::size_t next_retired_name_ = 0;
  // Guarded by mutex_: the storages in graphs of others, with the ids of their captures.
  struct Captured {
    StorageRef storage;
    std::vector<std::uint64_t> captures;
  };
  std::map<const Storage*, Captured> captured_;
  // Guarded by mutex_: workspaces made by eager steps of functions, by number.
  struct KeptEagerly {
    Storage* storage = nullptr;
    std::uint32_t function = kNoFunction;
  };
  std::map<std::uint64_t, KeptEagerly> kept_eagerly_;
  std::atomic<bool> has_captured_{false};  // written under mutex_

  std::function<void()> on_kept_end_;                              // constant once set
  std::function<void(std::shared_ptr<const void>)> leave_behind_;  // constant once set
  // A Keeping says that recordings of another context use the storage and hold a reference.
  struct Keeping {
    Storage* storage;
    ContextMemory* keeper;
  };
  mutable Mutex<LockRank::kKeepers> keepers_mutex_;
  std::vector<Keeping> keepers_;          // guarded by keepers_mutex_
  std::atomic<bool> has_keepers_{false};  // written under keepers_mutex_
};

// A Table owns a block of the eager pool that is in no footprint. Move-only.
class Table {
 public:
  Table() = default;
  // Throws OutOfMemory.
  Table(ContextMemory& memory, std::size_t bytes)
      : memory_(&memory), data_(memory.allocate_table(bytes)) {}
  ~Table() {
    if (data_ != nullptr) memory_->free_table(data_);
  }
  Table(Table&& other) noexcept
      : memory_(other.memory_), data_(std::exchange(other.data_, nullptr)) {}
  Table& operator=(Table&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    return *this;
  }

  void* data() const noexcept { return data_; }

 private:
  ContextMemory* memory_ = nullptr;
  void* data_ = nullptr;
};

}  // namespace cgtree
