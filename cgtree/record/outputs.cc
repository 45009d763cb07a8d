// Classifies outputs by whose storage they are, slices them, and rebuilds them.
#include "cgtree/record/outputs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace cgtree {
namespace {

std::string output_text(const Function& function, const AxisUse& use) {
  return text_of_output(use.tensor, function.options.outputs[use.tensor].name);
}

OutputRecord record_of(const Call& call, const ContextMemory& memory,
                       std::span<const Tensor> outputs, std::size_t i,
                       std::span<const Tensor> step_inputs) {
  const InputList& inputs = call.inputs();
  const Tensor& output = outputs[i];
  OutputRecord record;
  record.byte_offset = output.byte_offset();
  record.shape = output.shape();
  record.dtype = output.dtype();
  for (std::size_t j = 0; j < step_inputs.size(); ++j) {
    const bool is_callers = call.treatment(j) != Treatment::kValue && inputs.in_place(j);
    if (is_callers && step_inputs[j].storage() == output.storage()) {
      record.kind = OutputRecord::Kind::kInput;
      record.index = static_cast<std::uint32_t>(j);
      // Relative to the input, which may be another view of its storage next time.
      record.byte_offset = output.byte_offset() - step_inputs[j].byte_offset();
      return record;
    }
  }
  for (std::size_t j = 0; j < i; ++j) {
    if (!inputs.has_buffer(j) && outputs[j].storage() == output.storage()) {
      record.kind = OutputRecord::Kind::kSame;
      record.index = static_cast<std::uint32_t>(j);
      return record;
    }
  }
  if (memory.in_step(*output.storage())) return record;  // its own, or the copy of a scalar
  if (memory.manages(*output.storage())) {
    throw InvalidArgument(fmt::format(
        "output {} of '{}' is an output of an earlier call that was not passed in: pass it as an "
        "input",
        i, call.function().name));
  }
  record.kind = OutputRecord::Kind::kConstant;
  record.constant = output.storage();
  return record;
}

// Notes where replays find the sizes to slice to.
void learn_slices(const Function& function, std::span<OutputRecord> outputs) {
  if (function.axes == nullptr) return;
  const AxisLayout& layout = function.axes->layout();
  for (const AxisUse& use : layout.outputs) {
    if (!function.axes->rule(use.axis).pads()) continue;
    const AxisUse& input = first_input_with(layout, use.axis);
    outputs[use.tensor].slices.push_back({use.dim, input.tensor, input.dim});
  }
  for (OutputRecord& record : outputs) {
    if (record.slices.empty()) continue;
    constexpr std::int64_t kMost = 1024;
    std::int64_t sizes = 1;
    for (const OutputSlice& slice : record.slices)
      sizes =
          std::min(kMost, sizes * std::min(kMost, record.shape.dim(static_cast<int>(slice.axis))));
    record.sliced = ShapeCache(sizes);
  }
}

// Returns the shape of an output of a call with these inputs.
const Shape& sliced(OutputRecord& record, InputList inputs) {
  const std::span<const std::int64_t> whole = record.shape.dims();
  std::int64_t list[Shape::kMaxRank];
  std::copy(whole.begin(), whole.end(), list);
  for (const OutputSlice& slice : record.slices)
    list[slice.axis] = inputs[slice.input].shape().dim(static_cast<int>(slice.input_axis));
  const std::span<const std::int64_t> dims(list, whole.size());
  if (std::ranges::equal(dims, whole)) return record.shape;
  return record.sliced.get(dims, [&] { return Shape(dims, record.shape.strides()); });
}

}  // namespace

void check_outputs(const std::string& function, std::span<const Tensor> outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined()) {
      throw InvalidArgument(fmt::format("output {} of '{}' is a null tensor", i, function));
    }
    (void)outputs[i].data();  // throws StaleTensor
  }
}

void check_output_axes(const Function& function, std::span<const Tensor> outputs,
                       const AxisSizes& sizes) {
  if (function.axes == nullptr) return;
  for (const AxisUse& use : function.axes->layout().outputs) {
    const std::string& axis = function.axes->rule(use.axis).name();
    if (use.tensor >= outputs.size()) {
      throw InvalidArgument(
          fmt::format("{} of '{}' has dynamic axis '{}' and was not returned: {} were",
                      output_text(function, use), function.name, axis, outputs.size()));
    }
    const Tensor& output = outputs[use.tensor];
    if (static_cast<int>(use.dim) >= output.rank()) {
      throw InvalidArgument(
          fmt::format("{} of '{}' has dynamic axis '{}' as its axis {}; {} returned",
                      output_text(function, use), function.name, axis, use.dim, describe(output)));
    }
    if (output.shape().dim(static_cast<int>(use.dim)) == sizes[use.axis]) continue;
    throw InvalidArgument(fmt::format(
        "{} of '{}' is {}: its axis {} is the dynamic axis '{}', of which the function saw {}",
        output_text(function, use), function.name, describe(output), use.dim, axis,
        sizes[use.axis]));
  }
}

void slice_outputs(const Call& call, std::span<Tensor> outputs) {
  const AxisPlan* const plan = call.function().axes.get();
  if (plan == nullptr) return;
  for (const AxisUse& use : plan->layout().outputs) {
    Tensor& output = outputs[use.tensor];
    output = output.slice(static_cast<int>(use.dim), 0, call.axes().actual[use.axis]);
  }
}

void check_buffers(const Call& call, std::span<const Tensor> outputs) {
  const InputList& inputs = call.inputs();
  const std::string& function = call.function().name;
  if (inputs.buffers() > outputs.size()) {
    throw InvalidArgument(fmt::format("{} buffers given to '{}', which has {} outputs",
                                      inputs.buffers(), function, outputs.size()));
  }
  for (std::size_t i = 0; i < inputs.buffers(); ++i) {
    if (!inputs.has_buffer(i)) continue;
    const Tensor& buffer = inputs.buffer(i);
    const Tensor& output = outputs[i];
    if (buffer.dtype() == output.dtype() &&
        std::ranges::equal(buffer.shape().dims(), output.shape().dims())) {
      continue;
    }
    throw InvalidArgument(fmt::format("output {} of '{}' is {}, the buffer for it {}", i, function,
                                      describe(output), describe(buffer)));
  }
}

std::vector<OutputRecord> understand_outputs(const Call& call, const ContextMemory& memory,
                                             std::span<const Tensor> outputs,
                                             std::span<const Tensor> step_inputs) {
  std::vector<OutputRecord> records;
  records.reserve(outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i)
    records.push_back(record_of(call, memory, outputs, i, step_inputs));
  learn_slices(call.function(), records);
  return records;
}

OutputRecord record_of_buffer(InputList inputs, std::size_t i) {
  OutputRecord record;
  record.kind = OutputRecord::Kind::kInput;
  record.index = static_cast<std::uint32_t>(inputs.step_size() + i);
  record.shape = inputs.buffer(i).shape();
  record.dtype = inputs.buffer(i).dtype();
  return record;
}

Tensor input_output(OutputRecord& record, InputList inputs) {
  const Tensor& input = inputs[record.index];
  if (inputs.is_buffer(record.index)) return input;
  const Shape& shape = record.slices.empty() ? record.shape : sliced(record, inputs);
  return Tensor(input.storage(), input.byte_offset() + record.byte_offset, shape, record.dtype);
}

void make_outputs(Recording& recording, std::uint32_t function, ContextMemory& memory,
                  InputList inputs, std::span<Tensor> outputs) {
  for (std::uint32_t i = 0; i < recording.outputs.size(); ++i) {
    OutputRecord& record = recording.outputs[i];
    StorageRef storage;
    switch (record.kind) {
      case OutputRecord::Kind::kSlot:
        storage = memory.revive(*record.slot, function, i);
        break;
      case OutputRecord::Kind::kSame:
        storage = outputs[record.index].storage();
        break;
      case OutputRecord::Kind::kInput:
        outputs[i] = input_output(record, inputs);
        continue;
      case OutputRecord::Kind::kConstant:
        storage = record.constant;
        break;
    }
    const Shape& shape = record.slices.empty() ? record.shape : sliced(record, inputs);
    outputs[i] = Tensor::known_to_fit(std::move(storage), record.byte_offset, shape, record.dtype);
  }
}

}  // namespace cgtree
