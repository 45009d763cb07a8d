// Finds what a usual call replays, binds and launches it, and hands out its outputs.
#include "cgtree/tree/replay.h"

#include <fmt/format.h>

#include <chrono>

#include "base/log.h"
#include "cgtree/record/breaks.h"
#include "cgtree/record/outputs.h"
#include "cgtree/record/step.h"

namespace cgtree {
namespace {

// What the device has refused twice it may refuse for good: the next call records anew.
[[noreturn]] void refuse_launch(Workings& workings, Node& node, Code code) {
  const std::string what = fmt::format("replay '{}' (node {})", node.function->name, node.id);
  if (!workings.attempts.are_shared() && ++node.recording.refused_launches == 2) {
    workings.events->after({.kind = CallEvent::kDrop,
                            .node = &node,
                            .what = "the device has refused to launch it twice"});
    workings.tree.drop(node);
  }
  throw_code(code, what);
}

// No other replay runs code of the caller's, so that no other needs to hold its inputs.
[[gnu::noinline]] void call_breaks_of_replay(Workings& workings, Node& node,
                                             const InputList& inputs, TensorList& outputs) {
  workings.door.keep_context();
  const HeldInputs held(inputs);
  const auto range = workings.events->open_range("breaks", *node.function, node.id);
  call_breaks(node.recording, *workings.memory, held.list());
  make_outputs(node.recording, node.function->id, *workings.memory, held.list(), outputs);
}

// Returns the memory of input `i`, of any owner. Requires: the input is defined.
PlainUse use_of(const FunctionState& function, const InputList& inputs, std::size_t i) {
  const Tensor& input = inputs[i];
  const auto bytes = static_cast<std::size_t>(input.shape().extent()) * size_of(input.dtype());
  return {{input.address(), bytes}, inputs.is_buffer(i) || function.input_options(i).is_mutated};
}

// Returns the memory that input `i` uses as plain memory, or no bytes. That of another library is
// ordered with the library's stream. That of a context is ordered with the context's, but for
// others that write it: to its owner, `own`, each use is a read of what they have written. A nested
// call has its memory from the outer one, which is ordered.
PlainUse plain_use_of(const FunctionState& function, const InputList& inputs, std::size_t i,
                      const ContextMemory& own) {
  const Tensor& input = inputs[i];
  if (!input.defined() || input.device().type != own.device().type) return {};
  const Storage& storage = *input.storage();
  const bool is_own = storage.domain() == &own;
  if (storage.producer() || (is_own && StepScope::active())) return {};
  PlainUse use = use_of(function, inputs, i);
  use.is_written &= !is_own;
  return use;
}

// Notes the inputs that may have moved: a replay looks at no others. Requires: bind() has returned.
[[gnu::noinline]] void note_moved_inputs(Workings& workings, Node& node, const InputList& inputs) {
  PlainMemoryUser& plain = workings.memory->plain();
  TakenDraws draws(node.recording);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!may_move(node.recording.inputs[i].treatment) || !inputs[i].defined()) continue;
    if (plain.is_recent(use_of(*node.function, inputs, i))) continue;
    plain.note(plain_use_of(*node.function, inputs, i, *workings.memory));
  }
  draws.keep();
}

// Inlined, because a replay that is not watched is to cost no call for those that are. One that
// copies its outputs is held back, and so takes the way of those that are watched.
template <bool kIsWatched>
[[gnu::always_inline]] inline void launch_replay(Workings& workings, Node& node,
                                                 const InputList& inputs, TensorList& outputs,
                                                 const OutputCopies* copies = nullptr) {
  Recording& recording = node.recording;
  ContextMemory& memory = *workings.memory;
  memory.end_tracking();
  if (kIsWatched && copies != nullptr) recording.output_copies = copies->tensors();
  bool patched = false;
  if (recording.has_to_bind) {
    patched = bind_nodes(recording, kIsWatched && copies != nullptr ? copies->inputs() : inputs);
    if (patched) note_moved_inputs(workings, node, inputs);
  }
  TakenDraws draws(recording);
  if (memory.streams().has_readers()) [[unlikely]] {
    wait_for_readers(workings, *node.function, inputs);
    wait_for_readers(recording, memory.streams());
    wait_for_neighbours(workings, *node.function, inputs, &recording);
  }
  memory.streams().wait_for_due();
  if (kIsWatched) workings.events->begin_launch();
  const Code code = launch(recording, memory.streams());
  if (!ok(code)) [[unlikely]] {
    draws.give_back();
    refuse_launch(workings, node, code);
  }
  if (recording.has_runs) {
    recording.statics.learn(recording.inputs, inputs, recording.device);
    recording.copies.learn(recording.inputs, inputs, recording.device,
                           /*are_others=*/!patched && !recording.has_bound_copies);
  }
  try {
    if (!recording.further.empty()) [[unlikely]] {
      call_breaks_of_replay(workings, node, inputs, outputs);
    } else {
      make_outputs(recording, node.function->id, memory, inputs, outputs);
    }
  } catch (...) {
    // The other ranks of a group do not hear of it, and have drawn.
    if (workings.attempts.are_shared()) draws.keep();
    throw;
  }
  draws.keep();
  if (patched) ++recording.costs.patches;
}

// Returns the predicted node if it fits, or null. Inlined: it is all that a replay decides.
[[gnu::always_inline]] inline Node* find_predicted(Workings& workings, Visit& visit,
                                                   FunctionState& function,
                                                   const InputList& inputs) {
  const Node& current = workings.tree.current();
  const ContextMemory& memory = *workings.memory;
  Node* node = predict(current, function, inputs, memory, graph_override());
  if (node == nullptr) [[unlikely]] {
    if (!inputs.key().empty()) node = predict_by_key(function, inputs, memory, graph_override());
    if (node == nullptr && function.takes_lent) {
      const LentPrediction lent = predict_lent(current, function, inputs, memory, graph_override());
      if (lent.node != nullptr && visit.wait_for_producers(inputs, lent.known)) {
        wait_for_readers(workings, function, inputs);
      }
      node = lent.node;
    }
  }
  return node;
}

}  // namespace

void wait_for_readers(Workings& workings, const FunctionState& function, const InputList& inputs,
                      StreamRef instead) {
  ContextMemory& memory = *workings.memory;
  for_each_written(function, inputs, [&](const Storage& storage) {
    if (storage.domain() == &memory && !instead) {
      memory.streams().wait_for_readers(storage);
    } else if (storage.domain() != nullptr) {
      storage.owner().order_readers_before(storage, instead ? instead : memory.stream());
    }
  });
}

void append_plain_uses(const FunctionState& function, const InputList& inputs,
                       const ContextMemory& own, std::vector<PlainUse>& uses) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const PlainUse use = plain_use_of(function, inputs, i, own);
    if (use.range.bytes > 0) uses.push_back(use);
  }
}

void wait_for_neighbours(Workings& workings, const FunctionState& function, const InputList& inputs,
                         const Recording* recording) {
  ContextMemory& memory = *workings.memory;
  std::vector<PlainUse> uses;
  append_plain_uses(function, inputs, memory, uses);
  if (recording != nullptr) {
    uses.insert(uses.end(), recording->plain_uses.begin(), recording->plain_uses.end());
  } else {  // the work may read it by its address
    for (const auto& [name, range] : memory.declared()->list())
      uses.push_back({range});
  }
  if (memory.plain().begin(uses, memory.stream())) workings.door.note_shared_use(memory.plain());
}

void note_captured_uses(Workings& workings, const FunctionState& function,
                        const InputList& inputs) {
  std::vector<PlainUse> uses;
  append_plain_uses(function, inputs, *workings.memory, uses);
  PlainMemoryUser& plain = workings.memory->plain();
  (void)plain.begin(uses, StreamRef());
  plain.end(/*in_graph=*/true);
}

bool order_behind_neighbours(Workings& workings, const FunctionState& function,
                             const InputList& inputs, StreamRef stream) {
  std::vector<PlainUse> uses;
  append_plain_uses(function, inputs, *workings.memory, uses);
  return workings.memory->plain().begin(uses, stream);
}

bool replay_predicted(Workings& workings, Visit& visit, FunctionState& function,
                      const InputList& inputs, TensorList& outputs) {
  AxisPlan* const plan = function.axes.get();
  CallAxes& axes = workings.call.axes();
  if (plan != nullptr) [[unlikely]] {
    plan->read(inputs, axes);
  }
  if (!visit.may_predict()) [[unlikely]] {
    return false;
  }
  visit.begin_predicted();
  workings.catch_up();
  if (plan == nullptr) [[likely]] {
    Node* const node = find_predicted(workings, visit, function, inputs);
    if (node == nullptr) [[unlikely]] {
      return false;
    }
    replay(workings, *node, inputs, outputs);
    return true;
  }
  if (plan->choose(axes).kind != AxisChoice::Kind::kSize) return false;
  const InputList padded = plan->pad(inputs, axes);
  Node* const node = find_predicted(workings, visit, function, padded);
  if (node == nullptr) return false;
  plan->note(axes, function.precaptures.load(std::memory_order_relaxed) == 0);
  replay(workings, *node, padded, outputs);
  return true;
}

void replay(Workings& workings, Node& node, const InputList& inputs, TensorList& outputs) {
  if (workings.watches_replays || log_enabled(LogLevel::kTrace)) [[unlikely]] {
    return replay_watched(workings, node, inputs, outputs);
  }
  begin_replay(workings, node);
  launch_replay<false>(workings, node, inputs, outputs);
  count_replay(*node.function);
}

[[gnu::noinline]] void replay_watched(Workings& workings, Node& node, const InputList& inputs,
                                      TensorList& outputs, const OutputCopies* copies) {
  begin_replay(workings, node);
  if (workings.verifier != nullptr) workings.verifier->watch(node);
  launch_watched(workings, node, inputs, outputs, copies);
  count_replay(*node.function);
}

[[gnu::noinline]] void launch_watched(Workings& workings, Node& node, const InputList& inputs,
                                      TensorList& outputs, const OutputCopies* copies) {
  const auto begin = std::chrono::steady_clock::now();
  {
    const auto open = workings.events->open_replay(node, inputs);
    launch_replay<true>(workings, node, inputs, outputs, copies);
  }
  workings.events->after({.kind = CallEvent::kReplay,
                          .node = &node,
                          .axes = &workings.call.axes(),
                          .time = std::chrono::steady_clock::now() - begin});
}

}  // namespace cgtree
