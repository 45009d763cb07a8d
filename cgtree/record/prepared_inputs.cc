// Allocates copies of inputs, and makes the rows that fill them.
#include "cgtree/record/prepared_inputs.h"

#include <fmt/format.h>

#include "base/error.h"
#include "cgtree/record/padded_inputs.h"
#include "cgtree/record/treatment.h"

namespace cgtree {
namespace {

// Of a tensor that keeps its strides.
GatherRow row_of(GatherDirection direction, std::uintptr_t fixed, const Tensor& tensor) {
  const Shape& shape = tensor.shape();
  return strided_row(direction, fixed, shape.dims(), shape.strides(), shape.strides(),
                     size_of(tensor.dtype()));
}

// Of input `i`, in the direction of a root or a tail.
GatherRow row_of_input(const FunctionState& function, InputList inputs, std::uint32_t i,
                       GatherDirection direction, std::uintptr_t fixed) {
  return inputs.is_padded(i) ? padded_input_row(function, inputs, i, direction, fixed)
                             : row_of(direction, fixed, inputs[i]);
}

void prepare(const FunctionState& function, InputList inputs, std::uint32_t i, ContextMemory& memory,
             PreparedInputs& prepared) {
  InputRecord& record = prepared.records.back();
  const std::size_t extent =
      static_cast<std::size_t>(record.shape.extent()) * size_of(record.dtype);
  const bool moves = is_copied(record.treatment) || record.treatment == Treatment::kValue;
  if (!moves || extent == 0) {
    prepared.seen.push_back(seen_as_it_lies(inputs, i));
    return;
  }
  prepared.seen.push_back({memory.allocate_input_copy(extent), 0, record.shape, record.dtype});
  record.address = prepared.seen.back().address();
  if (record.treatment == Treatment::kValue) {
    prepared.root.values.push_back({i, record.address, extent});
    return;
  }
  prepared.root.copies.push_back(
      {i, row_of_input(function, inputs, i, GatherDirection::kIn, record.address)});
  if (record.treatment == Treatment::kCopiedBack) {
    prepared.tail.copies.push_back(
        {i, row_of_input(function, inputs, i, GatherDirection::kOut, record.address)});
  }
}

}  // namespace

PreparedInputs prepare_inputs(const FunctionState& function, ContextMemory& memory, InputList inputs) {
  PreparedInputs prepared;
  for (std::uint32_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = inputs[i];
    const std::uintptr_t address = input.defined() ? input.address() : 0;
    prepared.records.push_back(
        {inputs.shape(i), input.dtype(), treat(function, memory, inputs, i), address});
    if (!inputs.is_buffer(i)) prepare(function, inputs, i, memory, prepared);
  }
  return prepared;
}

void copy_to_buffers(std::span<const Tensor> outputs, InputList inputs, GatherNode::Work& tail) {
  for (std::size_t i = 0; i < inputs.buffers(); ++i) {
    if (!inputs.has_buffer(i)) continue;
    const Tensor& output = outputs[i];
    const auto number = static_cast<std::uint32_t>(inputs.step_size() + i);
    if (inputs.is_padded(number)) {
      if (!output.is_contiguous()) {
        throw InvalidArgument(
            fmt::format("output {} is {}: one that is sliced into a buffer must be contiguous", i,
                        describe(output)));
      }
      tail.copies.push_back({number, padded_row(GatherDirection::kOut, output.address(),
                                                output.shape().dims(), size_of(output.dtype()))});
      continue;
    }
    tail.copies.push_back(
        {number, strided_row(GatherDirection::kOut, output.address(), output.shape().dims(),
                             output.shape().strides(), inputs.buffer(i).shape().strides(),
                             size_of(output.dtype()))});
  }
}

}  // namespace cgtree
