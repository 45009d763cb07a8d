// CompiledCore passes calls on to the TreeManager that owns the function; calls and step functions
// with a wrong number of tensors are refused.
#include "cgtree/compile.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "cgtree/tree/tree_manager.h"

namespace cgtree {

CompiledCore::CompiledCore(Context& context, std::string name, StepFunction function,
                           CompileOptions options)
    : FunctionHandle(context.share_manager(),
                     context.share_manager()->add_function(std::move(name), std::move(function),
                                                           std::move(options))) {
}

void FunctionRef::call(const InputList& inputs, TensorList& outputs) const {
  manager_->call(*function_, inputs, outputs);
}

Explanation FunctionRef::explain(InputList inputs) const {
  return manager_->explain(*function_, inputs);
}

void CompiledCore::call(const InputList& inputs, TensorList& outputs) const {
  manager_->call(*function_, inputs, outputs);
}

Explanation CompiledCore::explain(InputList inputs) const {
  return ref().explain(inputs);
}

std::vector<SizeCount> CompiledCore::histogram(std::string_view axis) const {
  return manager_->histogram(*function_, axis);
}

std::vector<SizesCount> CompiledCore::histogram() const {
  return manager_->histogram(*function_);
}

void check_compile_options(const std::string& name, const CompileOptions& options) {
  const StepFunction nothing = [](std::span<const Tensor>) { return std::vector<Tensor>(); };
  (void)Tree().add_function(name, nothing, options);
}

namespace detail {

void check_input_count(std::size_t given, std::size_t expected) {
  if (given == expected) return;
  throw InvalidArgument(
      fmt::format("{} inputs given, the step function takes {}", given, expected));
}

void refuse_output_count(std::size_t given, std::size_t expected) {
  throw InvalidArgument(
      fmt::format("the step function returned {} outputs, {} are expected", given, expected));
}

}  // namespace detail

}  // namespace cgtree
