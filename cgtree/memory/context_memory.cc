// Generations, steps and slots of the storages of a context.
#include "cgtree/memory/context_memory.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <new>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/format.h"
#include "base/log_event.h"
#include "cgtree/memory/recorded_memory.h"
#include "interop/device/device_api.h"
#include "interop/device/refusal.h"
#include "interop/tensor/stream_synchronization.h"

namespace cgtree {
namespace {

// As Pool::allocate(). If memory runs out, notes that in the open step, if there is one.
void* allocate_for(StepAllocations* step, Pool& pool, std::size_t bytes) {
  try {
    return pool.allocate(bytes);
  } catch (const OutOfMemory&) {
    if (step != nullptr) step->has_run_out = true;
    throw;
  }
}

// Notes the error of a call that broke the capture of the step, if the step ignored it. Later calls
// fail with kStreamCaptureInvalidated, as if another thread had broken the capture.
void note_hidden_failure(StreamRef stream) {
  const Code pending = stream.graphs().peek_last_error();
  const bool is_own = pending >= Code::kStreamCaptureUnsupported &&
                      pending <= Code::kStreamCaptureIsolation &&
                      pending != Code::kStreamCaptureInvalidated;
  if (is_own) Refusals::note(pending, str_format("{} ({})", explain(pending), name(pending)));
}

// The regions whose layout begin_tracking() restores.
constexpr Region kTracked[] = {Region::kOutput, Region::kScratch};

// By default a blocking stream, so that plain copies of tensors, which use the legacy stream, are
// ordered with calls.
std::optional<Stream> own_stream(Device device, const ContextOptions& options) {
  if (!options.stream) return std::make_optional<Stream>(device, StreamKind::kBlocking);
  if (options.stream->device() == device) return std::nullopt;
  throw InvalidArgument(str_format("the context is on {}, the stream given on {}",
                                   to_string(device), to_string(options.stream->device())));
}

}  // namespace

ContextMemory::ContextMemory(Device device, const ContextOptions& options)
    : is_checked(options.checked),
      device_(device),
      owner_(options.owner),
      own_stream_(own_stream(device, options)),
      pools_(device, options, own_stream_ ? own_stream_->ref() : *options.stream),
      stream_(own_stream_ ? own_stream_->ref() : *options.stream, /*is_shared=*/!own_stream_,
              [this](StreamIdentity to) { pools_.move_to(static_cast<StreamId>(to)); }) {
}

void ContextMemory::unretain() noexcept {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

// The references of live slots are counted from now on. The mutex is needed because a tracking
// release holds it when it ends the life, but not afterwards.
void ContextMemory::end() noexcept {
  const std::size_t most = slots_.count();
  references_.fetch_add(most, std::memory_order_relaxed);  // before other threads can drop theirs
  std::size_t live = 0;
  {
    const std::lock_guard lock(mutex_);
    live = slots_.orphan();
  }
  const std::size_t taken = most - live + 1;  // includes the manager's reference
  if (references_.fetch_sub(taken, std::memory_order_acq_rel) == taken) delete this;
}

ContextMemory::~ContextMemory() {
  // Work that reads or writes the pools must end before their memory is returned.
  const bool has_ended = stream_.synchronize();
  free_slots();
  pools_.end(has_ended);
}

void ContextMemory::free_slots() noexcept {
  for (Slot& slot : slots_) {
    if (slot.current() == nullptr) continue;
    CGTREE_CHECK(!slot.is_live());
    if (slot.tracked) pool(slot.region).free(reinterpret_cast<void*>(slot.range.address));
    delete slot.current();
  }
  if (tracking_.load()) return;
  try {  // the bookkeeping of the pools is out of date: nothing is live
    for (Region region : kTracked)
      (void)pool(region).restore_live({});
  } catch (const std::exception& error) {
    log_event(LogLevel::kError, "context_end error={}", error.what());
  }
}

bool ContextMemory::mark_step() {
  bool ends_kept = false;
  bool ends_any = false;
  let_go();
  slots_.begin_generation();
  slots_.live().for_each([&](std::uint32_t number) {
    Slot& slot = slots_[number];
    Storage& storage = *slot.current();
    // Another library does not learn that a life has ended.
    if (slot.persistent || slot.outlives_steps || storage.has_lease()) return;
    if (is_held_for_capture(storage) || is_kept_by_capture(storage)) return;
    retain();                   // for the storage, which leaves its slot
    slot.set_current(nullptr);  // once it has ended, its last handle may delete it
    if (!storage.invalidate()) {
      slot.set_current(&storage);
      return unretain();
    }
    ends_any = true;
    ends_kept = std::exchange(slot.keepers, 0) > 0 || ends_kept;
    stream_.release_readers(storage);
    if (!tracking_.load(std::memory_order_relaxed)) return;
    const std::lock_guard lock(mutex_);
    free_while_tracking(slot);
  });
  if (ends_any) tell_keepers();
  return ends_kept;
}

// Only a context is the domain of memory that it owns; a StandIn (extensions/rebind) lies in one.
ContextMemory* ContextMemory::of(const Storage& storage) noexcept {
  const StorageDomain* const domain = storage.domain();
  if (domain == nullptr || domain == &kValueDomain) return nullptr;
  const StorageOwner* const context = static_cast<const ContextMemory*>(domain);
  return context == &storage.owner() ? static_cast<ContextMemory*>(&storage.owner()) : nullptr;
}

void ContextMemory::add_keeper(Storage& storage, ContextMemory& keeper) {
  if (&keeper == this) {
    if (std::uint32_t* const count = keepers_of(storage)) ++*count;
    return;
  }
  const std::lock_guard lock(keepers_mutex_);
  // Either this finds the storage stale, or tell_keepers() finds the keeper.
  if (storage.state() == Storage::State::kStale) return keeper.kept_has_ended();
  keepers_.push_back({&storage, &keeper});
  has_keepers_.store(true, std::memory_order_release);
}

void ContextMemory::remove_keeper(Storage& storage, ContextMemory& keeper) noexcept {
  if (&keeper == this) {
    if (std::uint32_t* const count = keepers_of(storage)) --*count;
    return;
  }
  const std::lock_guard lock(keepers_mutex_);
  const auto found = std::ranges::find_if(keepers_, [&](const Keeping& keeping) {
    return keeping.storage == &storage && keeping.keeper == &keeper;
  });
  if (found != keepers_.end()) keepers_.erase(found);
  has_keepers_.store(!keepers_.empty(), std::memory_order_release);
}

// Returns whether the end of replays that use the storage is unknown: their stream is captured now.
bool ContextMemory::is_kept_by_capture(const Storage& storage) const {
  if (!has_keepers_.load(std::memory_order_acquire)) return false;
  const std::lock_guard lock(keepers_mutex_);
  return std::ranges::any_of(keepers_, [&](const Keeping& keeping) {
    return keeping.storage == &storage && capture_of(keeping.keeper->stream()) != 0;
  });
}

bool ContextMemory::takes_over(std::vector<StorageRef>& storages) noexcept {
  if (capture_of(stream()) == 0) return false;
  try {
    taken_over_.insert(taken_over_.end(), storages.begin(), storages.end());
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void ContextMemory::let_go() noexcept {
  if (taken_over_.empty() || capture_of(stream()) != 0) return;
  const std::vector<StorageRef> storages = std::move(taken_over_);
  taken_over_.clear();
  KeptStorages::let_go(storages, *this);
}

// A storage in the list has a reference of the recording that keeps it. Enqueued replays may read
// the memory: it is not reused before they have ended.
void ContextMemory::tell_keepers() noexcept {
  const std::lock_guard lock(keepers_mutex_);
  std::erase_if(keepers_, [&](const Keeping& keeping) {
    if (keeping.storage->state() != Storage::State::kStale) return false;
    keeping.keeper->kept_has_ended();
    try {
      used(*keeping.storage, keeping.keeper->stream());
    } catch (const std::exception& error) {
      log_event(LogLevel::kError, "use_not_noted bytes={} error=\"{}\"", keeping.storage->bytes(),
                error.what());
    }
    return true;
  });
  has_keepers_.store(!keepers_.empty(), std::memory_order_release);
}

// mark_step() ends only storages in slots.
void ContextMemory::keep_across_steps(const Storage& storage) {
  (void)storage.data();  // throws if it is stale
  if (storage.domain() != nullptr && storage.domain() != this) {
    throw InvalidArgument("keep() of an output of another context: ask that one to keep it");
  }
  if (manages(storage)) static_cast<Slot*>(storage.tag.place)->outlives_steps = true;
}

std::vector<ContextMemory::SlotState> ContextMemory::slot_states() const {
  std::vector<SlotState> states;
  const std::lock_guard lock(mutex_);
  states.reserve(slots_.count());
  for (const Slot& slot : slots_) {
    if (slot.range.bytes == 0) continue;
    states.push_back(
        {slot.number, slot.range, slot.region, slot.is_live(), slot.persistent, slot.holder.get()});
  }
  return states;
}

// A dead slot that the step must avoid also has a block. It is freed with the other dead blocks
// when the step ends, or when memory is short.
void ContextMemory::begin_tracking(bool keeps_apart) {
  std::lock_guard lock(mutex_);
  if (tracking_.load(std::memory_order_relaxed) && !keeps_apart) return;
  std::vector<Range> live[2];
  std::vector<bool> tracked(slots_.count(), false);
  std::map<std::uintptr_t, std::uintptr_t> taken;  // in the output region: the end of each range
  const auto track = [&](const Slot& slot) {
    tracked[slot.number] = true;
    live[static_cast<int>(slot.region)].push_back(slot.range);
    if (slot.region == Region::kOutput) taken.emplace(slot.range.address, slot.range.end());
  };
  slots_.live().for_each([&](std::uint32_t number) { track(slots_[number]); });
  for (const Slot& slot : slots_) {
    if (!keeps_apart || slot.recordings == 0 || slot.region != Region::kOutput) continue;
    const auto after = taken.lower_bound(slot.range.end());
    if (after == taken.begin() || std::prev(after)->second <= slot.range.address) track(slot);
  }
  for (Region region : kTracked)
    (void)pool(region).restore_live(live[static_cast<int>(region)]);
  for (Slot& slot : slots_)
    slot.tracked = tracked[slot.number];
  ++restores_;
  tracking_.store(true, std::memory_order_release);
}

void ContextMemory::stop_tracking() noexcept {
  std::lock_guard lock(mutex_);
  for (Slot& slot : slots_)
    slot.tracked = false;
  tracking_.store(false, std::memory_order_release);
}

void ContextMemory::begin_step(StepAllocations& step) {
  CGTREE_CHECK(step_ == nullptr);
  CGTREE_CHECK(step.kind == StepAllocations::Kind::kEager || tracking_.load());
  // Before the step forks: a side stream waits for the context's stream at the fork.
  if (runs_now(step)) stream_.wait_for_due();
  step.begin();
  std::lock_guard lock(mutex_);
  step_ = &step;
}

std::size_t ContextMemory::trim(std::span<const Range> kept) {
  let_go();
  begin_tracking();
  stream_.try_wait_for_due();
  free_dead_slots();
  std::size_t given = 0;
  for (Region region : kTracked)
    given += pool(region).trim(kept);
  return given;
}

void ContextMemory::give_back_unused() {
  (void)trim({});
  (void)pool(Region::kEager).trim();
  pools_.give_back_cached();
}

void ContextMemory::end_calls() noexcept {
  KeptStorages::let_go(taken_over_, *this);  // if the stream still captures, owners hold them
  taken_over_.clear();
  (void)release_captured(std::nullopt);  // those that this context holds for its own recordings
  try {
    (void)trim({});
    (void)pool(Region::kEager).trim();
    pools_.give_back_idle();
  } catch (const std::exception& error) {
    log_event(LogLevel::kError, "context_end error=\"{}\"", error.what());
  }
}

bool ContextMemory::runs_eager_step_here() const noexcept {
  const std::lock_guard lock(mutex_);
  return step_ != nullptr && step_->thread == std::this_thread::get_id() &&
         step_->kind != StepAllocations::Kind::kRecord && !step_->is_in_replay;
}

StorageRef ContextMemory::allocate(std::size_t bytes) {
  CGTREE_CHECK(step_ != nullptr);
  StepAllocations& step = *step_;
  if (step.kind == StepAllocations::Kind::kEager) {
    StorageRef storage = allocate_value(bytes);
    const std::lock_guard lock(mutex_);
    storage->tag.position = static_cast<std::uint32_t>(step.eager.size());
    step.eager.push_back(storage.get());
    storage->tag.place = &step;
    return storage;
  }
  if (step.kind == StepAllocations::Kind::kRecord) note_hidden_failure(stream());
  const std::uint32_t number = step.count++;
  StorageRef storage =
      allocate_in(step.is_output(number) ? Region::kOutput : Region::kScratch, bytes, kInStep);
  storage->tag.number = number;
  return step.handed_out(number, std::move(storage));
}

void ContextMemory::reserve_deferred() {
  std::lock_guard lock(mutex_);
  if (step_ != nullptr) step_->reserve_deferred(1 + eager_blocks_.load());
}

// A side stream of a recorded step is part of its graph, which keeps the memory. Any other stream
// is a reader, also in an eager step: whether it joins the step is unknown.
void ContextMemory::used(Storage& storage, StreamRef stream) {
  const std::uint64_t capture = capture_of(stream);
  {
    std::lock_guard lock(mutex_);
    if (step_ != nullptr && !step_->is_paused && step_->thread == std::this_thread::get_id()) {
      step_->has_side_work = step_->has_side_work || stream != current_stream_or_none();
      if (capture != 0 && step_->kind == StepAllocations::Kind::kRecord) return;
    }
  }
  // An event of a capture orders nothing outside of it.
  if (capture != 0) return hold_for_capture(capture, StorageRef(storage));
  stream_.add_reader(storage, stream);
  // After mark_step() the memory may be reused before the last handle is destroyed.
  if (storage.state() == Storage::State::kStale) stream_.release_readers(storage);
}

void ContextMemory::made_elsewhere(const StorageRef& storage) {
  const bool is_recorded = step_ != nullptr && step_->kind == StepAllocations::Kind::kRecord;
  if (is_recorded) step_->elsewhere.push_back(storage);
}

// Memory that the step has allocated is part of the recording's footprint.
bool ContextMemory::keep(const StorageRef& storage) {
  CGTREE_CHECK(step_ != nullptr);
  if (step_->foreign_capture != 0) hold_for_capture(step_->foreign_capture, storage);
  if (step_->kind == StepAllocations::Kind::kWarmUp) {
    step_->note_workspace(workspace_of(*storage));
  }
  if (step_->kind != StepAllocations::Kind::kRecord) return false;
  note_hidden_failure(stream());
  if (in_step(*storage)) return false;
  std::vector<StorageRef>& kept = step_->kept;
  if (std::find(kept.begin(), kept.end(), storage) == kept.end()) kept.push_back(storage);
  return &storage->owner() != this;  // used() handles the context's own memory
}

// Calls visit(number, function, storage) for each workspace with references other than those of
// recordings: if only recordings have references, no step function can use it again. Only the
// holder of a reference can make another.
template <typename Visit>
void ContextMemory::for_each_workspace(Visit&& visit) const {
  slots_.for_each_persistent([&](const Slot& slot) {
    const StorageRef storage = StorageRef::if_live(*slot.current());
    if (storage && storage->references() > slot.keepers + 1)
      visit(slot.workspace, slot.holder.get().function, storage);
  });
  std::vector<StorageRef> references;  // the last references end after the lock
  const std::lock_guard lock(mutex_);
  references.reserve(kept_eagerly_.size());
  for (const auto& [number, kept] : kept_eagerly_) {
    const StorageRef& storage = references.emplace_back(StorageRef::if_live(*kept.storage));
    if (storage && storage->references() > storage->tag.function + 1)
      visit(number, kept.function, storage);
  }
}

std::vector<StorageRef> ContextMemory::workspaces() const {
  std::vector<StorageRef> found;
  for_each_workspace(
      [&](std::uint64_t, std::uint32_t, const StorageRef& storage) { found.push_back(storage); });
  return found;
}

std::vector<std::uint64_t> ContextMemory::workspaces_of(std::uint32_t function,
                                                        std::span<const std::uint64_t> used) const {
  std::vector<std::uint64_t> found;
  for_each_workspace([&](std::uint64_t number, std::uint32_t maker, const StorageRef&) {
    const bool may_use = maker == function || maker == kNoFunction;
    if (may_use || std::ranges::find(used, number) != used.end()) found.push_back(number);
  });
  return found;
}

bool ContextMemory::holds_workspaces(std::span<const std::uint64_t> workspaces) const {
  if (workspaces.empty()) return true;
  std::size_t held = 0;
  for_each_workspace([&](std::uint64_t number, std::uint32_t, const StorageRef&) {
    held += std::ranges::find(workspaces, number) != workspaces.end();
  });
  return held == workspaces.size();
}

std::vector<StorageRef> ContextMemory::live_storages() const {
  std::vector<StorageRef> found;
  slots_.live().for_each([&](std::uint32_t number) {
    if (StorageRef storage = StorageRef::if_live(*slots_[number].current()))
      found.push_back(std::move(storage));
  });
  return found;
}

// Returns the count of recordings' references to the storage; null if they are not counted.
std::uint32_t* ContextMemory::keepers_of(Storage& storage) noexcept {
  if (Slot* const slot = slot_of(storage)) return &slot->keepers;
  return storage.tag.kind == kEagerBlock ? &storage.tag.function : nullptr;
}

// Returns the number of the workspace that the storage is, or 0.
std::uint64_t ContextMemory::workspace_of(const Storage& storage) const noexcept {
  if (const Slot* const slot = slot_of(storage)) return slot->workspace;
  return &storage.owner() == this && storage.tag.kind == kEagerBlock ? storage.tag.number : 0;
}

void ContextMemory::note_kept(std::uint32_t function, std::span<const Tensor> outputs) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = step_->eager.size(); i-- > 0;) {
    Storage& storage = *step_->eager[i];
    const auto shares = [&](const Tensor& output) { return output.storage().get() == &storage; };
    if (std::ranges::any_of(outputs, shares)) continue;
    const std::uint64_t number = slots_.next_workspace();
    kept_eagerly_[number] = {&storage, function};
    step_->remove_eager(storage);
    storage.tag.number = number;
  }
}

// Returns the slot in which a storage lives, or null.
Slot* ContextMemory::slot_of(const Storage& storage) const noexcept {
  if (!manages(storage)) return nullptr;
  auto* const slot = static_cast<Slot*>(storage.tag.place);
  return slot->current() == &storage ? slot : nullptr;
}

StorageRef ContextMemory::allocate_input_copy(std::size_t bytes) {
  if (step_->kind == StepAllocations::Kind::kEager) return allocate_value(bytes);
  StorageRef storage = allocate_in(Region::kScratch, bytes, kInStep);
  storage->tag.number = kNoNumber;
  return storage;
}

StorageRef ContextMemory::allocate_in(Region region, std::size_t bytes, Kind kind) {
  free_what_has_joined();
  void* const data = allocate_for(step_, pool(region), bytes);
  Storage* storage = nullptr;
  try {
    order_allocation();
    storage = new Storage(*this, device_, StreamRef(), data, bytes, this);
    storage->tag.kind = kind;
    if (kind == kEagerBlock) eager_blocks_.fetch_add(1, std::memory_order_relaxed);
    reserve_deferred();
    if (kind == kInStep) {
      std::lock_guard lock(mutex_);
      step_->add(*storage);
    }
  } catch (...) {
    if (kind == kEagerBlock) eager_blocks_.fetch_sub(1, std::memory_order_relaxed);
    delete storage;
    pool(region).free(data);
    throw;
  }
  retain();
  StorageRef made(*storage);
  if (step_ != nullptr && step_->foreign_capture != 0) {
    hold_for_capture(step_->foreign_capture, made);
  }
  return made;
}

void ContextMemory::free_what_has_joined() noexcept {
  const std::lock_guard lock(mutex_);
  if (step_ != nullptr && step_->may_free_deferred()) free_deferred();
}

// Captured work runs later. The launch of a recording waits, but the launch of a foreign graph is
// out of our control: the host waits before that graph may use the memory.
void ContextMemory::order_allocation() {
  if (!stream_.has_due()) [[likely]] {
    return;
  }
  if (step_ == nullptr) return stream_.wait_for_due();
  if (step_->kind == StepAllocations::Kind::kRecord && !step_->is_paused) return;
  const StreamRef current = current_stream_or_none();
  if (step_->foreign_capture != 0 || current.is_capturing()) return stream_.synchronize_due();
  stream_.wait_for_due(current && current.device() == device_ ? current : StreamRef());
}

// Returns whether the step's work is neither recorded nor captured by other code.
bool ContextMemory::runs_now(const StepAllocations& step) noexcept {
  return step.kind != StepAllocations::Kind::kRecord && step.foreign_capture == 0;
}

void ContextMemory::hold_for_capture(std::uint64_t capture, const StorageRef& storage) {
  const std::lock_guard lock(mutex_);
  Captured& held = captured_[storage.get()];
  held.storage = storage;
  if (std::ranges::find(held.captures, capture) == held.captures.end()) {
    held.captures.push_back(capture);
  }
  has_captured_.store(true, std::memory_order_release);
}

std::size_t ContextMemory::release_captured(std::optional<std::uint64_t> capture) {
  std::vector<StorageRef> released;  // destroyed after the lock
  const std::lock_guard lock(mutex_);
  released.reserve(captured_.size());  // the only step that can fail
  for (auto& [storage, held] : captured_) {
    std::erase_if(held.captures, [&](std::uint64_t id) { return !capture || id == *capture; });
    if (held.captures.empty()) released.push_back(std::move(held.storage));
  }
  std::erase_if(captured_, [](const auto& entry) { return entry.second.captures.empty(); });
  has_captured_.store(!captured_.empty(), std::memory_order_release);
  return released.size();
}

bool ContextMemory::is_held_for_capture(const Storage& storage) const {
  if (!has_captured_.load(std::memory_order_acquire)) return false;
  const std::lock_guard lock(mutex_);
  return captured_.contains(&storage);
}

Region ContextMemory::region_of(const Storage& storage) const {
  return pool(Region::kOutput).owns(reinterpret_cast<const void*>(storage.address()))
             ? Region::kOutput
             : Region::kScratch;
}

void ContextMemory::move_to_output_region(Storage& storage) {
  CGTREE_CHECK(in_step(storage));
  if (region_of(storage) == Region::kOutput) return;
  void* const from = storage.data();
  void* const to = allocate_for(step_, pool(Region::kOutput), storage.bytes());
  const StreamRef stream = stream_.get();
  const Code code = stream.api().copy(stream.handle(), to, from, storage.bytes());
  if (!ok(code)) {
    pool(Region::kOutput).free(to);
    throw_code(code, "move an output of a warm-up");
  }
  storage.move_to(to);
  pool(Region::kScratch).free(from);
}

void ContextMemory::reserve_slots(std::span<const Tensor> outputs) {
  std::set<const Storage*> returned;
  for (const Tensor& output : outputs)
    returned.insert(output.storage().get());
  std::lock_guard lock(mutex_);
  step_->workspaces.reserve(step_->workspaces.size() + step_->alive.size());
  slots_.recycle();
  for (const Storage* storage : step_->alive) {
    slots_.reserve({storage->address(), storage->bytes()}, region_of(*storage),
                   /*persistent=*/!returned.contains(storage));
  }
}

Slot& ContextMemory::settle(Storage& storage, std::uint32_t function,
                            std::uint32_t output) noexcept {
  std::lock_guard lock(mutex_);
  CGTREE_CHECK(in_step(storage) && step_ != nullptr);
  Slot& slot = slots_.place(storage, /*persistent=*/false);
  settle_locked(slot, storage, function, output);
  return slot;
}

void ContextMemory::settle_rest(std::uint32_t function) noexcept {
  std::lock_guard lock(mutex_);
  while (!step_->alive.empty()) {
    Storage& storage = *step_->alive.back();
    Slot& slot = slots_.place(storage, /*persistent=*/true);
    settle_locked(slot, storage, function, 0);
  }
}

void ContextMemory::settle_locked(Slot& slot, Storage& storage, std::uint32_t function,
                                  std::uint32_t output) noexcept {
  slot.tracked = true;
  step_->remove(storage);
  storage.tag.place = &slot;
  storage.tag.position = output;
  storage.tag.function = function;
  storage.tag.number = generation();
  slot.holder = Holder{function, output};
  // A release on another thread reads the kind before it takes the lock.
  __atomic_store_n(&storage.tag.kind, kInSlot, __ATOMIC_RELEASE);
  Slots::set_live(slot);
  unretain();  // the slot keeps the storage's reference
}

Storage& ContextMemory::add_storage(Slot& slot) {
  auto* const storage =
      new Storage(*this, device_, StreamRef(), reinterpret_cast<void*>(slot.range.address),
                  slot.range.bytes, this);
  storage->tag.kind = kInSlot;
  storage->tag.place = &slot;
  slot.set_current(storage);
  return *storage;
}

void ContextMemory::set_function_name(std::uint32_t function, std::string name) {
  std::lock_guard lock(mutex_);
  names_[function] = std::move(name);
}

void ContextMemory::retire_function_name(std::uint32_t function) noexcept {
  std::lock_guard lock(mutex_);
  std::uint32_t& oldest = retired_names_[next_retired_name_];
  next_retired_name_ = (next_retired_name_ + 1) % kRetiredNames;
  names_.erase(std::exchange(oldest, function));
}

std::string ContextMemory::function_name(std::uint32_t function) const {
  if (function == kNoFunction) return "a step that failed";
  std::lock_guard lock(mutex_);
  const auto found = names_.find(function);
  return found == names_.end() ? str_format("#{}", function) : found->second;
}

void ContextMemory::throw_stale(const Storage& storage) const {
  if (storage.tag.kind != kInSlot) {
    throw StaleTensor(
        "this tensor was allocated by a step that failed, or whose capture did: what was to fill "
        "it has not run, and its memory has been given back; drop it, and allocate it again");
  }
  throw StaleTensor(str_format(
      "output {} of '{}', made in generation {}, was given up by mark_step() (now generation {}): "
      "copy what you need before mark_step(), or keep() it",
      storage.tag.position, function_name(storage.tag.function), storage.tag.number, generation()));
}

void ContextMemory::validate() const {
  pools_.validate();
  std::lock_guard lock(mutex_);
  slots_.validate();
  for (const auto& [number, kept] : kept_eagerly_)
    CGTREE_CHECK(kept.storage->tag.kind == kEagerBlock && kept.storage->tag.number == number);
  if (!tracking_.load() || step_ != nullptr) return;
  std::vector<Range> tracked[2];
  for (const Slot& slot : slots_) {
    if (slot.tracked) tracked[static_cast<int>(slot.region)].push_back(slot.range);
  }
  for (Region region : kTracked) {
    std::vector<Range>& expected = tracked[static_cast<int>(region)];
    std::sort(expected.begin(), expected.end(),
              [](const Range& a, const Range& b) { return a.address < b.address; });
    const std::vector<Range> live = pool(region).live();
    CGTREE_CHECK(live.size() == expected.size());
    for (std::size_t i = 0; i < live.size(); ++i)
      CGTREE_CHECK(live[i].contains(expected[i]));
  }
}

}  // namespace cgtree
