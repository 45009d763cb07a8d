// Outputs: what a step function returned, understood when recording, and made again at replay.
#pragma once

#include <span>
#include <vector>

#include "cgtree/tree/recording.h"

namespace cgtree {

// Throws InvalidArgument if an output holds nothing.
void check_outputs(const std::string& function, std::span<const Tensor> outputs);

// Where each output's memory comes from. `given` are the inputs of the call, `seen` the inputs as
// the step function saw them (copies in place of copied inputs). Slots are not settled yet. Throws
// InvalidArgument if one is an output of an earlier call that was not passed in: its memory may be
// gone at replay.
std::vector<OutputRecord> understand_outputs(const std::string& function, const LaneMemory& memory,
                                             std::span<const Tensor> outputs,
                                             std::span<const Tensor> seen,
                                             const std::vector<InputRecord>& inputs);

// The outputs of a replay that has been launched, sliced to the call's sizes.
void make_outputs(Recording& recording, std::uint32_t function, LaneMemory& memory,
                  InputList inputs, std::span<Tensor> outputs);

}  // namespace cgtree
