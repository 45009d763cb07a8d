// Prepare: copies the inputs of a call to the places where the step function reads them, and
// outputs to the caller's buffers: by nodes of a recorded graph, or at once in a warm-up.
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
  std::vector<Tensor> step_inputs;   // the inputs of the step function: copies of copied inputs
  GatherNode::Work root;
  GatherNode::Work tail;
  // The distances between copies and inputs that may be rebound. All differ, so that a pointer that
  // moved by one of them belongs to that input.
  std::vector<std::uintptr_t> distances = {};
};

// Allocates the copies. Requires: a step is open. Throws OutOfMemory, and InvalidArgument if the
// type of an input cannot hold its padding.
PreparedInputs prepare_inputs(const Call& call, ContextMemory& memory);

// Adds copies of a recorded step's outputs, as it returned them, to the buffers of the call.
// Requires: make_row_major() has been applied.
void copy_to_buffers(std::span<const Tensor> outputs, InputList inputs, GatherNode::Work& tail);

// Returns input `i` as the step function sees it in a warm-up: itself, or a padded copy made on the
// context's stream. Requires: a step is open. Throws InvalidArgument, OutOfMemory, DeviceError.
Tensor pad_input(const Call& call, ContextMemory& memory, std::size_t i);

// Returns a copy of `input`, input `i` of a nested call, made on the current stream at each replay.
// Its padding begins at `sizes`, by axis: the address of an int64 on the device, or 0 for an axis
// without padding. Requires: a step is open. Throws as pad_input() does.
Tensor pad_nested_input(const Call& call, std::size_t i, const Tensor& input,
                        std::span<const std::uint64_t> sizes);
// Returns a copy with these dims, none smaller than those of `output`; the rest is zeros. Requires
// and throws as pad_nested_input().
Tensor pad_nested_output(const Tensor& output, std::span<const std::int64_t> dims);

// Copies the actual part of written copies back to the inputs.
void copy_back_mutated(const Call& call, ContextMemory& memory,
                       std::span<const Tensor> step_inputs);

// Returns `value` as an element of the type, in the first size_of(dtype) bytes, rounded to nearest
// for floating types. Throws InvalidArgument if the type cannot hold it: out of range, a fraction
// for an integer type, or any floating type of eight bits.
using ElementBytes = std::array<std::byte, kMaxGatherElement>;
ElementBytes padding_value(double value, DType dtype);

}  // namespace cgtree
