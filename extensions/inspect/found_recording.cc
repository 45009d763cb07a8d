// Enters a context and decides, as a call does.
#include "extensions/inspect/found_recording.h"

#include "base/error.h"
#include "base/format.h"
#include "cgtree/record/step.h"
#include "cgtree/tree/outcomes.h"
#include "interop/device/code.h"

namespace cgtree {
namespace {

// Returns the engine of a function that may be inspected.
Engine& engine_of(const FunctionHandle& handle, std::string_view what) {
  if (handle.engine() == nullptr) {
    throw InvalidArgument(str_format("{} of a function that was moved from", what));
  }
  if (StepScope::active()) {
    throw InvalidArgument(str_format("{} of '{}' inside a step: call it when the step has ended",
                                     what, handle.name()));
  }
  if (handle.engine()->votes.are_shared()) {
    throw InvalidArgument(
        str_format("{} of '{}' in a group: collectives wait for ranks that are not inspected", what,
                   handle.name()));
  }
  return *handle.engine();
}

}  // namespace

FoundRecording::FoundRecording(const FunctionHandle& handle, const InputList& inputs,
                               std::string_view what)
    : engine(engine_of(handle, what)), function(handle.state()), entry(engine.gate) {
  if (entry.ask_foreign_capture()) {
    throw_code(Code::kStreamCaptureUnsupported,
               str_format("{} of '{}' while the stream is captured", what, handle.name()));
  }
  entry.begin();
  if (function.is_callers_work && entry.has_guest()) refuse_guest(engine, function);
  engine.catch_up();
  if (function.axes != nullptr) function.axes->read(inputs, call().axes());
  call().begin(function, *engine.memory, inputs);
  call().check();
  if (function.is_callers_work) check_apart(call());
  function.takes_lent = entry.wait_for_producers(inputs);
  const Decision decision = decide(engine.decision_input(function), call());
  if (decision.outcome == Outcome::kReplay) {
    node = decision.node;
  } else {
    why_not = "no recording would be replayed: " + to_string(engine.explain(decision, function));
  }
}

}  // namespace cgtree
