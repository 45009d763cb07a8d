// Step functions and calls in C.
#include <fmt/format.h>

#include <array>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cgtree/c_api/function_options.h"
#include "cgtree/c_api/handles.h"
#include "cgtree/c_api/json.h"
#include "cgtree/c_api/sized_struct.h"
#include "cgtree/c_api/status.h"
#include "cgtree/c_api/step.h"
#include "interop/tensor/tensor.h"

namespace cgtree::capi {
namespace {

cgt_function compile(cgt_context context, const std::shared_ptr<CStep>& step,
                     const cgt_function_options* options) {
  const auto pin = context_of(context);
  step->attach(pin->is_abandoned);
  FunctionOptions read = function_options(options, step->outputs());
  CompiledCore core(
      pin->context, step->name(),
      [step](std::span<const Tensor> inputs) { return step->run(inputs); },
      std::move(read.compile));
  return handle_of<cgt_function>(functions().make(std::move(core), step->outputs(),
                                                  pin->is_abandoned,
                                                  std::make_unique<Warming>(std::move(read.axes))));
}

// An output as usual, where a buffer could be.
const Tensor& no_buffer() {
  static const Tensor none;
  return none;
}

// The tensors of a call, by address; on the stack for as many as most calls have.
class Arguments {
 public:
  Arguments(const cgt_tensor* inputs, std::size_t input_count, const cgt_tensor* buffers = nullptr,
            std::size_t buffer_count = 0)
      : buffers_(buffer_count) {
    if (input_count > 0) required(inputs, "the array of inputs");
    if (buffer_count > 0) required(buffers, "the array of buffers");
    const std::size_t count = input_count + buffer_count;
    const Tensor** to = few_.data();
    if (count > few_.size()) {
      many_.reset(new const Tensor*[count]);
      to = many_.get();
    }
    list_ = {to, count};
    const std::size_t found =
        tensors().find_live(std::span(inputs, input_count), to,
                            [](const TensorObject& object) { return &object.tensor; });
    if (found < input_count) throw_bad_tensor(inputs[found], "input", found);
    to += input_count;
    for (std::size_t i = 0; i < buffer_count; ++i)
      *to++ = buffers[i] == nullptr ? &no_buffer() : &buffer_at(buffers[i], i);
  }

  InputList list() const noexcept { return {list_, buffers_}; }

 private:
  [[noreturn]] static void throw_bad_tensor(cgt_tensor handle, std::string_view what,
                                            std::size_t i) {
    throw_bad_handle(number_of(handle), HandleKind::kTensor, fmt::format("{} {}", what, i));
  }
  static const Tensor& buffer_at(cgt_tensor handle, std::size_t i) {
    if (const TensorObject* const object = tensors().find_live(number_of(handle))) [[likely]] {
      return object->tensor;
    }
    throw_bad_tensor(handle, "buffer", i);
  }

  std::array<const Tensor*, 512> few_;  // not set
  std::unique_ptr<const Tensor*[]> many_;
  std::span<const Tensor* const> list_;
  std::size_t buffers_;
};

// Handles for all outputs, or none.
void give_out(std::span<Tensor> made, cgt_tensor* outputs) {
  std::size_t done = 0;
  try {
    for (; done < made.size(); ++done)
      outputs[done] = make_tensor(std::move(made[done]));
  } catch (...) {
    while (done > 0)
      destroy_tensor(std::exchange(outputs[--done], nullptr));
    throw;
  }
}

void call(cgt_function function, const Arguments& arguments, cgt_tensor* outputs,
          std::size_t output_count) {
  const FunctionTable::Pin pin = function_of(function);
  if (output_count != pin->outputs) {
    throw InvalidArgument(fmt::format("'{}' has {} outputs, but there is room for {}",
                                      pin->core.name(), pin->outputs, output_count));
  }
  if (output_count > 0) required(outputs, "the array of outputs");
  if (pin->is_abandoned->load(std::memory_order_relaxed)) [[unlikely]] {
    throw StatusError(CGT_STEP_ABANDONED,
                      fmt::format("the context of '{}' is inside a step function that was left by "
                                  "longjmp, and cannot go on; make another context",
                                  pin->core.name()));
  }
  const ParkedScope parked;
  TensorList made;
  pin->core.call(arguments.list(), made);
  give_out(made.tensors(), outputs);
}

}  // namespace
}  // namespace cgtree::capi

using namespace cgtree;
using namespace cgtree::capi;

extern "C" {

cgt_status cgt_compile(cgt_context context, const char* name, const cgt_step* step,
                       const cgt_function_options* options, cgt_function* out) {
  return guarded([&] {
    const cgt_step read = read_struct(&required(step, "the step"), "cgt_step");
    // From here on it is released whatever happens.
    const auto shared = std::make_shared<CStep>(name == nullptr ? "" : name, read);
    required(name, "the function's name");
    required(read.body, "cgt_step::body");
    required(out, "the place for the function");
    *out = compile(context, shared, options);
  });
}

cgt_status cgt_function_destroy(cgt_function function) {
  return guarded([&] {
    if (function != nullptr) functions().destroy(number_of(function), "the function");
  });
}

cgt_status cgt_call(cgt_function function, const cgt_tensor* inputs, size_t input_count,
                    cgt_tensor* outputs, size_t output_count) {
  return guarded([&] { call(function, Arguments(inputs, input_count), outputs, output_count); });
}

cgt_status cgt_call_into(cgt_function function, const cgt_tensor* inputs, size_t input_count,
                         const cgt_tensor* buffers, size_t buffer_count, cgt_tensor* outputs,
                         size_t output_count) {
  return guarded([&] {
    call(function, Arguments(inputs, input_count, buffers, buffer_count), outputs, output_count);
  });
}

cgt_status cgt_function_explain(cgt_function function, const cgt_tensor* inputs, size_t input_count,
                                char* buffer, size_t capacity, size_t* length) {
  return guarded([&] {
    const Arguments arguments(inputs, input_count);
    write_text(to_string(function_of(function)->core.explain(arguments.list())), buffer, capacity,
               length);
  });
}

cgt_status cgt_function_stats_json(cgt_function function, char* buffer, size_t capacity,
                                   size_t* length) {
  return guarded(
      [&] { write_text(to_json(function_of(function)->core.stats()), buffer, capacity, length); });
}

}  // extern "C"
