// Replays of recordings that fit.
#pragma once

#include <vector>

#include "cgtree/record/outputs.h"
#include "cgtree/tree/engine.h"
#include "cgtree/values/input_list.h"
#include "interop/tensor/empty.h"

namespace cgtree {

// Replays a recording that fits, and counts it. Throws OutOfMemory, DeviceError, and exceptions of
// functions of breaks.
void replay(Engine& engine, Node& node, const InputList& inputs, TensorList& outputs);
// The same of a node that is held back, and where each replay is watched. `copies`: where the
// outputs are copied to; null for a recording that copies none.
void replay_watched(Engine& engine, Node& node, const InputList& inputs, TensorList& outputs,
                    const OutputCopies* copies = nullptr);

// The same in two parts, for a replay that counts later.
void launch_watched(Engine& engine, Node& node, const InputList& inputs, TensorList& outputs,
                    const OutputCopies* copies = nullptr);
// Later calls count the replay from here on, even if it throws: in a group it may throw on one
// rank, and the others do not hear of it.
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
