// Makes rows of padded inputs, and launches them.
#include "cgtree/record/padded_inputs.h"

#include <fmt/format.h>

#include <array>

#include "base/error.h"
#include "cgtree/record/padding_value.h"
#include "interop/tensor/copy.h"

namespace cgtree {
namespace {

GatherFill fill_of(Padding::Kind kind) {
  switch (kind) {
    case Padding::Kind::kZeros:
      return GatherFill::kZero;
    case Padding::Kind::kValue:
      return GatherFill::kValue;
    case Padding::Kind::kLast:
      return GatherFill::kLast;
    case Padding::Kind::kAnything:
      break;
  }
  return GatherFill::kAny;
}

void copy_padded(const FunctionState& function, ContextMemory& memory, InputList inputs, std::size_t i,
                 GatherDirection direction, const Tensor& copy) {
  const Tensor& input = inputs[i];
  if (copy.elements() == 0) return;
  const GatherRow row = padded_input_row(function, inputs, i, direction, copy.address());
  std::array<std::uint64_t, kMaxRowWords> list;
  const std::span<std::uint64_t> words(list.data(), row.words());
  write_words(row, input.address(), input.shape().dims(), input.shape().strides(), words);
  copy_row(memory.stream(), row, words);
}

}  // namespace

Tensor seen_as_it_lies(InputList inputs, std::size_t i) {
  if (!inputs.is_padded(i)) return inputs[i];
  return Tensor(inputs[i].storage(), inputs[i].byte_offset(), inputs.shape(i), inputs[i].dtype());
}

GatherRow padded_input_row(const FunctionState& function, InputList inputs, std::size_t i,
                           GatherDirection direction, std::uintptr_t fixed) {
  const DType dtype = inputs[i].dtype();
  const Padding& padding = function.axes->padding(i);
  std::array<std::byte, 8> value = {};
  if (padding.kind == Padding::Kind::kValue) {
    try {
      value = padding_value(padding.value, dtype);
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(fmt::format("{} of '{}': {}",
                                        text_of_input(i, function.input_options(i).name),
                                        function.name, error.what()));
    }
  }
  return padded_row(direction, fixed, inputs.shape(i).dims(), size_of(dtype), fill_of(padding.kind),
                    std::span(value).first(size_of(dtype)));
}

Tensor pad(const FunctionState& function, ContextMemory& memory, InputList inputs, std::size_t i) {
  const Shape& shape = inputs.shape(i);
  if (inputs.in_place(i) || shape.elements() == 0) return seen_as_it_lies(inputs, i);
  const DType dtype = inputs[i].dtype();
  Tensor copy(memory.allocate_input_copy(bytes_of(shape, dtype)), 0, shape, dtype);
  copy_padded(function, memory, inputs, i, GatherDirection::kIn, copy);
  return copy;
}

void copy_back_mutated(const FunctionState& function, ContextMemory& memory, InputList inputs,
                       const std::vector<Tensor>& seen) {
  for (std::size_t i = 0; i < inputs.step_size(); ++i) {
    if (inputs.in_place(i) || !function.input_options(i).is_mutated) continue;
    copy_padded(function, memory, inputs, i, GatherDirection::kOut, seen[i]);
  }
}

}  // namespace cgtree
