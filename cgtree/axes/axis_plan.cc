// Reads sizes and chooses among them.
#include "cgtree/axes/axis_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace cgtree {
namespace {

// Whether the tensor's own memory, from where it begins, holds a row-major tensor of this shape of
// which it is the first part of each axis.
bool holds(const Tensor& tensor, const Shape& shape) noexcept {
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape.dim(axis) > 1 && tensor.shape().stride(axis) != shape.stride(axis)) return false;
  }
  const std::size_t needed = static_cast<std::size_t>(shape.extent()) * size_of(tensor.dtype());
  return needed <= tensor.storage()->bytes() - tensor.byte_offset();
}

// Buckets for which shapes are kept.
std::int64_t sizes_of(const AxisOptions& axis) {
  constexpr std::size_t kMost = 64;
  return static_cast<std::int64_t>(
      std::min(axis.policy == AxisPolicy::kBuckets ? axis.sizes.size() : axis.max_sizes, kMost));
}

}  // namespace

std::unique_ptr<AxisPlan> AxisPlan::of(const std::string& function, const CompileOptions& options) {
  AxisLayout layout = layout_of(function, options);
  if (layout.axes.empty()) return nullptr;
  return std::make_unique<AxisPlan>(function, options, std::move(layout));
}

AxisPlan::AxisPlan(const std::string& function, const CompileOptions& options, AxisLayout layout)
    : function_(function),
      options_(options),
      layout_(std::move(layout)),
      histograms_(layout_.axes.size()) {
  for (const AxisOptions& axis : layout_.axes)
    rules_.emplace_back(axis);
  padded_ = padded_among(layout_.inputs);
  padded_outputs_ = padded_among(layout_.outputs);
  for (PaddedTensor& padded : padded_) {
    const InputOptions& input = options.inputs[padded.tensor];
    padded.may_see_rest = input.padding.kind == Padding::Kind::kAnything && !input.is_mutated;
  }
  inputs_.resize(options.inputs.size());
}

std::vector<AxisPlan::PaddedTensor> AxisPlan::padded_among(const std::vector<AxisUse>& all) const {
  std::vector<PaddedTensor> found;
  for (auto use = all.begin(); use != all.end();) {
    PaddedTensor padded{use->tensor, {}, false, {}};
    bool pads = false;
    std::int64_t shapes = 1;
    for (; use != all.end() && use->tensor == padded.tensor; ++use) {
      padded.uses.push_back(*use);
      if (!rules_[use->axis].pads()) continue;
      pads = true;
      shapes *= sizes_of(layout_.axes[use->axis]);
    }
    padded.shapes = ShapeCache(shapes);
    if (pads) found.push_back(std::move(padded));
  }
  return found;
}

std::size_t AxisPlan::find(std::string_view name) const {
  std::string names;
  for (std::size_t axis = 0; axis < rules_.size(); ++axis) {
    if (rules_[axis].name() == name) return axis;
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", rules_[axis].name());
  }
  throw InvalidArgument(
      fmt::format("'{}' has no dynamic axis '{}'; it has {}", function_, name, names));
}

std::string AxisPlan::use_text(const AxisUse& use) const {
  return fmt::format("axis {} of {}", use.dim,
                     text_of_input(use.tensor, options_.inputs[use.tensor].name));
}

void AxisPlan::refuse_input(InputList inputs, const AxisUse& use) const {
  const std::string input = text_of_input(use.tensor, options_.inputs[use.tensor].name);
  if (use.tensor >= inputs.step_size()) {
    throw InvalidArgument(fmt::format("{} of '{}' has dynamic axis '{}' and was not given: {} are",
                                      input, function_, rules_[use.axis].name(),
                                      inputs.step_size()));
  }
  if (!inputs[use.tensor].defined()) {
    throw InvalidArgument(fmt::format("{} of '{}' holds nothing", input, function_));
  }
  throw InvalidArgument(fmt::format("{} of '{}' has dynamic axis '{}' as its axis {}; {} given",
                                    input, function_, rules_[use.axis].name(), use.dim,
                                    describe(inputs[use.tensor])));
}

void AxisPlan::refuse_sizes(InputList inputs, const AxisUse& use) const {
  const auto first = std::find_if(layout_.inputs.begin(), layout_.inputs.end(),
                                  [&](const AxisUse& other) { return other.axis == use.axis; });
  throw InvalidArgument(
      fmt::format("axis '{}' of '{}' is {} in {}, and {} in {}: all inputs of a call must agree",
                  rules_[use.axis].name(), function_, given_[use.axis], use_text(*first),
                  inputs[use.tensor].shape().dim(static_cast<int>(use.dim)), use_text(use)));
}

void AxisPlan::read(InputList inputs) {
  given_.fill(-1);
  for (const AxisUse& use : layout_.inputs) {
    if (use.tensor >= inputs.step_size() || !inputs[use.tensor].defined() ||
        static_cast<int>(use.dim) >= inputs[use.tensor].rank()) [[unlikely]] {
      refuse_input(inputs, use);
    }
    const std::int64_t size = inputs[use.tensor].shape().dim(static_cast<int>(use.dim));
    std::int64_t& given = given_[use.axis];
    if (given != -1 && given != size) [[unlikely]] {
      refuse_sizes(inputs, use);
    }
    given = size;
  }
}

AxisChoice AxisPlan::choose() noexcept {
  AxisChoice strictest;
  for (std::size_t axis = 0; axis < rules_.size(); ++axis) {
    const AxisChoice choice = rules_[axis].choose(given_[axis]);
    seen_[axis] = choice.seen;
    if (choice.kind > strictest.kind) strictest = choice;
  }
  return strictest;
}

bool AxisPlan::may_see(const AxisSizes& sizes) const noexcept {
  for (std::size_t axis = 0; axis < rules_.size(); ++axis) {
    if (sizes[axis] < given_[axis]) return false;
    if (sizes[axis] > given_[axis] && !rules_[axis].pads()) return false;
  }
  return true;
}

double AxisPlan::work(const AxisSizes& sizes) const noexcept {
  double work = 1;
  for (std::size_t axis = 0; axis < rules_.size(); ++axis)
    work *= static_cast<double>(sizes[axis]);
  return work;
}

SeenInput AxisPlan::see(PaddedTensor& padded, const Tensor& tensor) {
  const std::span<const std::int64_t> given = tensor.shape().dims();
  std::int64_t dims[Shape::kMaxRank];
  std::copy(given.begin(), given.end(), dims);
  bool is_whole = true;
  for (const AxisUse& use : padded.uses) {
    is_whole = is_whole && dims[use.dim] == seen_[use.axis];
    dims[use.dim] = seen_[use.axis];
  }
  const std::span<const std::int64_t> seen(dims, given.size());
  const Shape& shape = padded.shapes.get(seen, [&] { return Shape(seen); });
  return {&shape, (is_whole || padded.may_see_rest) && holds(tensor, shape)};
}

// What is behind the inputs may have been something else in the call before.
void AxisPlan::see_buffers(InputList inputs) {
  saw_buffers_ = inputs.buffers() > 0;
  std::fill(inputs_.begin() + static_cast<std::ptrdiff_t>(inputs.step_size()), inputs_.end(),
            SeenInput{});
  for (PaddedTensor& padded : padded_outputs_) {
    if (!inputs.has_buffer(padded.tensor)) continue;
    const std::size_t i = inputs.step_size() + padded.tensor;
    if (fits_uses(padded, inputs[i])) inputs_[i] = see(padded, inputs[i]);
  }
}

// A buffer of another rank or size is refused when the outputs are there to compare it with.
bool AxisPlan::fits_uses(const PaddedTensor& padded, const Tensor& buffer) const noexcept {
  return std::all_of(padded.uses.begin(), padded.uses.end(), [&](const AxisUse& use) {
    return static_cast<int>(use.dim) < buffer.rank() &&
           buffer.shape().dim(static_cast<int>(use.dim)) == given_[use.axis];
  });
}

InputList AxisPlan::see(InputList inputs) {
  if (padded_.empty()) return inputs;
  if (inputs_.size() < inputs.size()) inputs_.resize(inputs.size());
  for (PaddedTensor& padded : padded_)
    inputs_[padded.tensor] = see(padded, inputs[padded.tensor]);
  if (inputs.buffers() > 0 || saw_buffers_) [[unlikely]] {
    see_buffers(inputs);
  }
  return inputs.seen_as(inputs_.data());
}

void AxisPlan::note(bool counts) noexcept {
  for (std::size_t axis = 0; axis < rules_.size(); ++axis) {
    rules_[axis].note(given_[axis]);
    if (counts) histograms_[axis].add(given_[axis]);
  }
}

AxisSizes AxisPlan::admit() noexcept {
  AxisSizes gone;
  for (std::size_t axis = 0; axis < rules_.size(); ++axis)
    gone[axis] = rules_[axis].admit(seen_[axis]).value_or(-1);
  return gone;
}

std::vector<AxisInUse> AxisPlan::in_use(bool is_graphed) const {
  std::vector<AxisInUse> axes;
  for (std::size_t axis = 0; axis < rules_.size(); ++axis)
    axes.push_back({rules_[axis].name(), given_[axis], is_graphed ? seen_[axis] : 0});
  return axes;
}

std::string AxisPlan::why_not(SkipReason reason) const {
  std::string text;
  for (std::size_t axis = 0; axis < rules_.size(); ++axis) {
    const std::string why = reason == SkipReason::kNotRecorded
                                ? fmt::format("axis '{}' is {}", rules_[axis].name(), given_[axis])
                                : rules_[axis].why_not(given_[axis]);
    if (!why.empty()) text += (text.empty() ? "" : ", ") + why;
  }
  return text;
}

}  // namespace cgtree
