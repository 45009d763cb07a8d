// Replays: which recording a usual call replays, and how recordings are replayed.
#pragma once

#include <vector>

#include "cgtree/record/outputs.h"
#include "cgtree/tree/workings.h"
#include "cgtree/values/input_list.h"
#include "interop/tensor/empty.h"

namespace cgtree {

// Replays the recording that followed last time or, for a call with a key, that the key has used
// last, if it fits; returns whether it did. That is all that a steady loop does. Throws
// InvalidArgument for inputs without the function's axes, OutOfMemory, DeviceError, and what
// functions of breaks throw.
bool replay_predicted(Workings& workings, Visit& visit, FunctionState& function,
                      const InputList& inputs, TensorList& outputs);

// Replays a recording that fits, and counts it. Throws OutOfMemory, DeviceError, and what functions
// of breaks throw.
void replay(Workings& workings, Node& node, const InputList& inputs, TensorList& outputs);
// The same of a node that is held back, and where each replay is watched. `copies`: where the
// outputs are copied to; null for a recording that copies none.
void replay_watched(Workings& workings, Node& node, const InputList& inputs, TensorList& outputs,
                    const OutputCopies* copies = nullptr);

// The same in two parts, for a replay that counts later.
void launch_watched(Workings& workings, Node& node, const InputList& inputs, TensorList& outputs,
                    const OutputCopies* copies = nullptr);
// What is decided in later calls knows of the replay from here on, whatever comes of it: in a group
// it may throw on one rank, and the others do not hear of it.
inline void begin_replay(Workings& workings, Node& node) noexcept {
  workings.tree.follow(node);
  workings.tree.go_to(node);
  ++node.recording.costs.replays;
}
inline void count_replay(FunctionState& function) noexcept {
  ++function.counters.replays;
  function.last_outcome.set(Outcome::kReplay);
}

// Makes the context's work from now on wait for neighbours that use the same plain memory as the
// call, of inputs or, unless it is null, by what else the recording uses; and notes the end of the
// call's own use when the visit finishes. Throws CaptureError, DeviceError, std::bad_alloc.
void wait_for_neighbours(Workings& workings, const FunctionState& function, const InputList& inputs,
                         const Recording* recording = nullptr);
// Notes what a call uses that becomes part of a graph of the caller's: neighbours wait for the end
// of the context's stream from then on. Waits for nothing.
void note_captured_uses(Workings& workings, const FunctionState& function, const InputList& inputs);
// The same for work of a nested call on another stream of the step, or of a captured call, which
// becomes part of the caller's graph: then its end is that of the context's stream. `stream` waits.
bool order_behind_neighbours(Workings& workings, const FunctionState& function,
                             const InputList& inputs, StreamRef stream);

// Appends the plain memory that a call uses by its inputs, and that of contexts (decision 0040).
void append_plain_uses(const FunctionState& function, const InputList& inputs,
                       const ContextMemory& own, std::vector<PlainUse>& uses);

// Calls visit(storage) for each that a call of the function writes in place.
template <typename Visit>
void for_each_written(const FunctionState& function, const InputList& inputs, const Visit& visit) {
  if (!function.writes_inputs && inputs.buffers() == 0) return;
  const std::vector<InputOptions>& options = function.options.inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool is_written = inputs.is_buffer(i) || (i < options.size() && options[i].is_mutated);
    if (is_written && inputs[i].defined()) visit(*inputs[i].storage());
  }
}

// The context's work from now on, or else that of another stream, waits for those who read what the
// call writes in place.
void wait_for_readers(Workings& workings, const FunctionState& function, const InputList& inputs,
                      StreamRef instead = {});

}  // namespace cgtree
