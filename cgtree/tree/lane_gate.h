// LaneGate: who is inside a context: nobody, one caller, or upkeep that another thread asked for.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

namespace cgtree {

// A second caller is turned away; one who meets upkeep waits, since that is short and no mistake of
// the caller's.
class LaneGate {
 public:
  // For a call. False where another is inside, or upkeep on this thread has called back.
  bool enter() noexcept { return !inside_.exchange(true, kAcquire) || enter_after_upkeep(); }
  void leave() noexcept { inside_.store(false, std::memory_order_release); }

  // False where anybody is inside.
  bool enter_for_upkeep() noexcept {
    if (!upkeep_.try_lock()) return false;
    upkeeper_.store(std::this_thread::get_id());  // before inside_: who finds it taken looks here
    if (!inside_.exchange(true, kAcquire)) return true;
    end_upkeep();
    return false;
  }
  void leave_upkeep() noexcept {
    leave();
    end_upkeep();
  }

 private:
  static constexpr std::memory_order kAcquire = std::memory_order_acquire;

  bool enter_after_upkeep() noexcept {
    if (upkeeper_.load() == std::this_thread::get_id()) return false;
    const std::lock_guard none_at_upkeep(upkeep_);
    return !inside_.exchange(true, kAcquire);
  }
  void end_upkeep() noexcept {
    upkeeper_.store(std::thread::id());
    upkeep_.unlock();
  }

  std::atomic<bool> inside_{false};
  std::mutex upkeep_;                        // held while upkeep is inside
  std::atomic<std::thread::id> upkeeper_{};  // the thread that holds it
};

}  // namespace cgtree
