// Breaks: what eager_break() does on a thread, and the replay of what follows a break.
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

  // Returns whether an eager_break() on this thread would be this one's: false inside the function
  // of a break, and inside of a step function that the step calls.
  bool is_current() const noexcept;

 protected:
  ~BreakHandler() = default;
};

// While a BreaksAtOnce lives, its thread runs a step without a graph: functions of breaks are
// called at once. What they allocate has no number in the step, as when it is recorded.
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

// Calls the functions of the breaks of a recording, and launches the graph behind each. Requires:
// the graph in front of the first was launched, with these inputs, which are held. Throws what the
// functions throw, DeviceError.
void call_breaks(Recording& recording, ContextMemory& memory, const InputList& inputs);
inline void launch_further(Recording& recording, ContextMemory& memory, const InputList& inputs) {
  if (!recording.further.empty()) [[unlikely]] {
    call_breaks(recording, memory, inputs);
  }
}

}  // namespace cgtree
