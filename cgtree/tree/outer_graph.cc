// Calls whose work becomes part of another graph: a capture of the caller's, or an outer step.

#include <memory>
#include <string>

#include "base/error.h"
#include "base/format.h"
#include "cgtree/record/breaks.h"
#include "cgtree/record/outputs.h"
#include "cgtree/record/step.h"
#include "cgtree/tree/attempt.h"
#include "cgtree/tree/ordering.h"
#include "interop/device/device_api.h"

namespace cgtree {
namespace {

// Waits on the host for other users of the memory of a call: a capturing stream cannot wait for
// work outside of the capture. `order_producers(stream)` makes the stream wait for the producers of
// the inputs. Returns true if there are neighbours: then plain().end() must follow the work.
template <typename OrderProducers>
bool wait_on_host(Engine& engine, const FunctionState& function, const InputList& inputs,
                  StreamRef captured, const OrderProducers& order_producers) {
  const RelaxedCapture relaxed(engine.memory->stream().api().graphs());
  const Stream beside(engine.memory->device());
  order_producers(StreamRef(beside));
  wait_for_readers(engine, function, inputs, beside);
  const bool has_neighbours = order_behind_neighbours(engine, function, inputs, beside, captured);
  beside.synchronize();
  return has_neighbours;
}

}  // namespace

// Makes the work part of a graph of the caller's, which uses the same memory at each launch. An
// engine keeps its memory itself.
void Attempt::join_capture(const InputList& inputs, StreamRef captured) {
  hold();
  const std::uint64_t capture = capture_of(captured);
  if (capture_of(memory_.stream()) != capture) {
    // The caller launches the graph after the context's stream.
    (void)entry_.wait_for_producers(inputs, nullptr, captured);
    wait_for_readers(engine_, function_, inputs);
    note_captured_uses(engine_, function_, inputs);
    (void)order_behind_neighbours(engine_, function_, inputs, memory_.stream(), captured);
  } else {
    await_others(inputs, captured);
  }
  memory_.plain().end(/*in_graph=*/true);
  for (std::size_t i = 0; !function_.is_callers_work && i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    const StorageRef& storage = inputs[i].storage();
    memory_.hold_for_capture(capture, storage);
    if (storage->domain() != &memory_) storage->owner().used(*storage, captured);
  }
  begin_skip(SkipReason::kForeignCapture, captured);
}

void Attempt::await_others(const InputList& inputs, StreamRef captured) {
  const auto is_lent = [&](const Tensor& input) {
    if (!input.defined()) return false;
    const Storage& storage = *input.storage();
    return storage.state() == Storage::State::kBorrowed ||
           (storage.domain() != nullptr && storage.domain() != &memory_);
  };
  note_captured_uses(engine_, function_, inputs);
  bool any = memory_.streams().has_readers();
  for (std::size_t i = 0; i < inputs.size(); ++i)
    any = any || is_lent(inputs[i]);
  if (!any) return;
  (void)wait_on_host(engine_, function_, inputs, captured, [&](StreamRef beside) {
    entry_.order_producers_before(inputs, beside, captured);
  });
}

// The outer step's recording includes the work, and the outer step's pool holds the outputs. A call
// of the context itself may be in progress.
void Engine::run_nested(FunctionState& function, InputList inputs, TensorList& outputs) {
  if (StepScope::innermost() != memory.get()) {
    throw InvalidArgument(str_format(
        "'{}' belongs to one context, and is called inside a step function of another, whose "
        "stream and memory it would use: compile it in that context too, or call it before or "
        "after",
        function.name));
  }
  const std::shared_ptr<const void> owner = StepScope::current()->owner();
  const HeldInputs held(inputs);
  const Call call(function, *memory, held.list());
  call.check();
  order_nested(function, held.list());
  const BreakScope none(nullptr);
  hand_out(run_nested_step(call, *memory), outputs);
  if (StepScope::current()->allocations().is_verification) return;
  function.counters.nested_calls.fetch_add(1, std::memory_order_relaxed);
  function.last_outcome.set_skipped(SkipReason::kNestedCall);
}

// Memory that a nested call writes in place, and that its step has not allocated, may have readers.
// A recording waits for them at each launch; in a capture of the caller's, the host waits.
void Engine::order_nested(const FunctionState& function, const InputList& inputs) {
  StepAllocations& step = StepScope::current()->allocations();
  if (step.kind == StepAllocations::Kind::kRecord && !step.is_paused) {
    for_each_written(function, inputs,
                     [&](const Storage& storage) { step.written.push_back(&storage); });
    append_plain_uses(function, inputs, *memory, step.plain_uses);
    return;
  }
  PlainMemoryUser& plain = memory->plain();
  const StreamRef stream = current_stream();
  if (!stream.is_capturing()) {
    wait_for_readers(*this, function, inputs, stream);
    if (order_behind_neighbours(*this, function, inputs, stream)) gate.note_shared_use(plain);
    return;
  }
  note_captured_uses(*this, function, inputs);
  if (!memory->streams().has_readers()) return;
  const auto no_producers = [](StreamRef) {};
  if (wait_on_host(*this, function, inputs, stream, no_producers)) plain.end(/*in_graph=*/true);
}

}  // namespace cgtree
