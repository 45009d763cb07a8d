// run_step(): calls a step function as it is: eagerly, or as part of another's recording.
#pragma once

#include <vector>

#include "cgtree/tree/node.h"

namespace cgtree {

class ContextMemory;

enum class StepRun { kEagerly, kWarmUp };

// On the current stream, with scalars as tensors on the lane's device; in a warm-up, with inputs
// padded and outputs sliced, too. Outputs for which there are
// buffers are copied there. Requires that a step is open, or that the caller is inside of one.
// Throws what the step function throws, InvalidArgument for outputs that hold nothing or are not as
// their buffers are, StaleTensor, OutOfMemory, DeviceError.
std::vector<Tensor> run_step(const FunctionState& function, ContextMemory& memory, InputList inputs,
                             StepRun as = StepRun::kEagerly);

// Throws InvalidArgument if there are more buffers than outputs, or one has another shape or dtype
// than its output.
void check_buffers(const FunctionState& function, std::span<const Tensor> outputs,
                   InputList inputs);

}  // namespace cgtree
