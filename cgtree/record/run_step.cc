// Brings scalars to the device and outputs to buffers.
#include "cgtree/record/run_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "cgtree/record/output_slices.h"
#include "cgtree/record/outputs.h"
#include "cgtree/record/padded_inputs.h"
#include "cgtree/record/treatment.h"
#include "interop/tensor/copy.h"
#include "interop/device/stream.h"
#include "interop/tensor/empty.h"

namespace cgtree {
namespace {

// A row whose moving side has no element, and which therefore is filled.
Tensor on_device(const Tensor& scalar, ContextMemory& memory, StepRun as) {
  const std::size_t bytes = size_of(scalar.dtype());
  Tensor made = as == StepRun::kWarmUp  // as recording will, which numbers what the step allocates
                    ? Tensor(memory.allocate_input_copy(bytes), 0, Shape(), scalar.dtype())
                    : empty(Shape(), scalar.dtype(), memory.device());
  const std::array<std::int64_t, 1> dims = {1}, sizes = {0}, strides = {1};
  const std::uint64_t word = scalar_word(scalar);
  const GatherRow row =
      padded_row(GatherDirection::kIn, made.address(), dims, bytes, GatherFill::kValue,
                 std::as_bytes(std::span(&word, 1)).first(bytes));
  std::array<std::uint64_t, 3> words;
  write_words(row, 0, sizes, strides, words);
  copy_row(current_stream(), row, words);
  return made;
}

std::vector<Tensor> hold_for_step(const FunctionState& function, ContextMemory& memory,
                                  InputList inputs, StepRun as) {
  std::vector<Tensor> held;
  held.reserve(inputs.step_size());
  for (std::size_t i = 0; i < inputs.step_size(); ++i) {
    if (treat(function, memory, inputs, i) == Treatment::kValue) {
      held.push_back(on_device(inputs[i], memory, as));
    } else {
      held.push_back(as == StepRun::kWarmUp ? pad(function, memory, inputs, i) : inputs[i]);
    }
  }
  return held;
}

}  // namespace

void check_buffers(const FunctionState& function, std::span<const Tensor> outputs,
                   InputList inputs) {
  if (inputs.buffers() > outputs.size()) {
    throw InvalidArgument(fmt::format("{} buffers given to '{}', which has {} outputs",
                                      inputs.buffers(), function.name, outputs.size()));
  }
  for (std::size_t i = 0; i < inputs.buffers(); ++i) {
    if (!inputs.has_buffer(i)) continue;
    const Tensor& buffer = inputs.buffer(i);
    const Tensor& output = outputs[i];
    if (buffer.dtype() == output.dtype() &&
        std::ranges::equal(buffer.shape().dims(), output.shape().dims())) {
      continue;
    }
    throw InvalidArgument(fmt::format("output {} of '{}' is {}, the buffer for it {}", i,
                                      function.name, describe(output), describe(buffer)));
  }
}

std::vector<Tensor> run_step(const FunctionState& function, ContextMemory& memory, InputList inputs,
                             StepRun as) {
  const std::vector<Tensor> held = hold_for_step(function, memory, inputs, as);
  std::vector<Tensor> outputs = function.step(held);
  check_outputs(function.name, outputs);
  if (as == StepRun::kWarmUp && function.axes != nullptr) {
    check_output_axes(function, outputs, function.axes->seen());
    copy_back_mutated(function, memory, inputs, held);
    slice_outputs(function, outputs);
  }
  check_buffers(function, outputs, inputs);
  const StreamRef stream = current_stream();
  for (std::size_t i = 0; i < inputs.buffers(); ++i) {
    if (!inputs.has_buffer(i)) continue;
    copy_elements(stream, inputs.buffer(i), outputs[i]);
    note_use(outputs[i].storage(), stream);
    note_use(inputs.buffer(i).storage(), stream);
    outputs[i] = inputs.buffer(i);
  }
  return outputs;
}

}  // namespace cgtree
