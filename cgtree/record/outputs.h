// Outputs: checks and slices what a step function returned, works out where it comes from when it
// is recorded, and makes it again at replay.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cgtree/record/recording.h"

namespace cgtree {

// Throws InvalidArgument if an output is null, StaleTensor if one is stale.
void check_outputs(const std::string& function, std::span<const Tensor> outputs);

// Throws InvalidArgument if an output lacks an axis that OutputOptions::dynamic promised, or if the
// axis has another size than `sizes` says, those that the function saw.
void check_output_axes(const Function& function, std::span<const Tensor> outputs,
                       const AxisSizes& sizes);

// Replaces outputs that are views of an input seen in place on a dynamic axis by views of a copy,
// as every replay returns them, and has each input with a dynamic axis that is returned copied from
// now on. Requires: a step is warmed up or recorded. Throws OutOfMemory, DeviceError.
void copy_padded_inputs(const Call& call, ContextMemory& memory, std::span<Tensor> outputs,
                        std::span<const Tensor> step_inputs);

// Replaces outputs that would have to be sliced into a buffer, and are not row-major, by copies
// that are. Requires: a step is open. Throws as copy_padded_inputs().
void make_row_major(const Call& call, std::span<Tensor> outputs);

// Slices the outputs to the actual sizes. Requires: check_output_axes() with the padded sizes has
// returned.
void slice_outputs(const Call& call, std::span<Tensor> outputs);

// Throws InvalidArgument if there are more buffers than outputs, or if one has another shape or
// dtype than its output, or is on another device.
void check_buffers(const Call& call, std::span<const Tensor> outputs);

// Returns which output is one of an earlier call that was not passed in, or reaches beyond one that
// was, or "". Its memory may be reused at replay. Requires: check_outputs() has returned.
std::string find_earlier_output(const Call& call, const ContextMemory& memory,
                                std::span<const Tensor> outputs,
                                std::span<const Tensor> step_inputs);

// Returns where each output's memory comes from, and where replays find the sizes to slice it to.
// `outputs` are as the step function returned them, `step_inputs` what it was given. An output that
// lies in an input is the caller's tensor, wherever the step function worked on it, unless it saw
// the input padded. Slots are not settled yet. Requires: find_earlier_output() finds none.
std::vector<OutputRecord> understand_outputs(const Call& call, const ContextMemory& memory,
                                             std::span<const Tensor> outputs,
                                             std::span<const Tensor> step_inputs);

// Returns whether output i is a tensor of its own, of the same layout as its buffer: then the
// buffer can be in its place.
bool is_replaceable(std::span<const Tensor> outputs, std::size_t i, const Tensor& buffer);

// Returns the record of output i, for which the caller has given a buffer.
OutputRecord record_of_buffer(InputList inputs, std::size_t i);

// Returns an output that is an input or a buffer of the call. Requires: record.kind == kInput.
Tensor input_output(OutputRecord& record, const InputList& inputs);

// An OutputCopies is memory for the copies of one call's outputs, and the list by which the tail
// node finds it: the call's inputs, and behind them the copies.
class OutputCopies {
 public:
  // Allocates in the eager region. `shapes`: Recording::copies_of_outputs. Throws OutOfMemory.
  OutputCopies(ContextMemory& memory, const InputList& inputs, std::span<const Shape> shapes);
  OutputCopies(const OutputCopies&) = delete;
  OutputCopies& operator=(const OutputCopies&) = delete;

  // Both are valid while this lives.
  InputList inputs() const noexcept { return InputList(addresses_); }
  const Tensor* tensors() const noexcept { return tensors_.data(); }

 private:
  std::vector<Tensor> tensors_;
  std::vector<const Tensor*> addresses_;
};

// Has outputs that are memory of the step copied: changes their records, and adds rows to the tail.
// `outputs`: as the step has returned them.
void copy_outputs(const Call& call, const ContextMemory& memory, std::span<const Tensor> outputs,
                  Recording& recording, GatherNode::Work& tail);

// Moves outputs into the list that the caller gets. Throws std::bad_alloc.
void hand_out(std::vector<Tensor> made, TensorList& outputs);

// Makes the outputs of a replay that has been launched, sliced to the call's sizes. Does not
// allocate for sizes it has met, as long as they are not too many.
void make_outputs(Recording& recording, std::uint32_t function, ContextMemory& memory,
                  const InputList& inputs, TensorList& outputs);

}  // namespace cgtree
