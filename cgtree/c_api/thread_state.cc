// Notices step functions that never returned.
#include "cgtree/c_api/thread_state.h"

#include <fmt/format.h>

#include "cgtree/c_api/status.h"

namespace cgtree::capi {
namespace {

[[noreturn]] void throw_abandoned(const std::string& name) {
  throw StatusError(CGT_STEP_ABANDONED,
                    fmt::format("{} never returned: it was left by longjmp, and "
                                "neither this thread nor its context can go on; let it return a "
                                "status instead",
                                name));
}

}  // namespace

ThreadState& thread_state() {
  thread_local ThreadState state;
  return state;
}

void check_step_is_there() {
  ThreadState& thread = thread_state();
  // Stacks grow down: what a step function calls lies below it.
  if (!thread.is_abandoned && __builtin_frame_address(0) < marks.step->stack) return;
  thread.is_abandoned = true;
  for (const StepFrame* frame = marks.step; frame != nullptr; frame = frame->outer)
    frame->context_is_abandoned->store(true, std::memory_order_release);
  throw_abandoned(marks.step->name);
}

}  // namespace cgtree::capi
