// Opens and closes steps, copies scalars and lengths of axes to the device, and outputs to buffers.
#include "cgtree/record/step.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "cgtree/record/gather.h"
#include "cgtree/record/outputs.h"
#include "cgtree/record/prepare.h"
#include "cgtree/values/axes.h"
#include "interop/device/code.h"
#include "interop/device/refusal.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/stream_synchronization.h"
#include "interop/tensor/wrong_element_type.h"

namespace cgtree {

namespace {

DrawHandler& handler_for(StepAllocations::Kind kind, EagerDraws& eager, RecordedDraws& recorded) {
  if (kind == StepAllocations::Kind::kRecord) return recorded;
  return eager;
}

// Returns a device tensor with the value.
Tensor on_device(const Tensor& value, ContextMemory& memory, StepRun as) {
  if (value.bytes() == 0) return empty(value.shape(), value.dtype(), memory.device());
  // A warm-up allocates as the recording will, so that the step's allocations get the same numbers.
  Tensor made = as != StepRun::kEagerly ? Tensor(memory.allocate_input_copy(value.bytes()), 0,
                                                 value.shape(), value.dtype())
                                        : empty(value.shape(), value.dtype(), memory.device());
  write_values(current_stream(), made.address(), reinterpret_cast<const void*>(value.address()),
               value.bytes());
  return made;
}

}  // namespace

namespace {

// Returns input `i` of a call whose replay is verified. A replay sees a padded input without gaps
// between its elements, so the eager run must, too.
Tensor without_gaps(const Call& call, ContextMemory& memory, std::size_t i) {
  const Tensor& input = call.inputs()[i];
  if (!call.inputs().is_padded(i) || input.is_contiguous() || input.elements() == 0 ||
      call.function().input_options(i).is_mutated) {
    return input;
  }
  Tensor copy(memory.allocate_input_copy(input.bytes()), 0, Shape(input.shape().dims()),
              input.dtype());
  copy_elements(current_stream(), copy, input);
  return copy;
}

// A PaddedNest is a nested call whose inputs the outer call pads.
class PaddedNest {
 public:
  // Replaces inputs that the function must not see unchanged.
  PaddedNest(const Call& call, std::vector<Tensor>& inputs)
      : call_(call), plan_(call.function().axes.get()) {
    if (plan_ == nullptr || outer_ == nullptr) return;
    for (const AxisUse& use : plan_->layout().inputs) {
      const AxisRule& rule = plan_->rule(use.axis);
      const auto dim = static_cast<int>(use.dim);
      if (use.tensor >= inputs.size() || !rule.pads() || dim >= inputs[use.tensor].rank()) continue;
      const auto axis = outer_->find_padded(rule.name(), inputs[use.tensor].shape().dim(dim));
      if (axis) uses_.emplace_back(use, *axis);
    }
    for (const auto& [use, axis] : uses_) {
      if (!plan_->is_unsafe(use.tensor, inputs[use.tensor].dtype())) continue;
      outer_->note_unsafe_inside(
          axis,
          str_format(" with zeros in {} of '{}', which '{}' calls and which writes another input",
                     call.describe(use.tensor), call.function().name, outer_->function()));
      cut_.set(use.axis);
      sizes_[use.axis] = {outer_->sizes().actual[axis], outer_->sizes().padded[axis]};
    }
    for (std::size_t i = 0; i < inputs.size(); ++i)
      replace(i, inputs[i]);
  }

  // Copies written inputs back, and pads outputs of which the function saw the actual size.
  void finish(std::span<const Tensor> inputs, std::span<Tensor> outputs) const {
    for (const auto& [i, original] : copied_) {
      if (call_.function().input_options(i).is_mutated)
        copy_elements(current_stream(), original, inputs[i]);
    }
    for (std::size_t i = 0; cut_.any() && i < outputs.size(); ++i)
      if (outputs[i].defined()) pad(i, outputs[i]);
  }

 private:
  void replace(std::size_t i, Tensor& input) {
    std::array<std::uint64_t, kMaxGatherRank> sizes = {};  // addresses, or 0
    bool pads = false;
    Tensor seen = input;
    for (const auto& [use, axis] : uses_) {
      if (use.tensor != i) continue;
      if (cut_[use.axis]) {
        seen = seen.slice(static_cast<int>(use.dim), 0, sizes_[use.axis].first);
      } else if (plan_->padding(i).kind != Padding::Kind::kAnything && input.elements() > 0) {
        sizes[use.dim] = outer_->length_of(axis).address();
        pads = true;
      }
    }
    const Tensor given = std::exchange(input, seen);
    if (pads) {
      input = pad_nested_input(call_, i, seen, sizes);
    } else if (given.is_contiguous() && !seen.is_contiguous()) {  // dense in an eager run
      input = empty(Shape(seen.shape().dims()), seen.dtype());
      copy_elements(current_stream(), input, seen);
    }
    if (input.storage() != seen.storage()) copied_.emplace_back(i, seen);
  }

  // An undeclared axis is at the position where inputs have it; a size of 1 is ignored, because any
  // axis may have it. An output that lies in an input becomes the outer step's tensor there.
  void pad(std::size_t i, Tensor& output) const {
    const std::span<const std::int64_t> seen = output.shape().dims();
    std::vector<std::int64_t> dims(seen.begin(), seen.end());
    bool is_input = false;
    const auto pad = [&](const AxisUse& use, std::int64_t least) {
      const auto [actual, padded] = sizes_[use.axis];
      if (!cut_[use.axis] || use.dim >= dims.size() || dims[use.dim] != actual) return;
      if (actual >= least) dims[use.dim] = padded;
    };
    for (const AxisUse& use : plan_->layout().outputs)
      if (use.tensor == i) pad(use, 0);
    for (const auto& [use, axis] : uses_) {
      pad(use, 2);
      is_input |= cut_[use.axis] && output.storage() == call_.inputs()[use.tensor].storage();
    }
    if (std::ranges::equal(dims, seen)) return;
    output = is_input ? Tensor(output.storage(), output.byte_offset(),
                               Shape(dims, output.shape().strides()), output.dtype())
                      : pad_nested_output(output, dims);
  }

  const Call& call_;
  const AxisPlan* const plan_;
  AxisLengths* const outer_ = frame().lengths;
  std::vector<std::pair<AxisUse, std::size_t>>
      uses_;                          // uses of axes that the outer call pads, and these axes
  std::bitset<kMaxDynamicAxes> cut_;  // by axis: the function sees the actual size
  std::array<std::pair<std::int64_t, std::int64_t>, kMaxDynamicAxes> sizes_;  // of these: actual,
                                                                              // padded
  std::vector<std::pair<std::size_t, Tensor>> copied_;  // inputs, and the originals of the copies
};

}  // namespace

std::vector<Tensor> make_step_inputs(const Call& call, ContextMemory& memory, StepRun as) {
  const InputList& inputs = call.inputs();
  std::vector<Tensor> made;
  made.reserve(inputs.step_size());
  for (std::size_t i = 0; i < inputs.step_size(); ++i) {
    if (call.treatment(i) == Treatment::kValue) {
      made.push_back(on_device(inputs[i], memory, as));
    } else {
      made.push_back(is_padded(as)            ? pad_input(call, memory, i)
                     : as == StepRun::kVerify ? without_gaps(call, memory, i)
                                              : inputs[i]);
    }
  }
  return made;
}

StepScope::StepScope(ContextMemory& memory, StreamRef stream, StepAllocations::Kind kind,
                     const std::vector<std::uint32_t>* output_allocations)
    : memory_(memory),
      stream_(stream),
      device_scope_(memory.stream().api(), memory.device().id),
      allocator_scope_(memory),
      stream_scope_(stream),
      recorded_draws_(memory),
      draw_scope_(handler_for(kind, eager_draws_, recorded_draws_)) {
  allocations_.kind = kind;
  if (kind == StepAllocations::Kind::kEager) allocations_.foreign_capture = capture_of(stream);
  allocations_.output_allocations = output_allocations;
  memory_.begin_step(allocations_);
}

StepScope::~StepScope() {
  if (open_) {
    memory_.abandon_step(allocations_);
    eager_draws_.give_back();
  }
}

void StepScope::finish() noexcept {
  memory_.end_step(allocations_);
  open_ = false;
}

Guard::Answer GuardsOfStep::ask(Guard guard) {
  guard.answer = guard.ask();
  guard.function = memory.end_outside(std::move(guard.function));
  return asked.emplace_back(std::move(guard)).answer;
}

Tensor AxisLengths::length(std::string_view name) {
  const AxisPlan* const plan = call_.function().axes.get();
  if (plan == nullptr) {
    throw InvalidArgument(
        str_format("axis_length(\"{}\") in a step function without dynamic axes", name));
  }
  const std::size_t axis = plan->find(name);
  if (plan->rule(axis).is_of_key()) {
    throw InvalidArgument(str_format(
        "axis_length(\"{}\"), which is of the key: current_key() has the value that the work is to "
        "see; pass the actual one in a tensor",
        name));
  }
  return length_of(axis);
}

Tensor AxisLengths::length_of(std::size_t axis) {
  lengths_.resize(call_.function().axes->size());
  std::optional<Tensor>& known = lengths_[axis];
  if (!known) {
    Tensor made(memory_.allocate_value(sizeof(std::int64_t)), 0, Shape(), DType::kInt64);
    if (!records_) {
      const std::int64_t size = call_.axes().actual[axis];
      write_values(current_stream(), made.address(), &size, sizeof(size));
    }
    known = std::move(made);
  }
  return *known;
}

void AxisLengths::note_unsafe_inside(std::size_t axis, const std::string& why) {
  call_.function().axes->note_unsafe_inside(axis, why);
  if (!records_ || sizes().actual[axis] == sizes().padded[axis]) return;
  const std::string what = str_format("'{}' is padded{}", function(), why);
  Refusals::note(Code::kUnknown, what);  // even if the step ignores the exception
  throw CaptureError(static_cast<int>(Code::kUnknown), what);
}

std::optional<std::size_t> AxisLengths::find_padded(std::string_view name,
                                                    std::int64_t size) const {
  const AxisPlan* const plan = call_.function().axes.get();
  if (plan == nullptr || !is_padded_) return std::nullopt;
  std::optional<std::size_t> found;
  for (std::size_t axis = 0; axis < plan->size(); ++axis) {
    const AxisRule& rule = plan->rule(axis);
    const bool is_it = rule.pads() && !rule.is_of_key() && call_.axes().padded[axis] == size;
    if (rule.name() == name) return is_it ? std::optional(axis) : std::nullopt;
    if (!is_it) continue;
    if (found) {
      throw InvalidArgument(str_format(
          "axis '{}' of a function that '{}' calls is {}, to which '{}' pads both '{}' and '{}': "
          "give it the name of the one that it is",
          name, function(), size, function(), plan->rule(*found).name(), rule.name()));
    }
    found = axis;
  }
  return found;
}

void AxisLengths::check_not_returned(std::span<const Tensor> outputs) const {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (std::size_t axis = 0; axis < lengths_.size(); ++axis) {
      if (!lengths_[axis] || !outputs[i].defined() ||
          outputs[i].storage() != lengths_[axis]->storage())
        continue;
      throw InvalidArgument(
          str_format("output {} of '{}' is axis_length(\"{}\"), which a later replay overwrites: "
                     "copy it",
                     i, call_.function().name, call_.function().axes->rule(axis).name()));
    }
  }
}

std::vector<GatherNode::Value> AxisLengths::values() const {
  std::vector<GatherNode::Value> values;
  for (std::uint32_t axis = 0; axis < lengths_.size(); ++axis) {
    if (!lengths_[axis]) continue;
    const AxisUse& use = first_input_with(call_.function().axes->layout(), axis);
    values.push_back(
        {use.tensor, lengths_[axis]->address(), sizeof(std::int64_t), static_cast<int>(use.dim)});
  }
  return values;
}

std::vector<StorageRef> AxisLengths::take() {
  std::vector<StorageRef> storages;
  for (const std::optional<Tensor>& length : lengths_) {
    if (length) storages.push_back(length->storage());
  }
  lengths_.clear();
  return storages;
}

Tensor axis_length(std::string_view axis) {
  AxisLengths* const lengths = frame().lengths;
  if (lengths == nullptr) {
    throw InvalidArgument(
        str_format("axis_length(\"{}\") outside of a step function, or in an eager_break()", axis));
  }
  return lengths->length(axis);
}

std::string_view key_for(const Call& call, StepRun as) noexcept {
  return as == StepRun::kEagerly ? call.actual_key() : call.inputs().key();
}

Key current_key() {
  const Key* const key = frame().key;
  if (key == nullptr) throw InvalidArgument("current_key() outside of a step function");
  return *key;
}

std::vector<Tensor> call_step(const Call& call, std::span<const Tensor> step_inputs) {
  const Function& function = call.function();
  try {
    return function.step(step_inputs);
  } catch (const WrongElementType& error) {
    const auto is_it = [&](const Tensor& input) {
      return input.defined() && input.address() == error.address();
    };
    const auto found = std::ranges::find_if(step_inputs, is_it);
    if (found == step_inputs.end()) throw;
    const auto i = static_cast<std::size_t>(found - step_inputs.begin());
    throw InvalidArgument(
        str_format("{} of '{}': {}", call.describe(i), function.name, error.message()));
  }
}

std::vector<Tensor> run_nested_step(const Call& call, ContextMemory& memory) {
  std::vector<Tensor> step_inputs = make_step_inputs(call, memory, StepRun::kEagerly);
  const PaddedNest nest(call, step_inputs);
  const Key key = Key::of_text(key_for(call, StepRun::kEagerly));
  const KeyScope scope(&key);
  std::vector<Tensor> outputs = call_step(call, step_inputs);
  nest.finish(step_inputs, outputs);
  return finish_outputs(call, memory, step_inputs, std::move(outputs), StepRun::kEagerly);
}

std::vector<Tensor> finish_outputs(const Call& call, ContextMemory& memory,
                                   std::span<const Tensor> step_inputs, std::vector<Tensor> outputs,
                                   StepRun as) {
  const Function& function = call.function();
  const InputList& inputs = call.inputs();
  check_outputs(function.name, outputs);
  if (is_padded(as) && function.axes != nullptr) {
    check_output_axes(function, outputs, call.axes().padded);
    if (as == StepRun::kWarmUp) copy_padded_inputs(call, memory, outputs, step_inputs);
    copy_back_mutated(call, memory, step_inputs);
    slice_outputs(call, outputs);
  }
  check_buffers(call, outputs);
  if (as == StepRun::kVerify || as == StepRun::kVerifyPadded) return outputs;
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
