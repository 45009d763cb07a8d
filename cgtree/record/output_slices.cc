// Finds true sizes in the inputs.
#include "cgtree/record/output_slices.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace cgtree {
namespace {

std::string output_text(const FunctionState& function, const AxisUse& use) {
  return text_of_output(use.tensor, function.options.outputs[use.tensor].name);
}

}  // namespace

void check_output_axes(const FunctionState& function, std::span<const Tensor> outputs,
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

void slice_outputs(const FunctionState& function, std::span<Tensor> outputs) {
  if (function.axes == nullptr) return;
  for (const AxisUse& use : function.axes->layout().outputs) {
    Tensor& output = outputs[use.tensor];
    output = output.slice(static_cast<int>(use.dim), 0, function.axes->given()[use.axis]);
  }
}

void learn_slices(const FunctionState& function, std::span<OutputRecord> outputs) {
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

}  // namespace cgtree
