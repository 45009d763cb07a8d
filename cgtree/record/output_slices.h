// Outputs of a step function that saw padded inputs: checked, and sliced to the call's sizes.
#pragma once

#include <span>
#include <vector>

#include "cgtree/tree/node.h"

namespace cgtree {

// Throws InvalidArgument if an output lacks an axis that OutputOptions::dynamic promised, or the
// axis has another of `sizes`, those that the function saw.
void check_output_axes(const FunctionState& function, std::span<const Tensor> outputs,
                       const AxisSizes& sizes);

// Slices the outputs to the sizes given. Requires that they were checked against the sizes seen.
void slice_outputs(const FunctionState& function, std::span<Tensor> outputs);

// Where replays find the sizes to slice to.
void learn_slices(const FunctionState& function, std::span<OutputRecord> outputs);

// The shape of an output of a call with these inputs. Takes no memory for sizes it has met, as long
// as they are not too many.
const Shape& sliced(OutputRecord& record, InputList inputs);

}  // namespace cgtree
