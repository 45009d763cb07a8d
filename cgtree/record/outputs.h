// Outputs: checks and slices the outputs of a step function, finds their sources when it is
// recorded, and makes them again at replay.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cgtree/record/recording.h"

namespace cgtree {

// Throws InvalidArgument if an output is null, StaleTensor if one is stale.
void check_outputs(const std::string& function, std::span<const Tensor> outputs);

// Throws InvalidArgument if an output lacks an axis that OutputOptions::dynamic promises, or if the
// axis has another size than `sizes`, the sizes that the function saw.
void check_output_axes(const Function& function, std::span<const Tensor> outputs,
                       const AxisSizes& sizes);

// Replaces outputs that are views of an input seen in place on a dynamic axis by views of a copy,
// because every replay returns a copy. From now on, each input with a dynamic axis that is returned
// is copied. Requires: a step is warmed up or recorded. Throws OutOfMemory, DeviceError.
void copy_padded_inputs(const Call& call, ContextMemory& memory, std::span<Tensor> outputs,
                        std::span<const Tensor> step_inputs);

// Replaces outputs that must be sliced into a buffer, and are not row-major, by row-major copies.
// Requires: a step is open. Throws as copy_padded_inputs() does.
void make_row_major(const Call& call, std::span<Tensor> outputs);

// Slices the outputs to the actual sizes. Requires: check_output_axes() with the padded sizes has
// returned.
void slice_outputs(const Call& call, std::span<Tensor> outputs);

// Throws InvalidArgument if there are more buffers than outputs, or if one has another shape or
// dtype than its output, or is on another device.
void check_buffers(const Call& call, std::span<const Tensor> outputs);

// Returns a description of an output that belongs to an earlier call and was not passed in, or that
// reaches beyond one passed in; "" if there is none. The memory of such an output may be reused at
// replay. Requires: check_outputs() has returned.
std::string find_earlier_output(const Call& call, const ContextMemory& memory,
                                std::span<const Tensor> outputs,
                                std::span<const Tensor> step_inputs);

// Returns the source of each output's memory, and of the sizes by which replays slice it. `outputs`
// as the step function returned them, `step_inputs` as it got them. An output that lies in an input
// is the caller's tensor, even if the step function worked on a copy, unless it saw the input
// padded. Slots are not settled yet. Requires: find_earlier_output() returned "".
std::vector<OutputRecord> understand_outputs(const Call& call, const ContextMemory& memory,
                                             std::span<const Tensor> outputs,
                                             std::span<const Tensor> step_inputs);

// Returns whether output i is a whole storage of its buffer's layout: the buffer can replace it.
bool is_replaceable(std::span<const Tensor> outputs, std::size_t i, const Tensor& buffer);

// Returns the record of output i, which has a buffer of the caller's.
OutputRecord record_of_buffer(InputList inputs, std::size_t i);

// Returns an output that is an input or a buffer of the call. Requires: record.kind == kInput.
Tensor input_output(OutputRecord& record, const InputList& inputs);

// An OutputCopies is memory for the copies of one call's outputs, and the list from which the tail
// node reads addresses: the call's inputs, followed by the copies.
class OutputCopies {
 public:
  // Allocates in the eager region. `shapes`: see Recording::copies_of_outputs. Throws OutOfMemory.
  OutputCopies(ContextMemory& memory, const InputList& inputs, std::span<const Shape> shapes);
  OutputCopies(const OutputCopies&) = delete;
  OutputCopies& operator=(const OutputCopies&) = delete;

  // Both results are valid while this lives.
  InputList inputs() const noexcept { return InputList(addresses_); }
  const Tensor* tensors() const noexcept { return tensors_.data(); }

 private:
  std::vector<Tensor> tensors_;
  std::vector<const Tensor*> addresses_;
};

// Makes the tail copy outputs that are memory of the step: changes their records, and adds rows to
// the tail. `outputs`: as the step returned them.
void copy_outputs(const Call& call, const ContextMemory& memory, std::span<const Tensor> outputs,
                  Recording& recording, GatherNode::Work& tail);

// Moves outputs into the caller's list. Throws std::bad_alloc.
void hand_out(std::vector<Tensor> made, TensorList& outputs);

// Makes the outputs of a launched replay, sliced to the call's sizes. Does not allocate for sizes
// that occurred before, up to a limit.
void make_outputs(Recording& recording, std::uint32_t function, ContextMemory& memory,
                  const InputList& inputs, TensorList& outputs);

}  // namespace cgtree
