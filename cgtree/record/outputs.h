// Outputs: what a step function returned, understood when recording, and made again at replay.
#pragma once

#include <span>
#include <vector>

#include "cgtree/record/recording.h"

namespace cgtree {

// Throws InvalidArgument if an output holds nothing.
void check_outputs(const std::string& function, std::span<const Tensor> outputs);

// Where each output's memory comes from. `given` are the inputs of the call, `seen` those that the
// step function saw (copies in place of copied inputs), `inputs` their records. An output that is,
// or is a view of, an input is the caller's tensor, wherever the step function worked on it, but
// for inputs that it saw padded. Slots are not settled yet. Throws InvalidArgument if one is an
// output of an earlier call that was not passed in: its memory may be gone at replay.
std::vector<OutputRecord> understand_outputs(const std::string& function, const ContextMemory& memory,
                                             std::span<const Tensor> outputs,
                                             std::span<const Tensor> seen,
                                             const std::vector<InputRecord>& inputs,
                                             InputList given);

// Of output i, where the caller has given a buffer for it.
OutputRecord record_of_buffer(InputList given, std::size_t i);

// An output that is an input or a buffer of the call. Requires record.kind == kInput.
Tensor input_output(OutputRecord& record, InputList inputs);

// The outputs of a replay that has been launched, sliced to the call's sizes.
void make_outputs(Recording& recording, std::uint32_t function, ContextMemory& memory,
                  InputList inputs, std::span<Tensor> outputs);

}  // namespace cgtree
