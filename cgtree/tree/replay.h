// Replays of recordings that fit.
#pragma once

#include <vector>

#include "cgtree/record/outputs.h"
#include "cgtree/tree/engine.h"
#include "cgtree/values/input_list.h"
#include "interop/tensor/empty.h"

namespace cgtree {

// Replays a recording that fits, and counts it. Throws OutOfMemory, DeviceError, and exceptions of
// breaks.
void replay(Engine& engine, Node& node, const InputList& inputs, TensorList& outputs);
// The same for a node that is held back, or if each replay is watched. `copies`: receives the
// copies of outputs; null for a recording that copies none.
void replay_watched(Engine& engine, Node& node, const InputList& inputs, TensorList& outputs,
                    const OutputCopies* copies = nullptr);

// The same in two parts, for a replay that is counted later.
void launch_watched(Engine& engine, Node& node, const InputList& inputs, TensorList& outputs,
                    const OutputCopies* copies = nullptr);
// Counts the replay for later decisions from here on, even if it throws: in a group it may throw on
// one rank, and the others are not told.
inline void begin_replay(Engine& engine, Node& node) noexcept {
  engine.tree.follow(node);
  engine.tree.go_to(node);
  ++node.recording.costs.replays;
}
inline void begin_watched_replay(Engine& engine, Node& node) {
  begin_replay(engine, node);
  engine.extensions.after({.kind = CallEvent::kBeginReplay, .node = &node});
}
inline void count_replay(FunctionState& function) noexcept {
  ++function.counters.replays;
  function.last_outcome.set(Outcome::kReplay);
}

}  // namespace cgtree
