// Breaks: the effect of eager_break() on a thread, and the part of a replay after a break.
#pragma once

#include "base/frame.h"
#include "cgtree/memory/context_memory.h"
#include "cgtree/record/call.h"
#include "cgtree/record/recording.h"
#include "cgtree/values/eager_break.h"

namespace cgtree {

// A BreakHandler serves eager_break() while it is current on the thread.
class BreakHandler {
 public:
  virtual void eager_break(EagerBreak work) = 0;

  // Returns whether this handler would serve an eager_break() on this thread: false inside the
  // function of a break, and inside a step function that the step calls.
  bool is_current() const noexcept;

 protected:
  ~BreakHandler() = default;
};

// While a BreaksAtOnce lives, its thread runs a step without a graph: functions of breaks run at
// once. Their allocations get no number in the step, as when it is recorded.
class BreaksAtOnce final : public BreakHandler {
 public:
  // Both are borrowed.
  BreaksAtOnce(const Call& call, StepAllocations& step) noexcept : call_(call), step_(step) {}

  void eager_break(EagerBreak work) override;

 private:
  const Call& call_;
  StepAllocations& step_;
  const BreakScope scope_{this};
};

// Calls the functions of the breaks of a recording, and launches the graph after each. Requires:
// the graph before the first break was launched with these inputs, which are held. Throws the
// exceptions of the functions, and DeviceError.
void call_breaks(Recording& recording, ContextMemory& memory, const InputList& inputs);
inline void launch_further(Recording& recording, ContextMemory& memory, const InputList& inputs) {
  if (!recording.further.empty()) [[unlikely]] {
    call_breaks(recording, memory, inputs);
  }
}

}  // namespace cgtree
