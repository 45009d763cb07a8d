// CompiledCore passes calls on to the TreeManager that owns the function; calls and step functions
// with a wrong number of tensors are refused.
#include "cgtree/compile.h"

#include <fmt/format.h>

#include <algorithm>
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

std::vector<std::int64_t> CompiledCore::suggest_buckets(std::string_view axis,
                                                        std::size_t max_buckets,
                                                        const BucketCost& cost) const {
  std::vector<SizeCount> counts = histogram(axis);
  std::erase_if(counts, [](const SizeCount& count) { return count.size == 0; });
  return cgtree::suggest_buckets(counts, max_buckets, cost);
}

std::vector<SizesCount> CompiledCore::histogram() const {
  return manager_->histogram(*function_);
}

std::vector<Buckets> CompiledCore::suggest_buckets(const BucketLimits& limits,
                                                   std::span<const BucketCost> costs) const {
  std::vector<SizesCount> counts = histogram();
  if (counts.empty()) return {};
  const std::vector<AxisOptions>& axes = function_->axes->layout().axes;
  for (std::size_t axis = 0; axis < axes.size(); ++axis) {
    std::int64_t smallest = INT64_MAX;
    for (const SizesCount& entry : counts) {
      if (entry.sizes[axis] > 0) smallest = std::min(smallest, entry.sizes[axis]);
    }
    for (SizesCount& entry : counts) {
      if (entry.sizes[axis] == 0) entry.sizes[axis] = smallest == INT64_MAX ? 1 : smallest;
    }
  }
  auto lists = cgtree::suggest_buckets(counts, limits, costs);
  std::vector<Buckets> suggested;
  for (std::size_t axis = 0; axis < axes.size(); ++axis)
    suggested.push_back({axes[axis].name, std::move(lists[axis])});
  return suggested;
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
