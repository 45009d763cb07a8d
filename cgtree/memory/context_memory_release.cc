// The other side of ContextMemory: releases, which may come from any thread.
#include <fmt/format.h>

#include "base/check.h"
#include "base/error.h"
#include "cgtree/memory/context_memory.h"

namespace cgtree {

void ContextMemory::unretain() noexcept {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

void ContextMemory::release(Storage& storage, bool was_live) noexcept {
  switch (static_cast<Kind>(std::atomic_ref(storage.tag.kind).load(std::memory_order_acquire))) {
    case kInSlot:
      release_from_slot(storage, was_live);
      break;
    case kInStep:
      release_from_step(storage, was_live);
      break;
    case kEagerBlock:
      release_from_eager(storage);
      break;
  }
  unretain();
}

void ContextMemory::release_from_eager(Storage& storage) noexcept {
  {
    std::lock_guard lock(mutex_);
    free_in_step(Region::kEager, reinterpret_cast<void*>(storage.address()));
    eager_blocks_.fetch_sub(1, std::memory_order_relaxed);
  }
  delete &storage;
}

// Frees now, or when the step that is open ends.
void ContextMemory::free_in_step(Region region, void* data) noexcept {
  if (step_ != nullptr && step_->defers_frees()) {
    step_->deferred.emplace_back(region, data);
  } else {
    pool(region).free(data);
  }
}

void ContextMemory::release_from_slot(Storage& storage, bool was_live) noexcept {
  // A live storage stays with its slot, to be revived; one that was given up is nobody's.
  if (was_live) {
    end_life(*static_cast<Slot*>(storage.tag.place));
  } else {
    delete &storage;
  }
}

void ContextMemory::release_from_step(Storage& storage, bool was_live) noexcept {
  std::unique_lock lock(mutex_);
  if (storage.tag.kind == kInSlot) {  // settled by the lane just now
    lock.unlock();
    release_from_slot(storage, was_live);
    return;
  }
  const std::uint32_t position = storage.tag.position;
  const bool known =
      step_ != nullptr && position < step_->alive.size() && step_->alive[position] == &storage;
  if (known) {  // else the step was abandoned, and the its block was freed
    step_->alive[position] = step_->alive.back();
    step_->alive[position]->tag.position = position;
    step_->alive.pop_back();
    void* const data = reinterpret_cast<void*>(storage.address());
    free_in_step(region_of(storage), data);
  }
  delete &storage;
}

// Clears the bit first: from then on the lane may hand the slot out again, and the block in the
// pool is only ours to free while the tracking that knew it as live is still the same.
void ContextMemory::end_life(Slot& slot) noexcept {
  if (!tracking_.load(std::memory_order_acquire)) {
    slot.live_word->fetch_and(~slot.live_bit, std::memory_order_release);
    return;
  }
  std::lock_guard lock(mutex_);
  slot.live_word->fetch_and(~slot.live_bit, std::memory_order_release);
  // A step in progress keeps clear of all that was live when it was decided on: a recording that
  // wrote where another already does would be one too many.
  if (tracking_.load(std::memory_order_relaxed) && step_ == nullptr) free_if_dead(slot);
}

void ContextMemory::free_if_dead(Slot& slot) noexcept {
  if (!slot.tracked || (slot.live_word->load() & slot.live_bit) != 0) return;
  slot.tracked = false;
  pool(slot.region).free(reinterpret_cast<void*>(slot.range.address));
}

void ContextMemory::close_step() noexcept {
  for (const auto& [region, data] : step_->deferred)
    pool(region).free(data);
  step_->deferred.clear();
  step_ = nullptr;
  if (!tracking_.load(std::memory_order_relaxed)) return;
  for (Slot& slot : slots_)
    free_if_dead(slot);
}

void ContextMemory::set_function_name(std::uint32_t function, std::string name) {
  std::lock_guard lock(mutex_);
  names_[function] = std::move(name);
}

std::string ContextMemory::function_name(std::uint32_t function) const {
  std::lock_guard lock(mutex_);
  const auto found = names_.find(function);
  return found == names_.end() ? std::string() : found->second;
}

void ContextMemory::throw_stale(const Storage& storage) const {
  if (storage.tag.kind != kInSlot) {
    throw StaleTensor(
        "this tensor was allocated by a call that failed; its memory has been given back");
  }
  throw StaleTensor(fmt::format(
      "output {} of '{}', made in generation {}, was given up by mark_step() (now generation {}): "
      "copy what you need before mark_step()",
      storage.tag.position, function_name(storage.tag.function), storage.tag.number, generation()));
}

}  // namespace cgtree
