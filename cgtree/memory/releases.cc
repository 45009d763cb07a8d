// Ends the lives of storages: at the end of a step, and by releases on any thread.
#include <atomic>
#include <mutex>
#include <new>
#include <thread>

#include "base/check.h"
#include "cgtree/memory/context_memory.h"

namespace cgtree {

void ContextMemory::end_step(StepAllocations& step) noexcept {
  std::lock_guard lock(mutex_);
  CGTREE_CHECK(step_ == &step && step.alive.empty());
  close_step();
}

// An eager step fills its memory as it runs: a library may keep some even if the step throws.
void ContextMemory::abandon_step(StepAllocations& step) noexcept {
  try {
    note_kept(kNoFunction, {});
  } catch (const std::bad_alloc&) {
  }
  std::lock_guard lock(mutex_);
  CGTREE_CHECK(step_ == &step);
  // A handle of a captured step that still exists, for example in the exception, becomes stale. The
  // blocks are freed singly: unlike a restore, this does not allocate host memory, which may have
  // run out.
  for (std::size_t i = step.alive.size(); i-- > 0;) {
    Storage& storage = *step.alive[i];
    if (keep_if_leased(storage)) continue;
    (void)storage.invalidate();
    stream_.release_readers(storage);
    pool(region_of(storage)).free(reinterpret_cast<void*>(storage.address()));
  }
  step.alive.clear();
  close_step();
}

// Another library does not learn that a life has ended: memory with a lease stays unchanged, and is
// not allocated again until the lease ends. A warm-up that throws may have made and filled a
// workspace before: memory with handles stays, as after an eager run.
bool ContextMemory::keep_if_leased(Storage& storage) noexcept {
  const bool is_filled = step_->kind == StepAllocations::Kind::kWarmUp;
  if (!storage.has_lease() && !is_filled) return false;
  try {
    slots_.reserve({storage.address(), storage.bytes()}, region_of(storage), is_filled);
  } catch (const std::bad_alloc&) {
    return false;
  }
  Slot& slot = slots_.place(storage, is_filled);
  settle_locked(slot, storage, kNoFunction, 0);
  return true;
}

void ContextMemory::free_deferred() noexcept {
  for (const auto& [region, data] : step_->deferred)
    pool(region).free(data);
  step_->deferred.clear();
}

void ContextMemory::close_step() noexcept {
  free_deferred();
  for (Storage* const storage : step_->eager)
    storage->tag.place = nullptr;
  step_->fork.reset();
  step_ = nullptr;
  if (!tracking_.load(std::memory_order_relaxed)) return;
  for (Slot& slot : slots_)
    free_if_dead(slot);
}

// A recording that is evicted while a step runs releases its memory, which the step needs.
void ContextMemory::free_dead_slots() noexcept {
  const std::lock_guard lock(mutex_);
  if (step_ != nullptr && (step_->has_ended_remotely || step_->defers_frees())) return;
  for (Slot& slot : slots_)
    free_if_dead(slot);
}

// Any thread may call this function and all below.
void ContextMemory::release_last(Storage& storage) noexcept {
  if (kind_of(storage) != kInSlot || stream_.has_readers() ||
      tracking_.load(std::memory_order_acquire)) [[unlikely]] {
    return release_in_order(storage);
  }
  finish_release(storage, storage.drop_last());
}

// Not inlined: the usual release needs no registers for it.
void ContextMemory::release_in_order(Storage& storage) noexcept {
  const Kind kind = kind_of(storage);
  if (kind == kInSlot) return release_from_slot(storage);
  kind == kInStep ? release_from_step(storage) : StorageOwner::release_last(storage);
}

void ContextMemory::release_from_slot(Storage& storage) noexcept {
  stream_.release_readers(storage);
  if (tracking_.load(std::memory_order_acquire)) return release_while_tracking(storage);
  finish_release(storage, storage.drop_last());
}

// A block of the eager pool.
void ContextMemory::release(Storage& storage) noexcept {
  release_from_eager(storage);
  unretain();
}

void ContextMemory::release_from_eager(Storage& storage) noexcept {
  stream_.release_readers(storage);
  // The cache may give the block's segment to another stream, which waits only for ours.
  stream_.try_wait_for_due();
  {
    std::lock_guard lock(mutex_);
    if (storage.tag.place != nullptr) {
      static_cast<StepAllocations*>(storage.tag.place)->remove_eager(storage);
    }
    kept_eagerly_.erase(storage.tag.number);
    free_in_step(Region::kEager, reinterpret_cast<void*>(storage.address()));
    eager_blocks_.fetch_sub(1, std::memory_order_relaxed);
  }
  delete &storage;
}

// Frees the block now, or when the open step ends.
void ContextMemory::free_in_step(Region region, void* data) noexcept {
  if (step_ != nullptr && step_->defers_frees()) {
    step_->deferred.emplace_back(region, data);
    step_->has_freed_remotely |= step_->thread != std::this_thread::get_id();
  } else {
    pool(region).free(data);
  }
}

// The block in the pool may be freed only before the tracking that knew it as live has ended. Once
// the mutex is released, the memory may be deleted.
void ContextMemory::release_while_tracking(Storage& storage) noexcept {
  std::unique_lock lock(mutex_);
  Slot& slot = *static_cast<Slot*>(storage.tag.place);
  const Storage::End end = storage.drop_last();
  const bool was_live = end == Storage::End::kLive || end == Storage::End::kOrphan;
  if (was_live) free_while_tracking(slot);
  lock.unlock();
  finish_release(storage, end);
}

// A storage that was live stays with its slot, to be revived; an invalidated storage belongs to no
// slot. Monitors look at the storages of slots, and might still look at this one.
void ContextMemory::finish_late_release(Storage& storage, Storage::End end) noexcept {
  if (end == Storage::End::kStale) {
    const std::lock_guard lock(mutex_);
    delete &storage;
  }
  unretain();
}

// The mutex is held when the life ends, so that settle() cannot come between.
void ContextMemory::release_from_step(Storage& storage) noexcept {
  stream_.release_readers(storage);
  std::unique_lock lock(mutex_);
  if (storage.tag.kind == kInSlot) {  // it was settled meanwhile
    lock.unlock();
    return release_from_slot(storage);
  }
  if (storage.drop_last() == Storage::End::kNotYet) return;
  // Otherwise the step was abandoned, and the block was freed then.
  if (step_ != nullptr && step_->contains(storage)) {
    step_->remove(storage);
    free_in_step(region_of(storage), reinterpret_cast<void*>(storage.address()));
  }
  lock.unlock();
  delete &storage;
  unretain();
}

// While a step is open, the block stays allocated, so that the step avoids all memory that was live
// when it was decided. Otherwise it might write where an existing recording writes, and need
// another recording. If memory is short, trim() frees it nevertheless.
void ContextMemory::free_while_tracking(Slot& slot) noexcept {
  if (!tracking_.load(std::memory_order_relaxed)) return;
  if (step_ == nullptr) return free_if_dead(slot);
  step_->has_ended_remotely |= step_->thread != std::this_thread::get_id();
}

void ContextMemory::free_if_dead(Slot& slot) noexcept {
  if (!slot.tracked || slot.is_live()) return;
  slot.tracked = false;
  pool(slot.region).free(reinterpret_cast<void*>(slot.range.address));
}

}  // namespace cgtree
