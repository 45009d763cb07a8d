// Reads sizes, chooses among them, and makes padded shapes.
#include "cgtree/axes/axis_plan.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"

namespace cgtree {
namespace {

// Returns whether the tensor's own memory, from its beginning, holds a row-major tensor of this
// shape whose leading part along each axis is the tensor.
bool holds(const Tensor& tensor, const Shape& shape) noexcept {
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape.dim(axis) > 1 && tensor.shape().stride(axis) != shape.stride(axis)) return false;
  }
  const std::size_t needed = static_cast<std::size_t>(shape.extent()) * size_of(tensor.dtype());
  return needed <= tensor.storage()->bytes() - tensor.byte_offset();
}

// Returns the number of sizes for which shapes are kept.
std::int64_t shapes_of(const AxisOptions& axis) {
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
      histograms_(layout_.axes.size()),
      learned_sums_(layout_.axes.size()) {
  for (const AxisOptions& axis : layout_.axes)
    rules_.emplace_back(axis, /*is_of_key=*/rules_.size() >= layout_.axes.size() - layout_.keys);
  learns_ = std::ranges::any_of(rules_, &AxisRule::is_learned);
  inside_.resize(size());
  padded_ = padded_among(layout_.inputs);
  padded_outputs_ = padded_among(layout_.outputs);
  for (PaddedTensor& padded : padded_) {
    const InputOptions& input = options.inputs[padded.tensor];
    padded.may_see_rest = input.padding.kind == Padding::Kind::kAnything && !input.is_mutated;
  }
  inputs_.resize(options.inputs.size());
  for (std::uint32_t i = 0; i < options.inputs.size(); ++i) {
    if (options.inputs[i].require_contiguous) contiguous_.push_back(i);
    if (pads(i) && is_unsafe(i, DType::kInt64)) guarded_.push_back(i);
  }
  has_more_to_read_ = layout_.keys > 0 || !contiguous_.empty() || !guarded_.empty();
  limits_padding_ =
      options.max_waste < std::numeric_limits<double>::infinity() || !guarded_.empty();
}

// A mask of zeros may mean "valid" as well as "not valid", so a bool is as unsafe as an index.
bool AxisPlan::is_unsafe(std::size_t i, DType dtype) const noexcept {
  const bool may_point = dtype <= DType::kUInt64;  // later types are floating or complex
  if (!may_point || padding(i).kind != Padding::Kind::kUnset) return false;
  for (std::size_t j = 0; j < options_.inputs.size(); ++j)
    if (j != i && options_.inputs[j].is_mutated) return true;
  return false;
}

std::vector<AxisPlan::PaddedTensor> AxisPlan::padded_among(const std::vector<AxisUse>& all) const {
  std::vector<PaddedTensor> found;
  for (auto use = all.begin(); use != all.end();) {
    PaddedTensor padded{use->tensor, {}, false, {}, false};
    bool pads = false;
    std::int64_t shapes = 1;
    for (; use != all.end() && use->tensor == padded.tensor; ++use) {
      padded.uses.push_back(*use);
      if (!rules_[use->axis].pads()) continue;
      pads = true;
      shapes *= shapes_of(layout_.axes[use->axis]);
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
    names += str_format("{}'{}'", names.empty() ? "" : ", ", rules_[axis].name());
  }
  throw InvalidArgument(
      str_format("'{}' has no dynamic axis '{}'; it has {}", function_, name, names));
}

std::string AxisPlan::use_text(const AxisUse& use) const {
  return str_format("axis {} of {}", use.dim,
                    text_of_input(use.tensor, options_.inputs[use.tensor].name));
}

void AxisPlan::refuse_input(InputList inputs, const AxisUse& use) const {
  const std::string input = text_of_input(use.tensor, options_.inputs[use.tensor].name);
  if (use.tensor >= inputs.step_size()) {
    throw InvalidArgument(str_format(
        "{} of '{}' has dynamic axis '{}' and was not given: {}, and at least {} are expected",
        input, function_, rules_[use.axis].name(), text_of_given(inputs.step_size(), "input"),
        layout_.inputs.back().tensor + 1));
  }
  if (!inputs[use.tensor].defined()) {
    throw InvalidArgument(str_format("{} of '{}' is a null tensor", input, function_));
  }
  throw InvalidArgument(str_format("{} of '{}' has dynamic axis '{}' as its axis {}; {} given",
                                   input, function_, rules_[use.axis].name(), use.dim,
                                   describe(inputs[use.tensor])));
}

void AxisPlan::refuse_sizes(InputList inputs, const AxisUse& use) const {
  const AxisUse& first = first_input_with(layout_, use.axis);
  const auto size_of_use = [&](const AxisUse& other) {
    return inputs[other.tensor].shape().dim(static_cast<int>(other.dim));
  };
  throw InvalidArgument(
      str_format("axis '{}' of '{}' is {} in {}, and {} in {}: all inputs of a call must agree",
                 rules_[use.axis].name(), function_, size_of_use(first), use_text(first),
                 size_of_use(use), use_text(use)));
}

void AxisPlan::refuse_key(std::string_view key, const std::string& name,
                          std::string_view what) const {
  throw InvalidArgument(str_format(
      "'{}' has options for '{}' of the key, and a call with the key [{}], where it is {}: give a "
      "number that is at least 0",
      function_, name, key, what));
}

std::size_t AxisPlan::find_key(std::string_view name) const noexcept {
  for (std::size_t axis = size() - layout_.keys; axis < size(); ++axis) {
    if (rules_[axis].name() == name) return axis;
  }
  return size();
}

void AxisPlan::read_key(std::string_view key, CallAxes& axes) const {
  for (std::string_view rest = key; !rest.empty();) {
    const Key::Part part = take_part(rest);
    const std::size_t axis = find_key(part.name());
    if (axis == size()) continue;
    if (part.is_text()) refuse_key(key, rules_[axis].name(), "a string");
    if (part.is_large()) refuse_key(key, rules_[axis].name(), "above the largest int64");
    if (part.number() < 0) refuse_key(key, rules_[axis].name(), "negative");
    axes.actual[axis] = part.number();
  }
  for (std::size_t axis = size() - layout_.keys; axis < size(); ++axis) {
    if (axes.actual[axis] < 0) refuse_key(key, rules_[axis].name(), "missing");
  }
}

std::string_view AxisPlan::pad_key(std::string_view key, const AxisSizes& sizes) {
  padded_key_ = Key::replaced(key, [&](const Key::Part& part) {
    const std::size_t axis = find_key(part.name());
    return axis == size() ? part : Key::Part(part.name(), sizes[axis]);
  });
  return padded_key_.text();
}

void AxisPlan::read(InputList inputs, CallAxes& axes) const {
  axes.actual.fill(-1);
  for (const AxisUse& use : layout_.inputs) {
    if (use.tensor >= inputs.step_size() || !inputs[use.tensor].defined() ||
        static_cast<int>(use.dim) >= inputs[use.tensor].rank()) [[unlikely]] {
      refuse_input(inputs, use);
    }
    const std::int64_t size = inputs[use.tensor].shape().dim(static_cast<int>(use.dim));
    std::int64_t& actual = axes.actual[use.axis];
    if (actual != -1 && actual != size) [[unlikely]] {
      refuse_sizes(inputs, use);
    }
    actual = size;
  }
  if (has_more_to_read_) read_more(inputs, axes);
}

void AxisPlan::read_more(InputList inputs, CallAxes& axes) const {
  if (layout_.keys > 0) read_key(inputs.key(), axes);
  // Not in Call::check(), because recordings of padded inputs fit whatever gaps there are.
  for (const std::uint32_t i : contiguous_) {
    if (i < inputs.step_size() && inputs[i].defined() && !inputs[i].is_contiguous()) {
      refuse_gaps(function_, text_of_input(i, options_.inputs[i].name), describe(inputs[i]));
    }
  }
  axes.unsafe.reset();
  for (const std::uint32_t i : guarded_) {
    if (!is_unsafe(i, inputs[i].dtype())) continue;
    for (const AxisUse& use : layout_.inputs)
      if (use.tensor == i) axes.unsafe.set(use.axis);
  }
}

AxisChoice AxisPlan::choose(CallAxes& axes) const noexcept {
  AxisChoice strictest;
  for (std::size_t axis = 0; axis < rules_.size(); ++axis) {
    const AxisChoice choice = rules_[axis].choose(axes.actual[axis]);
    axes.padded[axis] = choice.padded;
    if (choice.kind > strictest.kind) strictest = choice;
  }
  if (limits_padding_ && strictest.kind == AxisChoice::Kind::kSize) {
    if (const auto reason = refuses(axes.padded, axes))
      return {AxisChoice::Kind::kSkip, 0, *reason};
  }
  return strictest;
}

std::optional<SkipReason> AxisPlan::refuses(const AxisSizes& sizes,
                                            const CallAxes& axes) const noexcept {
  for (std::size_t axis = 0; axis < rules_.size(); ++axis)
    if (sizes[axis] > axes.actual[axis] && is_unsafe(axes, axis)) return SkipReason::kUnsafePadding;
  if (is_wasteful(sizes, axes)) return SkipReason::kTooMuchPadding;
  return std::nullopt;
}

bool AxisPlan::may_pad_to(const AxisSizes& sizes, const CallAxes& axes) const noexcept {
  for (std::size_t axis = 0; axis < rules_.size(); ++axis) {
    if (sizes[axis] < axes.actual[axis]) return false;
    if (sizes[axis] > axes.actual[axis] && !rules_[axis].pads()) return false;
  }
  return !refuses(sizes, axes);
}

bool AxisPlan::serves(std::span<const std::size_t> axes, std::span<const std::int64_t> point,
                      std::span<const std::int64_t> sizes, double most_waste) const noexcept {
  double waste = 1;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const bool is_unsafe = unsafe_[axes[i]] || is_unsafe_inside(axes[i]);
    if (point[i] < sizes[i] || (point[i] > sizes[i] && is_unsafe)) return false;
    waste *= static_cast<double>(std::max<std::int64_t>(point[i], 1)) /
             static_cast<double>(std::max<std::int64_t>(sizes[i], 1));
  }
  return waste <= most_waste;
}

double AxisPlan::waste_left_for(std::span<const std::size_t> axes) const noexcept {
  double left = options_.max_waste;
  for (std::size_t axis = 0; axis < rules_.size(); ++axis) {
    if (std::ranges::find(axes, axis) != axes.end()) continue;
    const SizeSums sums = size_sums(axis);
    if (sums.padded > 0)
      left *= static_cast<double>(sums.actual) / static_cast<double>(sums.padded);
  }
  return std::max(left, 1.0);
}

double AxisPlan::work(const AxisSizes& sizes) const noexcept {
  double work = 1;
  for (std::size_t axis = 0; axis < rules_.size(); ++axis)
    work *= static_cast<double>(std::max<std::int64_t>(sizes[axis], 1));
  return work;
}

PaddedInput AxisPlan::pad(PaddedTensor& padded, const Tensor& tensor, const AxisSizes& sizes) {
  const std::span<const std::int64_t> actual = tensor.shape().dims();
  std::int64_t list[Shape::kMaxRank];
  std::copy(actual.begin(), actual.end(), list);
  bool is_whole = true;
  for (const AxisUse& use : padded.uses) {
    is_whole = is_whole && list[use.dim] == sizes[use.axis];
    list[use.dim] = sizes[use.axis];
  }
  const std::span<const std::int64_t> dims(list, actual.size());
  const Shape& shape = padded.shapes.get(dims, [&] { return Shape(dims); });
  return {&shape, (is_whole || padded.may_see_rest) && !padded.is_returned && holds(tensor, shape)};
}

// An entry of a buffer may have belonged to an input in the previous call, and the reverse.
void AxisPlan::pad_buffers(InputList inputs, const CallAxes& axes) {
  has_buffers_ = inputs.buffers() > 0;
  std::fill(inputs_.begin(), inputs_.end(), PaddedInput{});
  for (PaddedTensor& padded : padded_outputs_) {
    if (!inputs.has_buffer(padded.tensor)) continue;
    const std::size_t i = inputs.step_size() + padded.tensor;
    if (has_sizes(padded, inputs[i], axes.actual)) inputs_[i] = pad(padded, inputs[i], axes.padded);
  }
}

// A buffer of another rank or size is refused later, when it can be compared with its output.
bool AxisPlan::has_sizes(const PaddedTensor& padded, const Tensor& buffer,
                         const AxisSizes& sizes) const noexcept {
  return std::all_of(padded.uses.begin(), padded.uses.end(), [&](const AxisUse& use) {
    return static_cast<int>(use.dim) < buffer.rank() &&
           buffer.shape().dim(static_cast<int>(use.dim)) == sizes[use.axis];
  });
}

InputList AxisPlan::pad(InputList inputs, const CallAxes& axes) {
  if (layout_.keys > 0) inputs = inputs.with_key(pad_key(inputs.key(), axes.padded));
  if (padded_.empty()) return inputs;
  if (inputs_.size() < inputs.size()) inputs_.resize(inputs.size());
  if (inputs.buffers() > 0 || has_buffers_) [[unlikely]] {
    pad_buffers(inputs, axes);
  }
  for (PaddedTensor& padded : padded_)
    inputs_[padded.tensor] = pad(padded, inputs[padded.tensor], axes.padded);
  return inputs.padded_as(inputs_.data());
}

void AxisPlan::note_returned(std::size_t input) noexcept {
  for (PaddedTensor& padded : padded_)
    padded.is_returned = padded.is_returned || padded.tensor == input;
}

void AxisPlan::note_unsafe_inside(std::size_t axis, std::string why) {
  if (!is_unsafe_inside(axis)) inside_[axis] = std::move(why);
  limits_padding_ = true;
}

void AxisPlan::note(const CallAxes& axes, bool counts, bool is_padded) noexcept {
  if (!guarded_.empty()) unsafe_ = axes.unsafe;
  for (std::size_t axis = 0; axis < rules_.size(); ++axis) {
    rules_[axis].note(axes.actual[axis]);
    if (counts) histograms_[axis].add(axes.actual[axis]);
    if (!learns_ || !counts) continue;
    const AxisSizes& seen = is_padded ? axes.padded : axes.actual;
    learned_sums_[axis].actual += static_cast<std::uint64_t>(axes.actual[axis]);
    learned_sums_[axis].padded += static_cast<std::uint64_t>(seen[axis]);
  }
  if (counts && size() > 1) joint_.add(axes.actual);
}

SizeSums AxisPlan::size_sums(std::size_t axis) const noexcept {
  if (rules_[axis].is_learned()) return {learned_sums_[axis].actual, learned_sums_[axis].padded};
  SizeSums sums;
  histograms_[axis].for_each([&](std::int64_t size, std::uint64_t count) {
    sums.actual += static_cast<std::uint64_t>(size) * count;
    sums.padded += static_cast<std::uint64_t>(rules_[axis].rounded(size)) * count;
  });
  return sums;
}

std::map<Sizes, std::uint64_t> AxisPlan::joint_histogram() const {
  std::map<Sizes, std::uint64_t> counts;
  if (size() == 1) {
    for (const auto& [size, count] : histograms_[0].counts())
      counts[{size}] = count;
  }
  for (const auto& [sizes, count] : joint_.counts())
    counts[{sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(size())}] = count;
  return counts;
}

AxisSizes AxisPlan::admit(const CallAxes& axes) noexcept {
  AxisSizes dropped;
  for (std::size_t axis = 0; axis < rules_.size(); ++axis)
    dropped[axis] = rules_[axis].admit(axes.padded[axis]).value_or(-1);
  return dropped;
}

std::vector<AxisInUse> AxisPlan::in_use(const CallAxes& axes, bool is_graphed) const {
  std::vector<AxisInUse> list;
  for (std::size_t axis = 0; axis < rules_.size(); ++axis)
    list.push_back({rules_[axis].name(), axes.actual[axis], is_graphed ? axes.padded[axis] : 0,
                    rules_[axis].is_of_key()});
  return list;
}

std::string AxisPlan::why_not(SkipReason reason, const CallAxes& axes) const {
  std::string text;
  const bool is_padded =
      reason == SkipReason::kTooMuchPadding || reason == SkipReason::kUnsafePadding;
  for (std::size_t axis = 0; axis < rules_.size(); ++axis) {
    std::string why = is_padded || reason == SkipReason::kNotRecorded
                          ? str_format("{} is {}", rules_[axis].text(), axes.actual[axis])
                          : rules_[axis].why_not(axes.actual[axis]);
    if (is_padded) why += str_format(", padded to {}", axes.padded[axis]);
    if (reason == SkipReason::kUnsafePadding && axes.padded[axis] > axes.actual[axis])
      why += inside_[axis];
    if (!why.empty()) text += (text.empty() ? "" : ", ") + why;
  }
  if (reason == SkipReason::kTooMuchPadding) {
    text += str_format(": {:.3g} times the work, max_waste is {:.3g}",
                       work(axes.padded) / work(axes.actual), options_.max_waste);
  }
  return text;
}

}  // namespace cgtree
