// Orders the work of a call with others that use the same memory.
//
// Readers are libraries and contexts that read memory that the call writes in place. Neighbours are
// contexts, streams and engines that use the same plain memory (decision 0040).
#pragma once

#include <vector>

#include "cgtree/tree/engine.h"
#include "cgtree/values/input_list.h"

namespace cgtree {

// Makes the context's work from now on wait for neighbours that use the same plain memory as the
// call, of inputs or, unless it is null, by what else the recording uses; and notes the end of the
// call's own use when the entry finishes. Throws CaptureError, DeviceError, std::bad_alloc.
void wait_for_neighbours(Engine& engine, const FunctionState& function, const InputList& inputs,
                         const Recording* recording = nullptr);
// Notes the uses of a call that becomes part of a graph of the caller's: neighbours wait for the
// end of the context's stream from then on. Waits for nothing.
void note_captured_uses(Engine& engine, const FunctionState& function, const InputList& inputs);
// The same for work of a nested call on another stream of the step, or of a captured call, whose
// end is that of the context's stream. `stream`, `captured`: as for PlainMemoryUser::begin().
bool order_behind_neighbours(Engine& engine, const FunctionState& function, const InputList& inputs,
                             StreamRef stream, StreamRef captured = {});

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

// The context's work from now on, or else that of another stream, waits for readers of memory that
// the call writes in place.
void wait_for_readers(Engine& engine, const FunctionState& function, const InputList& inputs,
                      StreamRef instead = {});

// Adds the memory that is declared, and that the recording's graph may use, to its uses.
void note_declared_uses(Recording& recording, const ContextMemory& memory);
// Notes the inputs that may have moved: a replay looks at no others. Requires: bind() has returned.
void note_moved_inputs(Engine& engine, Node& node, const InputList& inputs);

}  // namespace cgtree
