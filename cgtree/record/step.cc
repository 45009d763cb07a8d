// Opens and closes steps, brings scalars to the device, and copies outputs to buffers.
#include "cgtree/record/step.h"

#include <array>

#include "cgtree/record/outputs.h"
#include "cgtree/record/prepare.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"

namespace cgtree {
namespace {

thread_local int t_depth = 0;

DrawHandler& handler_for(StepAllocations::Kind kind, EagerDraws& eager, RecordedDraws& recorded) {
  if (kind == StepAllocations::Kind::kRecord) return recorded;
  return eager;
}

// Returns a tensor of the scalar's value. The row that writes it has no elements on its moving
// side, so that all of it is padding.
Tensor on_device(const Tensor& scalar, ContextMemory& memory, StepRun as) {
  const std::size_t bytes = size_of(scalar.dtype());
  // A warm-up allocates as the recording will, which numbers what the step itself allocates.
  Tensor made = as == StepRun::kWarmUp
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

// Returns what the step function is given, which holds the tensors while it runs.
std::vector<Tensor> make_step_inputs(const Call& call, ContextMemory& memory, StepRun as) {
  const InputList& inputs = call.inputs();
  std::vector<Tensor> made;
  made.reserve(inputs.step_size());
  for (std::size_t i = 0; i < inputs.step_size(); ++i) {
    if (call.treatment(i) == Treatment::kValue) {
      made.push_back(on_device(inputs[i], memory, as));
    } else {
      made.push_back(as == StepRun::kWarmUp ? pad_input(call, memory, i) : inputs[i]);
    }
  }
  return made;
}

}  // namespace

StepScope::StepScope(ContextMemory& memory, StreamRef stream, StepAllocations::Kind kind,
                     const std::vector<std::uint32_t>* output_allocations)
    : memory_(memory),
      device_scope_(memory.stream().api(), memory.device().id),
      allocator_scope_(memory),
      stream_scope_(stream),
      recorded_draws_(memory),
      draw_scope_(handler_for(kind, eager_draws_, recorded_draws_)) {
  allocations_.kind = kind;
  allocations_.output_allocations = output_allocations;
  memory_.begin_step(allocations_);
  ++t_depth;
}

StepScope::~StepScope() {
  if (open_) {
    memory_.abandon_step(allocations_);
    eager_draws_.give_back();
  }
  --t_depth;
}

bool StepScope::active() noexcept {
  return t_depth > 0;
}

void StepScope::finish() noexcept {
  memory_.end_step(allocations_);
  open_ = false;
}

std::vector<Tensor> run_step(const Call& call, ContextMemory& memory, StepRun as) {
  const Function& function = call.function();
  const InputList& inputs = call.inputs();
  const std::vector<Tensor> step_inputs = make_step_inputs(call, memory, as);
  std::vector<Tensor> outputs = function.step(step_inputs);
  check_outputs(function.name, outputs);
  if (as == StepRun::kWarmUp && function.axes != nullptr) {
    check_output_axes(function, outputs, call.axes().padded);
    copy_back_mutated(call, memory, step_inputs);
    slice_outputs(call, outputs);
  }
  check_buffers(call, outputs);
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
