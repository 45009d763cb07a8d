// PreparedInputs: the inputs of a call that is to be recorded, as the step function will see them,
// and what brings them there and back.
#pragma once

#include <vector>

#include "cgtree/record/gather_node.h"
#include "cgtree/tree/node.h"

namespace cgtree {

struct PreparedInputs {
  std::vector<InputRecord> records;  // of all inputs, buffers included
  std::vector<Tensor> seen;          // by the step function
  GatherNode::Work root;
  GatherNode::Work tail;
};

// Allocates the copies. Requires an open step. Throws OutOfMemory.
PreparedInputs prepare_inputs(const FunctionState& function, ContextMemory& memory, InputList inputs);

// What copies the outputs of a recorded step, as it returned them, to the buffers of the call.
// Throws InvalidArgument for an output with gaps that would have to be sliced.
void copy_to_buffers(std::span<const Tensor> outputs, InputList inputs, GatherNode::Work& tail);

}  // namespace cgtree
