// Lets callers and upkeep into a context, and orders its stream with the streams outside.
#include "cgtree/tree/door.h"

#include <chrono>

#include "base/error.h"
#include "base/log.h"

namespace cgtree {

bool Door::enter_for_upkeep() noexcept {
  if (!upkeep_mutex_.try_lock()) return false;
  upkeeper_.store(std::this_thread::get_id());  // before inside_: who finds that taken looks here
  if (!inside_.exchange(true, kAcquire)) return true;
  upkeeper_.store(std::thread::id());
  upkeep_mutex_.unlock();
  return false;
}

void Door::leave_upkeep() noexcept {
  leave();
  upkeeper_.store(std::thread::id());
  upkeep_mutex_.unlock();
}

bool Door::enter_after_upkeep() noexcept {
  if (upkeeper_.load() == std::this_thread::get_id()) return false;
  const std::lock_guard no_upkeep_inside(upkeep_mutex_);
  return !inside_.exchange(true, kAcquire);
}

void Door::do_upkeep() noexcept {
  wants_upkeep_.store(false, std::memory_order_relaxed);  // a later request sets it again
  upkeep_();
}

void Door::request_upkeep() noexcept {
  wants_upkeep_.store(true, std::memory_order_release);
  if (!enter_for_upkeep()) return;  // the next visit does it
  do_upkeep();
  leave_upkeep();
}

Inspection::Inspection(Door& door) : door_(door) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kPatience(10);
  constexpr std::chrono::microseconds kPause(20);  // a short replay
  const Clock::time_point begin = Clock::now();
  while (!door_.enter_for_upkeep()) {
    if (Clock::now() - begin > kPatience) {
      throw ConcurrentUse(
          "a call has been inside this context for ten seconds: it hangs, or it waits for this "
          "inspection");
    }
    std::this_thread::sleep_for(kPause);
  }
}

void Visit::refuse() {
  throw ConcurrentUse(
      "this context is busy: another thread is inside it, or a step function called back; make one "
      "context per thread, or lock around it");
}

// If begin() throws, nothing is left to finish for the producers.
void Visit::wait_for_producers(InputList inputs) {
  StreamSynchronization producers(door_.stream_);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    producers.add(inputs[i]);
  if (producers.streams() == 0) return;
  producers.begin();
  producers_.emplace(std::move(producers));
  must_finish_ = true;
}

void Visit::finish_order() {
  must_finish_ = false;
  // Each on its own: a stream that refuses must not keep the others from waiting.
  try {
    if (producers_) producers_->finish();
  } catch (...) {
    if (follows_caller_) caller_.wait_for(door_.stream_);
    throw;
  }
  if (follows_caller_) caller_.wait_for(door_.stream_);
}

void Visit::finish_after_failure() noexcept {
  try {
    finish_order();
  } catch (const std::exception& error) {
    log_event(LogLevel::kError, "stream_not_ordered what=\"{}\"", error.what());
  }
}

}  // namespace cgtree
