// Calls the functions of breaks: in a running step, and between the graphs of a replay.
#include "cgtree/record/breaks.h"

#include <memory>

#include "base/error.h"
#include "base/format.h"
#include "cgtree/record/step.h"
#include "interop/device/device_api.h"
#include "interop/tensor/empty.h"

namespace cgtree {
namespace {

// A replay moves generators once, before its first graph.
class NoDraws final : public DrawHandler {
 public:
  PhiloxRange reserve(const PhiloxSequenceRef&, std::uint64_t) override { refuse(); }
  void set_seed(const PhiloxSequenceRef&, std::uint64_t) override { refuse(); }
  GeneratorState state(const PhiloxSequenceRef&) override { refuse(); }
  void set_state(const PhiloxSequenceRef&, const GeneratorState&) override { refuse(); }

 private:
  [[noreturn]] static void refuse() {
    throw InvalidArgument(
        "the function of an eager_break() uses a generator: draw in front of the break");
  }
};

void run_break(const EagerBreak& work, const InputList& inputs) {
  const BreakScope none(nullptr);
  const LengthsScope no_lengths(nullptr);
  const GuardScope no_guards(nullptr);
  NoDraws no_draws;
  const DrawHandlerScope scope(no_draws);
  work(StepValues(inputs));
}

}  // namespace

bool BreakHandler::is_current() const noexcept {
  return frame().breaks == this;
}

void BreaksAtOnce::eager_break(EagerBreak work) {
  const std::shared_ptr<const void> owner = StepScope::current()->owner();  // owns this handler
  const StreamRef stream = current_stream();
  if (stream.is_capturing()) {
    throw CaptureError(static_cast<int>(Code::kStreamCaptureUnsupported),
                       "eager_break() while the stream of the caller captures: its function would "
                       "run once, and not at each launch of the caller's graph; end the capture "
                       "before the call");
  }
  const std::uint32_t allocations = step_.count;
  run_break(work, call_.inputs());
  step_.count = allocations;
}

void call_breaks(Recording& recording, ContextMemory& memory, const InputList& inputs) {
  const StreamRef stream = memory.stream();
  StepScope scope(memory, stream, StepAllocations::Kind::kEager);
  scope.allocations().is_in_replay = true;
  const Key key = Key::of_text(recording.key);
  const KeyScope key_scope(&key);
  for (const Recording::Further& next : recording.further) {
    run_break(*next.before, inputs);
    recording.kept.expect_live();  // another context may have ended what the next graph reads
    check(next.exec.api().launch(next.exec.handle(), stream.handle()),
          "launch the graph behind an eager_break()");
  }
  scope.finish();
}

std::span<const std::byte> StepValues::bytes(std::size_t i) const {
  if (i >= inputs_.step_size() || !is_by_value(inputs_[i])) {
    throw InvalidArgument(str_format(
        "value {} of a step with {} inputs: {}", i, inputs_.step_size(),
        i < inputs_.step_size() ? "it is not passed by value" : "there is no such input"));
  }
  return {reinterpret_cast<const std::byte*>(inputs_[i].address()), inputs_[i].bytes()};
}

void StepValues::expect_size(std::size_t i, std::size_t size) const {
  if (bytes(i).size() == size) return;
  throw InvalidArgument(
      str_format("value {} has {} bytes, and {} are asked for", i, bytes(i).size(), size));
}

void eager_break(EagerBreak work) {
  if (!work) throw InvalidArgument("eager_break() without a function");
  BreakHandler* const handler = frame().breaks;
  if (handler == nullptr) {
    throw InvalidArgument(
        "eager_break() outside of a step, in a step function that another step function calls, or "
        "in the function of another break: call it in the outer step function itself");
  }
  handler->eager_break(std::move(work));
}

}  // namespace cgtree
