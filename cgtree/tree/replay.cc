// Binds and launches a recording, and hands out its outputs.
#include "cgtree/tree/replay.h"

#include <chrono>

#include "base/format.h"
#include "base/log.h"
#include "cgtree/record/breaks.h"
#include "cgtree/record/outputs.h"
#include "cgtree/tree/ordering.h"
#include "interop/device/code.h"

namespace cgtree {
namespace {

// A launch that the device refused twice may never succeed: the next call records again.
[[noreturn]] void refuse_launch(Engine& engine, Node& node, Code code) {
  const std::string what = str_format("replay '{}' (node {})", node.function->name, node.id);
  if (!engine.votes.are_shared() && ++node.recording.refused_launches == 2) {
    engine.drop(node, "the device has refused to launch it twice");
  }
  throw_code(code, what);
}

// Breaks run the caller's code inside the replay, which may free the inputs, so hold them here.
[[gnu::noinline]] void call_breaks_of_replay(Engine& engine, Node& node, const InputList& inputs,
                                             TensorList& outputs) {
  engine.gate.keep_context();
  const HeldInputs held(inputs);
  const auto range = engine.extensions.open_range("breaks", *node.function, node.id);
  call_breaks(node.recording, *engine.memory, held.list());
  make_outputs(node.recording, node.function->id, *engine.memory, held.list(), outputs);
}

// Inlined, so that an unwatched replay makes no call on behalf of watched ones. A recording that
// copies its outputs is held back, and so is replayed as a watched one.
template <bool kIsWatched>
[[gnu::always_inline]] inline void launch_replay(Engine& engine, Node& node,
                                                 const InputList& inputs, TensorList& outputs,
                                                 const OutputCopies* copies = nullptr) {
  Recording& recording = node.recording;
  ContextMemory& memory = *engine.memory;
  memory.end_tracking();
  if (kIsWatched && copies != nullptr) recording.output_copies = copies->tensors();
  bool patched = false;
  if (recording.has_to_bind) {
    patched = bind_nodes(recording, kIsWatched && copies != nullptr ? copies->inputs() : inputs);
    if (patched) note_moved_inputs(engine, node, inputs);
  }
  TakenDraws draws(recording);
  if (memory.streams().has_readers()) [[unlikely]] {
    wait_for_readers(engine, *node.function, inputs);
    wait_for_readers(recording, memory.streams());
    wait_for_neighbours(engine, *node.function, inputs, &recording);
  }
  memory.streams().wait_for_due();
  if (kIsWatched) engine.extensions.begin_launch();
  const Code code = launch(recording, memory.streams());
  if (!ok(code)) [[unlikely]] {
    draws.give_back();
    refuse_launch(engine, node, code);
  }
  if (recording.has_runs) {
    recording.statics.learn(recording.inputs, inputs, recording.device);
    recording.copies.learn(recording.inputs, inputs, recording.device,
                           /*are_others=*/!patched && !recording.has_bound_copies);
  }
  try {
    if (!recording.further.empty()) [[unlikely]] {
      call_breaks_of_replay(engine, node, inputs, outputs);
    } else {
      make_outputs(recording, node.function->id, memory, inputs, outputs);
    }
  } catch (...) {
    // The other ranks of a group are not told, and have drawn.
    if (engine.votes.are_shared()) draws.keep();
    throw;
  }
  draws.keep();
  if (patched) ++recording.costs.patches;
}

}  // namespace

void replay(Engine& engine, Node& node, const InputList& inputs, TensorList& outputs) {
  if (engine.extensions.wants().replays || log_enabled(LogLevel::kTrace)) [[unlikely]] {
    return replay_watched(engine, node, inputs, outputs);
  }
  begin_replay(engine, node);
  launch_replay<false>(engine, node, inputs, outputs);
  count_replay(*node.function);
}

[[gnu::noinline]] void replay_watched(Engine& engine, Node& node, const InputList& inputs,
                                      TensorList& outputs, const OutputCopies* copies) {
  begin_watched_replay(engine, node);
  launch_watched(engine, node, inputs, outputs, copies);
  count_replay(*node.function);
}

[[gnu::noinline]] void launch_watched(Engine& engine, Node& node, const InputList& inputs,
                                      TensorList& outputs, const OutputCopies* copies) {
  const auto begin = std::chrono::steady_clock::now();
  {
    const auto open = engine.extensions.open_replay(node, inputs);
    launch_replay<true>(engine, node, inputs, outputs, copies);
  }
  engine.extensions.after({.kind = CallEvent::kReplay,
                           .node = &node,
                           .axes = &engine.present.axes(),
                           .time = std::chrono::steady_clock::now() - begin});
}

}  // namespace cgtree
