// CompiledCore: a function's place in the tree manager.
#include "cgtree/compile.h"

#include <utility>

#include "cgtree/tree/tree_manager.h"

namespace cgtree {

CompiledCore::CompiledCore(Context& context, std::string name, StepFunction function,
                           CompileOptions options)
    : manager_(context.share_manager()),
      id_(manager_->add_function(std::move(name), std::move(function), std::move(options))) {
}

CompiledCore::~CompiledCore() {
  if (manager_ != nullptr) manager_->remove_function(id_);
}

CompiledCore::CompiledCore(CompiledCore&& other) noexcept
    : manager_(std::move(other.manager_)), id_(other.id_) {
}

CompiledCore& CompiledCore::operator=(CompiledCore&& other) noexcept {
  std::swap(manager_, other.manager_);
  std::swap(id_, other.id_);
  return *this;
}

void CompiledCore::call(std::span<const Tensor* const> inputs, TensorList& outputs) const {
  manager_->call(id_, inputs, outputs);
}

void CompiledCore::call(std::span<const Tensor> inputs, TensorList& outputs) const {
  constexpr std::size_t kOnStack = 64;
  const Tensor* few[kOnStack];
  std::vector<const Tensor*> many;
  const Tensor** list = few;
  if (inputs.size() > kOnStack) {
    many.resize(inputs.size());
    list = many.data();
  }
  for (std::size_t i = 0; i < inputs.size(); ++i)
    list[i] = &inputs[i];
  manager_->call(id_, std::span<const Tensor* const>(list, inputs.size()), outputs);
}

const std::string& CompiledCore::name() const noexcept {
  return manager_->function_name(id_);
}

FunctionStats CompiledCore::stats() const {
  return manager_->stats_of(id_);
}

}  // namespace cgtree
