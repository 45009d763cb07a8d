// Classifies outputs by the owner of their storage, slices them, and rebuilds them.
#include "cgtree/record/outputs.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/format.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"

namespace cgtree {
namespace {

std::string output_text(const Function& function, const AxisUse& use) {
  return text_of_output(use.tensor, function.options.outputs[use.tensor].name);
}

// Returns the input in which the output lies, if any. Among several inputs with that storage,
// prefers one that equals the output, and then the first.
std::optional<std::uint32_t> find_input(const Tensor& output, std::span<const Tensor> step_inputs) {
  std::optional<std::uint32_t> found;
  for (std::uint32_t j = 0; j < step_inputs.size(); ++j) {
    const Tensor& input = step_inputs[j];
    if (input.storage() != output.storage() || output.byte_offset() < input.byte_offset() ||
        output.byte_offset() + extent_bytes(output) > input.byte_offset() + extent_bytes(input)) {
      continue;
    }
    if (input.byte_offset() == output.byte_offset() && input.shape() == output.shape()) return j;
    if (!found) found = j;
  }
  return found;
}

// Returns whether an output that lies in input `j` is the caller's tensor.
bool returns_callers(const Call& call, std::uint32_t j, const Tensor& step_input) {
  if (call.treatment(j) == Treatment::kValue) return false;
  return !call.inputs().is_padded(j) || step_input.elements() == 0;
}

OutputRecord record_of(const Call& call, const ContextMemory& memory,
                       std::span<const Tensor> outputs, std::span<const OutputRecord> before,
                       std::span<const Tensor> step_inputs) {
  const std::size_t i = before.size();
  const InputList& inputs = call.inputs();
  const Tensor& output = outputs[i];
  OutputRecord record;
  record.byte_offset = output.byte_offset();
  record.shape = output.shape();
  record.dtype = output.dtype();
  if (const auto j = find_input(output, step_inputs);
      j && returns_callers(call, *j, step_inputs[*j])) {
    record.kind = OutputRecord::Kind::kInput;
    record.index = *j;
    // Relative to the input, which may be another view of its storage in the next call.
    record.byte_offset = output.byte_offset() - step_inputs[*j].byte_offset();
    return record;
  }
  for (std::size_t j = 0; j < i; ++j) {
    if (!inputs.has_buffer(j) && before[j].kind != OutputRecord::Kind::kInput &&
        outputs[j].storage() == output.storage()) {
      record.kind = OutputRecord::Kind::kSame;
      record.index = static_cast<std::uint32_t>(j);
      return record;
    }
  }
  if (memory.in_step(*output.storage())) return record;  // the step's own, or the copy of a scalar
  record.kind = OutputRecord::Kind::kConstant;
  record.constant = output.storage();
  return record;
}

// Notes the inputs from which replays take the sizes of slices.
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
const Shape& sliced(OutputRecord& record, const InputList& inputs) {
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
      throw InvalidArgument(str_format("output {} of '{}' is a null tensor", i, function));
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
          str_format("{} of '{}' has dynamic axis '{}' and was not returned: {} returned, and at "
                     "least {} are expected",
                     output_text(function, use), function.name, axis,
                     outputs.size() == 1 ? "1 was" : str_format("{} were", outputs.size()),
                     function.axes->layout().outputs.back().tensor + 1));
    }
    const Tensor& output = outputs[use.tensor];
    if (static_cast<int>(use.dim) >= output.rank()) {
      throw InvalidArgument(
          str_format("{} of '{}' has dynamic axis '{}' as its axis {}; {} returned",
                     output_text(function, use), function.name, axis, use.dim, describe(output)));
    }
    if (output.shape().dim(static_cast<int>(use.dim)) == sizes[use.axis]) continue;
    throw InvalidArgument(str_format(
        "{} of '{}' is {}: its axis {} is the dynamic axis '{}', of which the function saw {}",
        output_text(function, use), function.name, describe(output), use.dim, axis,
        sizes[use.axis]));
  }
}

void copy_padded_inputs(const Call& call, ContextMemory& memory, std::span<Tensor> outputs,
                        std::span<const Tensor> step_inputs) {
  const InputList& inputs = call.inputs();
  std::vector<StorageRef> copies(step_inputs.size());
  for (Tensor& output : outputs) {
    const auto j = find_input(output, step_inputs);
    if (!j || !inputs.is_padded(*j)) continue;
    call.function().axes->note_returned(*j);
    const Tensor& seen = step_inputs[*j];
    if (seen.elements() == 0 || seen.storage() != inputs[*j].storage()) continue;
    if (!copies[*j]) {
      copies[*j] = memory.allocate_input_copy(extent_bytes(seen));
      copy_elements(current_stream(), Tensor(copies[*j], 0, seen.shape(), seen.dtype()), seen);
    }
    output = Tensor(copies[*j], output.byte_offset() - seen.byte_offset(), output.shape(),
                    output.dtype());
  }
}

void make_row_major(const Call& call, std::span<Tensor> outputs) {
  const InputList& inputs = call.inputs();
  for (std::size_t i = 0; i < std::min(inputs.buffers(), outputs.size()); ++i) {
    Tensor& output = outputs[i];
    if (!inputs.is_padded(inputs.step_size() + i) || !output.defined() || output.is_contiguous()) {
      continue;
    }
    const Tensor dense = empty(Shape(output.shape().dims()), output.dtype());
    copy_elements(current_stream(), dense, output);
    note_use(output.storage(), current_stream());
    output = dense;
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
    throw InvalidArgument(str_format("{} buffers given to '{}', which has {} outputs",
                                     inputs.buffers(), function, outputs.size()));
  }
  for (std::size_t i = 0; i < inputs.buffers(); ++i) {
    if (!inputs.has_buffer(i)) continue;
    const Tensor& buffer = inputs.buffer(i);
    const Tensor& output = outputs[i];
    if (buffer.dtype() == output.dtype() && buffer.device() == output.device() &&
        std::ranges::equal(buffer.shape().dims(), output.shape().dims())) {
      continue;
    }
    throw InvalidArgument(str_format("output {} of '{}' is {}, the buffer for it {}", i, function,
                                     describe(output), describe(buffer)));
  }
}

std::string find_earlier_output(const Call& call, const ContextMemory& memory,
                                std::span<const Tensor> outputs,
                                std::span<const Tensor> step_inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& output = outputs[i];
    const auto j = find_input(output, step_inputs);
    if (j && returns_callers(call, *j, step_inputs[*j])) continue;
    if (memory.in_step(*output.storage()) || !memory.manages(*output.storage())) continue;
    return str_format(
        "output {} of '{}' is {} at {:#x}, memory of an earlier call's output that was not passed "
        "in, or not all of it: pass it as an input",
        i, call.function().name, describe(output), output.address());
  }
  return {};
}

std::vector<OutputRecord> understand_outputs(const Call& call, const ContextMemory& memory,
                                             std::span<const Tensor> outputs,
                                             std::span<const Tensor> step_inputs) {
  std::vector<OutputRecord> records;
  records.reserve(outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i)
    records.push_back(record_of(call, memory, outputs, records, step_inputs));
  learn_slices(call.function(), records);
  for (OutputRecord& record : records)
    record.shapes = ShapeSupply(record.shape);
  return records;
}

bool is_replaceable(std::span<const Tensor> outputs, std::size_t i, const Tensor& buffer) {
  const Tensor& output = outputs[i];
  const auto shares = [&](const Tensor& other) { return other.storage() == output.storage(); };
  return output.byte_offset() == 0 && output.dtype() == buffer.dtype() &&
         output.shape() == buffer.shape() && extent_bytes(output) == output.storage()->bytes() &&
         std::ranges::count_if(outputs, shares) == 1;
}

OutputRecord record_of_buffer(InputList inputs, std::size_t i) {
  OutputRecord record;
  record.kind = OutputRecord::Kind::kInput;
  record.index = static_cast<std::uint32_t>(inputs.step_size() + i);
  record.shape = inputs.buffer(i).shape();
  record.dtype = inputs.buffer(i).dtype();
  return record;
}

Tensor input_output(OutputRecord& record, const InputList& inputs) {
  const Tensor& input = inputs[record.index];
  if (inputs.is_buffer(record.index)) return input;
  const Shape& shape = record.slices.empty() ? record.shape : sliced(record, inputs);
  return Tensor(input.storage(), input.byte_offset() + record.byte_offset, shape, record.dtype);
}

void make_outputs(Recording& recording, std::uint32_t function, ContextMemory& memory,
                  const InputList& inputs, TensorList& outputs) {
  outputs.begin(recording.outputs.size());
  const std::uint64_t generation = memory.generation();
  std::uint32_t position = 0;
  for (OutputRecord& record : recording.outputs) {
    const std::uint32_t i = position++;
    const Shape* const slice = record.slices.empty() ? nullptr : &sliced(record, inputs);
    StorageRef storage;
    if (record.kind == OutputRecord::Kind::kSlot) [[likely]] {
      storage = memory.revive(*record.slot, function, i, generation);
      Shape& former = storage->former_shape();
      if (former.difference(slice == nullptr ? record.shape : *slice) == 0) [[likely]] {
        outputs.add(std::move(storage), record.byte_offset, std::move(former), record.dtype);
        continue;
      }
    } else if (record.kind == OutputRecord::Kind::kInput) {
      outputs.add(input_output(record, inputs));
      continue;
    } else {
      storage = record.kind == OutputRecord::Kind::kSame ? outputs.tensors()[record.index].storage()
                : record.kind == OutputRecord::Kind::kCopied
                    ? recording.output_copies[record.index].storage()
                    : record.constant;
    }
    outputs.add(std::move(storage), record.byte_offset,
                slice == nullptr ? record.shapes.take() : Shape(*slice), record.dtype);
  }
}

OutputCopies::OutputCopies(ContextMemory& memory, const InputList& inputs,
                           std::span<const Shape> shapes) {
  tensors_.reserve(shapes.size());
  for (const Shape& shape : shapes) {
    tensors_.push_back(
        Tensor::known_to_fit(memory.allocate_value(static_cast<std::size_t>(shape.elements())), 0,
                             shape, DType::kUInt8));
  }
  addresses_.reserve(inputs.size() + shapes.size());
  for (std::size_t i = 0; i < inputs.size(); ++i)
    addresses_.push_back(&inputs[i]);
  for (const Tensor& tensor : tensors_)
    addresses_.push_back(&tensor);
}

void copy_outputs(const Call& call, const ContextMemory& memory, std::span<const Tensor> outputs,
                  Recording& recording, GatherNode::Work& tail) {
  constexpr std::size_t kAlignment = 256;  // bytes; a copy keeps it
  using Kind = OutputRecord::Kind;
  std::vector<OutputRecord>& records = recording.outputs;
  for (std::uint32_t i = 0; i < records.size(); ++i) {
    const StorageRef& storage = outputs[i].storage();
    if (records[i].kind != Kind::kSlot || !memory.in_step(*storage)) continue;
    std::vector<std::uint32_t> parts = {i};
    for (std::uint32_t j = i + 1; j < records.size(); ++j) {
      if (records[j].kind == Kind::kSame && records[j].index == i) parts.push_back(j);
    }
    std::size_t begin = SIZE_MAX, end = 0;
    for (const std::uint32_t j : parts) {
      begin = std::min(begin, outputs[j].byte_offset() / kAlignment * kAlignment);
      end = std::max(end, outputs[j].byte_offset() + extent_bytes(outputs[j]));
    }
    for (const std::uint32_t j : parts)
      records[j].byte_offset -= begin;
    const std::size_t number = call.inputs().size() + recording.copies_of_outputs.size();
    const std::int64_t dims[] = {static_cast<std::int64_t>(end - begin)}, strides[] = {1};
    tail.copies.push_back({static_cast<std::uint32_t>(number),
                           strided_row(GatherDirection::kOut, storage->address() + begin, dims,
                                       strides, strides, 1)});
    records[i].kind = Kind::kCopied;
    records[i].index = static_cast<std::uint32_t>(recording.copies_of_outputs.size());
    recording.copies_of_outputs.emplace_back(dims);
  }
}

void hand_out(std::vector<Tensor> made, TensorList& outputs) {
  outputs.begin(made.size());
  for (Tensor& tensor : made)
    outputs.add(std::move(tensor));
}

}  // namespace cgtree
