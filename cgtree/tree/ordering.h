// Orders the work of a call with other work on the same memory.
//
// Readers are libraries and contexts that read memory which the call writes in place. Neighbours
// are contexts, streams and engines that use the same plain memory (decision 0040).
#pragma once

#include <vector>

#include "cgtree/tree/engine.h"
#include "cgtree/values/input_list.h"

namespace cgtree {

// Makes the context's stream wait for neighbours that use the same plain memory as the call: that
// of its inputs and, unless `recording` is null, other memory of the recording. Notes the end of
// the call's own use when the entry finishes. Throws CaptureError, DeviceError, std::bad_alloc.
void wait_for_neighbours(Engine& engine, const FunctionState& function, const InputList& inputs,
                         const Recording* recording = nullptr);
// Notes the memory uses of a call that joins a graph of the caller's: from then on neighbours wait
// for the end of the context's stream. Does not wait.
void note_captured_uses(Engine& engine, const FunctionState& function, const InputList& inputs);
// The same for work of a nested call on another stream of the step, or of a captured call; such
// work ends with the context's stream. `stream`, `captured`: as for PlainMemoryUser::begin().
bool order_behind_neighbours(Engine& engine, const FunctionState& function, const InputList& inputs,
                             StreamRef stream, StreamRef captured = {});

// Appends the plain memory that a call uses by its inputs, and that of contexts (decision 0040).
void append_plain_uses(const FunctionState& function, const InputList& inputs,
                       const ContextMemory& own, std::vector<PlainUse>& uses);

// Calls visit(storage) for each storage that a call of the function writes in place.
template <typename Visit>
void for_each_written(const FunctionState& function, const InputList& inputs, const Visit& visit) {
  if (!function.writes_inputs && inputs.buffers() == 0) return;
  const std::vector<InputOptions>& options = function.options.inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool is_written = inputs.is_buffer(i) || (i < options.size() && options[i].is_mutated);
    if (is_written && inputs[i].defined()) visit(*inputs[i].storage());
  }
}

// Makes the context's stream, or `instead`, wait for readers of memory that the call writes.
void wait_for_readers(Engine& engine, const FunctionState& function, const InputList& inputs,
                      StreamRef instead = {});

// Adds to the recording's uses the declared memory that its graph may use.
void note_declared_uses(Recording& recording, const ContextMemory& memory);
// Notes which inputs may have moved: a replay looks at no others. Requires: bind() has returned.
void note_moved_inputs(Engine& engine, Node& node, const InputList& inputs);

}  // namespace cgtree
