// CompiledCore passes calls to the Engine that owns the function, and refuses a wrong number of
// tensors from callers and step functions.
#include "cgtree/compile.h"

#include <map>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "cgtree/tree/engine.h"

namespace cgtree {

CompiledCore::CompiledCore(Context& context, std::string name, StepFunction function,
                           CompileOptions options)
    : FunctionHandle(context.share_engine(),
                     context.share_engine()->add_function(std::move(name), std::move(function),
                                                          std::move(options))) {
}

void FunctionRef::call(const InputList& inputs, TensorList& outputs) const {
  engine_->call(*function_, inputs, outputs);
}

Explanation FunctionRef::explain(InputList inputs) const {
  return engine_->explain(*function_, inputs);
}

void CompiledCore::call(const InputList& inputs, TensorList& outputs) const {
  engine_->call(*function_, inputs, outputs);
}

Explanation CompiledCore::explain(InputList inputs) const {
  return ref().explain(inputs);
}

std::map<std::int64_t, std::uint64_t> CompiledCore::histogram(std::string_view axis) const {
  const AxisPlan* const axes = function_->axes.get();
  if (axes == nullptr) {
    throw InvalidArgument(
        str_format("'{}' has no dynamic axes, and '{}' is asked for", name(), axis));
  }
  return axes->histogram(axes->find(axis)).counts();
}

std::map<Sizes, std::uint64_t> CompiledCore::histogram() const {
  if (function_->axes == nullptr) return {};
  return function_->axes->joint_histogram();
}

void check_compile_options(const std::string& name, const CompileOptions& options) {
  const StepFunction nothing = [](std::span<const Tensor>) { return std::vector<Tensor>(); };
  (void)Tree().add_function(name, nothing, options);
}

namespace detail {

void check_input_count(std::size_t given, std::size_t expected) {
  if (given == expected) return;
  throw InvalidArgument(str_format("{} inputs given, the step function takes {}", given, expected));
}

void refuse_output_count(std::size_t given, std::size_t expected) {
  throw InvalidArgument(
      str_format("the step function returned {} outputs, {} are expected", given, expected));
}

}  // namespace detail

}  // namespace cgtree
