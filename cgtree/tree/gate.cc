// Admits callers and upkeep to a context, and orders its stream with the streams outside.
#include "cgtree/tree/gate.h"

#include <chrono>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/log_event.h"
#include "cgtree/memory/context_memory.h"

namespace cgtree {

bool Gate::enter_for_upkeep() noexcept {
  if (!upkeep_mutex_.try_lock()) return false;
  upkeeper_.store(std::this_thread::get_id());  // before inside_: a refused thread looks here
  if (!inside_.exchange(true, kAcquire)) return true;
  upkeeper_.store(std::thread::id());
  upkeep_mutex_.unlock();
  return false;
}

void Gate::leave_behind(std::shared_ptr<const void> code) noexcept {
  try {
    rest().left_behind.push_back(std::move(code));
  } catch (const std::bad_alloc&) {
  }
}

Gate::LeftBehind Gate::take_left_behind() noexcept {
  return rest_ ? std::exchange(rest_->left_behind, {}) : LeftBehind();
}

void Gate::leave_upkeep() noexcept {
  const LeftBehind ends_outside = take_left_behind();
  leave();
  upkeeper_.store(std::thread::id());
  upkeep_mutex_.unlock();
}

bool Gate::enter_after_upkeep() noexcept {
  if (upkeeper_.load() == std::this_thread::get_id()) return false;
  const std::lock_guard no_upkeep_inside(upkeep_mutex_);
  return !inside_.exchange(true, kAcquire);
}

bool Gate::do_upkeep_inside() noexcept {
  while (wants_upkeep_.exchange(false, std::memory_order_acq_rel)) {
    {
      const Leftovers leftovers = upkeep_();
      const LeftBehind ends_outside = take_left_behind();
      leave();
    }
    if (!enter()) return false;
  }
  return true;
}

void Gate::request_upkeep() noexcept {
  wants_upkeep_.store(true, std::memory_order_release);
  if (!enter_for_upkeep()) return;                        // the next thread to enter does it
  wants_upkeep_.store(false, std::memory_order_relaxed);  // a later request sets it again
  const Leftovers leftovers = upkeep_();                  // destroyed outside of the gate
  leave_upkeep();
}

Inspection::Inspection(Gate& gate) : gate_(gate) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kPatience(10);
  constexpr std::chrono::microseconds kPause(20);  // the time of a short replay
  const Clock::time_point begin = Clock::now();
  for (;;) {
    if (gate_.enter_for_upkeep()) {
      if (!gate_.wants_upkeep_.load(std::memory_order_acquire)) return;
      gate_.leave_upkeep();  // leftovers of upkeep must be destroyed outside
      gate_.request_upkeep();
      continue;
    }
    if (Clock::now() - begin > kPatience) {
      throw ConcurrentUse(
          "a call has been inside this context for ten seconds: it hangs, or it waits for this "
          "inspection");
    }
    std::this_thread::sleep_for(kPause);
  }
}

void Entry::refuse() {
  throw ConcurrentUse(
      "this context is busy: another thread is inside it, or a step function called back; make one "
      "context per thread, or lock around it");
}

StreamRef Gate::foreign_capture(StreamRef caller) const {
  const StreamRef outside = caller ? caller : stream_.home();
  return outside.is_capturing() ? outside : StreamRef();
}

// A context cannot move to a stream of another device. It then works on its home stream, after the
// caller's stream when it begins and before it when it ends.
void Entry::move_to(StreamRef caller) {
  if (gate_.stream_.can_move_to(caller)) return gate_.stream_.move_to(caller);
  if (gate_.stream_.get() != gate_.stream_.home()) gate_.stream_.move_to(gate_.stream_.home());
  const StreamRef home = gate_.stream_.home();
  home.wait_for(caller);
  gate_.rest().outside = {StreamSynchronization(home), {}, caller};
}

bool Entry::find_producers(const InputList& inputs, const InputRun* known, StreamRef captured,
                           Gate::Outside& outside) const {
  const std::uint64_t capture = captured ? capture_of(captured) : 0;
  const auto is_captured = [&](StreamRef producer) {
    if (capture == 0 || !producer || capture_of(producer) != capture) return false;
    if (!outside.captured) outside.captured.emplace(captured);
    outside.captured->add(producer);
    return true;
  };
  if (known != nullptr) {
    for (const StreamRef producer : known->producers())
      outside.libraries.add(producer);
  }
  bool any = known != nullptr;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (known != nullptr && i == known->begin()) i = known->end();
    if (i == inputs.size()) break;
    if (!inputs[i].defined()) continue;
    const StorageRef& storage = inputs[i].storage();
    if (storage->state() == Storage::State::kBorrowed) {
      any = true;
      if (!is_captured(storage->producer())) outside.libraries.add(inputs[i]);
    }
    if (storage->domain() == nullptr || storage->domain() == gate_.domain_) continue;
    any = true;
    if (!is_captured(storage->stream())) outside.of_contexts.push_back(storage);
  }
  return any;
}

void Gate::Outside::order_contexts_before(StreamRef stream) const {
  for (const StorageRef& storage : of_contexts)
    if (ContextMemory* const context = ContextMemory::of(*storage))
      context->streams().order_before(stream);
}

// If this throws, no producer waits for finish().
bool Entry::wait_for_producers(const InputList& inputs, const InputRun* known, StreamRef captured) {
  const StreamRef stream = gate_.stream_.get();
  const bool has_guest = gate_.rest_ && gate_.rest_->outside;
  Gate::Outside outside{
      StreamSynchronization(stream), {}, has_guest ? gate_.rest_->outside->guest : StreamRef()};
  const bool any = find_producers(inputs, known, captured, outside);
  if (outside.libraries.streams() == 0 && outside.of_contexts.empty() && !outside.captured)
    return any;
  outside.order_contexts_before(stream);
  outside.libraries.begin();
  if (outside.captured) outside.captured->begin();
  gate_.rest().outside.emplace(std::move(outside));
  return true;
}

void Entry::order_producers_before(const InputList& inputs, StreamRef stream, StreamRef captured) {
  Gate::Outside outside{StreamSynchronization(stream), {}, {}};
  (void)find_producers(inputs, nullptr, captured, outside);
  outside.order_contexts_before(stream);
  outside.libraries.begin();
  if (!outside.captured) return;
  outside.captured->begin();
  gate_.rest().outside.emplace(
      Gate::Outside{StreamSynchronization(stream), {}, {}, std::move(outside.captured)});
}

// Each producer separately: a stream that refuses must not keep the others from waiting.
void Entry::finish_order() {
  PlainMemoryUser* const shared = std::exchange(gate_.rest_->shared, nullptr);
  const std::optional<Gate::Outside> outside = std::exchange(gate_.rest_->outside, std::nullopt);
  const StreamRef stream = gate_.stream_.get();
  std::exception_ptr failure;
  const auto attempt = [&](auto&& finish) {
    try {
      finish();
    } catch (...) {
      failure = std::current_exception();
    }
  };
  if (shared != nullptr) attempt([&] { shared->end(); });
  if (outside) {
    for (const StorageRef& storage : outside->of_contexts)
      attempt([&] { storage->owner().used(*storage, stream); });
    attempt([&] { outside->libraries.finish(); });
    if (outside->captured) attempt([&] { outside->captured->finish(); });
    if (outside->guest) attempt([&] { outside->guest.wait_for(stream); });
  }
  if (failure) std::rethrow_exception(failure);
}

void Entry::leave_with_rest() noexcept {
  try {
    finish_order();  // if there is anything to do, the work has thrown
  } catch (const std::exception& error) {
    log_event(LogLevel::kError, "stream_not_ordered what=\"{}\"", error.what());
  }
  const std::shared_ptr<const void> context = std::move(gate_.rest_->context);  // owns the gate
  const Gate::LeftBehind ends_outside = gate_.take_left_behind();
  gate_.rest_.reset();
  gate_.leave();
}

}  // namespace cgtree
