// Allocates copies of inputs, and makes the rows that fill them.
#include "cgtree/tree/prepared_inputs.h"

#include "cgtree/tree/treatment.h"

namespace cgtree {
namespace {

// Of a tensor that keeps its strides.
GatherRow row_of(GatherDirection direction, std::uintptr_t fixed, const Tensor& tensor) {
  const Shape& shape = tensor.shape();
  return strided_row(direction, fixed, shape.dims(), shape.strides(), shape.strides(),
                     size_of(tensor.dtype()));
}

// What the step function sees in place of an input that moves.
Tensor copy_of(const Tensor& input, LaneMemory& memory, std::size_t extent) {
  return {memory.allocate_input_copy(extent), 0, input.shape(), input.dtype()};
}

void prepare(const Tensor& input, std::uint32_t i, LaneMemory& memory, PreparedInputs& prepared) {
  InputRecord& record = prepared.records.back();
  const std::size_t extent =
      static_cast<std::size_t>(input.shape().extent()) * size_of(input.dtype());
  const bool moves = is_copied(record.treatment) || record.treatment == Treatment::kValue;
  if (!moves || extent == 0) {
    prepared.seen.push_back(input);
    return;
  }
  prepared.seen.push_back(copy_of(input, memory, extent));
  record.address = prepared.seen.back().address();
  if (record.treatment == Treatment::kValue) {
    prepared.root.values.push_back({i, record.address, extent});
    return;
  }
  prepared.root.copies.push_back({i, row_of(GatherDirection::kIn, record.address, input)});
  if (record.treatment == Treatment::kCopiedBack) {
    prepared.tail.copies.push_back({i, row_of(GatherDirection::kOut, record.address, input)});
  }
}

}  // namespace

PreparedInputs prepare_inputs(const FunctionState& function, LaneMemory& memory, InputList inputs) {
  PreparedInputs prepared;
  for (std::uint32_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = inputs[i];
    const std::uintptr_t address = input.defined() ? input.address() : 0;
    prepared.records.push_back(
        {input.shape(), input.dtype(), treat(function, memory, inputs, i), address});
    if (!inputs.is_buffer(i)) prepare(input, i, memory, prepared);
  }
  return prepared;
}

void copy_to_buffers(std::span<const Tensor> outputs, InputList inputs, GatherNode::Work& tail) {
  for (std::size_t i = 0; i < inputs.buffers(); ++i) {
    if (!inputs.has_buffer(i)) continue;
    const Tensor& output = outputs[i];
    tail.copies.push_back(
        {static_cast<std::uint32_t>(inputs.step_size() + i),
         strided_row(GatherDirection::kOut, output.address(), output.shape().dims(),
                     output.shape().strides(), inputs.buffer(i).shape().strides(),
                     size_of(output.dtype()))});
  }
}

}  // namespace cgtree
