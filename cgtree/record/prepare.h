// Prepare: brings the inputs of a call to where the step function sees them, and outputs to the
// caller's buffers: by nodes of a graph that is recorded, or at once in a warm-up.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "cgtree/memory/context_memory.h"
#include "cgtree/record/call.h"
#include "cgtree/record/gather_node.h"
#include "cgtree/record/recording.h"
#include "interop/tensor/gather_row.h"

namespace cgtree {

// The inputs of a call that is to be recorded.
struct PreparedInputs {
  std::vector<InputRecord> records;  // of all inputs, buffers included
  std::vector<Tensor> step_inputs;   // what the step function is given: copies where it is copied
  GatherNode::Work root;
  GatherNode::Work tail;
  // How far the copies of inputs that may be rebound are from the inputs: no two alike, so that
  // what moved by so much is that input's.
  std::vector<std::uintptr_t> distances = {};
};

// Allocates the copies. Requires: a step is open. Throws OutOfMemory, and InvalidArgument if the
// type of an input cannot hold its padding.
PreparedInputs prepare_inputs(const Call& call, ContextMemory& memory);

// Adds what copies the outputs of a recorded step, as it returned them, to the buffers of the call.
// Requires: make_row_major() has seen them.
void copy_to_buffers(std::span<const Tensor> outputs, InputList inputs, GatherNode::Work& tail);

// Returns input `i` as the step function is to see it in a warm-up: itself, or a padded copy made
// on the context's stream. Requires: a step is open. Throws InvalidArgument, OutOfMemory,
// DeviceError.
Tensor pad_input(const Call& call, ContextMemory& memory, std::size_t i);

// Returns a copy of `input`, which is input `i` of a nested call, made on the current stream at
// each replay, in which its padding begins where `sizes` say, by axis: the address of an int64 on
// the device, or 0 for an axis that is whole. Requires: a step is open. Throws as pad_input().
Tensor pad_nested_input(const Call& call, std::size_t i, const Tensor& input,
                        std::span<const std::uint64_t> sizes);
// Returns a copy with these dims, none less than its own: zeros follow. Requires and throws so,
// too.
Tensor pad_nested_output(const Tensor& output, std::span<const std::int64_t> dims);

// Copies the actual part of what the function has written into such copies back.
void copy_back_mutated(const Call& call, ContextMemory& memory,
                       std::span<const Tensor> step_inputs);

// Returns `value` as an element of the type, in the first size_of(dtype) bytes, rounded to nearest
// for floating types. Throws InvalidArgument if the type cannot hold it: if it is out of range, or
// a fraction and the type is an integer; also for floats of eight bits.
using ElementBytes = std::array<std::byte, kMaxGatherElement>;
ElementBytes padding_value(double value, DType dtype);

}  // namespace cgtree
