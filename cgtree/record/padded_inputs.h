// Inputs that a step function sees padded: their rows in a root node, and their copies in a
// warm-up.
#pragma once

#include <cstdint>
#include <vector>

#include "cgtree/tree/node.h"
#include "interop/tensor/gather_row.h"
#include "cgtree/input_list.h"

namespace cgtree {

// Input `i` as the step function sees it, in its own memory. Requires in_place(i), or that there is
// nothing to see.
Tensor seen_as_it_lies(InputList inputs, std::size_t i);

// The copy between input `i`, which is padded, and the bucket at `fixed`. Throws InvalidArgument if
// its type cannot hold the padding.
GatherRow padded_input_row(const FunctionState& function, InputList inputs, std::size_t i,
                           GatherDirection direction, std::uintptr_t fixed);

// Input `i` as the step function is to see it when it is warmed up: itself, or a copy, made on the
// lane's stream, if it must be padded. Requires an open step. Throws InvalidArgument, OutOfMemory,
// DeviceError.
Tensor pad(const FunctionState& function, ContextMemory& memory, InputList inputs, std::size_t i);

// Copies the true part of what the function has written into such copies back.
void copy_back_mutated(const FunctionState& function, ContextMemory& memory, InputList inputs,
                       const std::vector<Tensor>& seen);

}  // namespace cgtree
