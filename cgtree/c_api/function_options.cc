// Axes say in C where they are; in C++ inputs and outputs say which axes they have.
#include "cgtree/c_api/function_options.h"

#include <fmt/format.h>

#include <cstddef>
#include <span>

#include "cgtree/c_api/options.h"
#include "cgtree/c_api/sized_struct.h"
#include "cgtree/c_api/status.h"

namespace cgtree::capi {

template <>
inline constexpr std::size_t kFirstSize<cgt_input_options> = offsetof(cgt_input_options, padding);
template <>
inline constexpr std::size_t kFirstSize<cgt_function_options> = offsetof(cgt_function_options,
                                                                         axes);

namespace {

static_assert(CGT_PAD_VALUE == static_cast<int>(Padding::Kind::kValue) &&
              CGT_PAD_LAST == static_cast<int>(Padding::Kind::kLast));
static_assert(CGT_AXIS_ALLOW_LIST == static_cast<int>(AxisPolicy::kAllowList) &&
              CGT_AXIS_SKIP == static_cast<int>(AxisPolicy::kSkip));
static_assert(CGT_MAX_SIZES_NEXT_LARGER == static_cast<int>(AtMaxSizes::kNextLarger));
static_assert(CGT_MISSING_NEXT_LARGER == static_cast<int>(WhileMissing::kNextLarger));
static_assert(CGT_MUTATED_SKIP == static_cast<int>(OnMutatedInput::kSkip) &&
              CGT_MUTATED_SKIP_MANAGED_TOO == static_cast<int>(OnMutatedInput::kSkipManagedToo));
static_assert(CGT_STATIC_CHANGE_DEMOTE == static_cast<int>(OnStaticChange::kDemote));

// What an index that is nonsense must not make us allocate.
constexpr std::size_t kMostInputs = 1u << 16;

Padding padding_of_c(const cgt_input_options& input) {
  Padding padding;
  padding.kind =
      choice_of_c(input.padding, Padding::Kind::kAnything, "CGT_PAD_ANYTHING", "padding");
  if (padding.kind == Padding::Kind::kValue) padding.value = input.padding_value;
  return padding;
}

void read_inputs(const cgt_function_options& given, std::vector<InputOptions>& inputs) {
  constexpr std::string_view kWhat = "cgt_input_options";
  for_each_struct(given.inputs, given.input_count, kWhat, [&](const cgt_input_options& input) {
    check_flags(input.flags, CGT_INPUT_STATIC | CGT_INPUT_MUTATED, kWhat);
    InputOptions& made = inputs.emplace_back();
    if (input.name != nullptr) made.name = input.name;
    if (input.alignment != 0) made.alignment = input.alignment;
    made.is_static = (input.flags & CGT_INPUT_STATIC) != 0;
    made.is_mutated = (input.flags & CGT_INPUT_MUTATED) != 0;
    made.padding = padding_of_c(input);
  });
}

void read_output_names(const cgt_function_options& given, std::size_t count,
                       std::vector<OutputOptions>& outputs) {
  if (given.output_names == nullptr) return;
  for (std::size_t i = 0; i < count; ++i) {
    OutputOptions& made = outputs.emplace_back();
    if (given.output_names[i] != nullptr) made.name = given.output_names[i];
  }
}

// `what`: "input", "output"; `most`: how many there can be.
template <typename Options>
void read_uses(const std::string& axis, std::string_view what, std::span<const cgt_axis_use> uses,
               std::size_t most, std::vector<Options>& options) {
  for (const cgt_axis_use& use : uses) {
    if (use.tensor >= most) {
      throw InvalidArgument(fmt::format("axis '{}' is one of {} {}: expected less than {}", axis,
                                        what, use.tensor, most));
    }
    if (options.size() <= use.tensor) options.resize(use.tensor + std::size_t{1});
    options[use.tensor].dynamic.push_back({use.axis, axis});
  }
}

template <typename T>
std::span<const T> array_of_c(const T* array, std::size_t count, std::string_view what) {
  if (count > 0) required(array, what);
  return {array, count};
}

AxisOptions axis_of_c(const cgt_axis_options& given) {
  AxisOptions axis{.name = &required(given.name, "cgt_axis_options::name")};
  axis.policy = choice_of_c(given.policy, AxisPolicy::kBuckets, "CGT_AXIS_BUCKETS", "policy");
  const auto sizes = array_of_c(given.sizes, given.size_count, "cgt_axis_options::sizes");
  axis.sizes.assign(sizes.begin(), sizes.end());
  if (given.max_sizes != 0) axis.max_sizes = given.max_sizes;
  axis.at_max_sizes =
      choice_of_c(given.at_max_sizes, AtMaxSizes::kEvict, "CGT_MAX_SIZES_EVICT", "at_max_sizes");
  axis.above_largest = choice_of_c(given.above_largest, AboveLargest::kThrow,
                                   "CGT_ABOVE_LARGEST_REFUSE", "above_largest");
  return axis;
}

void read_axes(const cgt_function_options& given, std::size_t outputs, CompileOptions& options) {
  for_each_struct(
      given.axes, given.axis_count, "cgt_axis_options", [&](const cgt_axis_options& each) {
        const AxisOptions& axis = options.axes.emplace_back(axis_of_c(each));
        read_uses(axis.name, "input",
                  array_of_c(each.inputs, each.input_count, "cgt_axis_options::inputs"),
                  kMostInputs, options.inputs);
        read_uses(axis.name, "output",
                  array_of_c(each.outputs, each.output_count, "cgt_axis_options::outputs"), outputs,
                  options.outputs);
      });
}

void read_choices(const cgt_function_options& given, CompileOptions& options) {
  options.at_limit = at_limit_of_c(given.at_limit);
  options.while_missing = choice_of_c(given.while_missing, WhileMissing::kRunEagerly,
                                      "CGT_MISSING_RUN_EAGERLY", "while_missing");
  options.on_mutated_input = choice_of_c(given.on_mutated_input, OnMutatedInput::kReject,
                                         "CGT_MUTATED_REFUSE", "on_mutated_input");
  options.on_static_change = choice_of_c(given.on_static_change, OnStaticChange::kThrow,
                                         "CGT_STATIC_CHANGE_REFUSE", "on_static_change");
}

}  // namespace

FunctionOptions function_options(const cgt_function_options* given, std::size_t outputs) {
  constexpr std::string_view kWhat = "cgt_function_options";
  const cgt_function_options read = read_struct(given, kWhat);
  check_flags(read.flags, CGT_FUNCTION_EAGER | CGT_FUNCTION_REQUIRE_GRAPH | CGT_FUNCTION_PINNED,
              kWhat);
  FunctionOptions made;
  CompileOptions& options = made.compile;
  read_inputs(read, options.inputs);
  read_output_names(read, outputs, options.outputs);
  read_axes(read, outputs, options);
  read_choices(read, options);
  for (const AxisOptions& axis : options.axes)
    made.axes.push_back(axis.name);
  options.enabled = (read.flags & CGT_FUNCTION_EAGER) == 0;
  options.require_graph = (read.flags & CGT_FUNCTION_REQUIRE_GRAPH) != 0;
  options.is_pinned = (read.flags & CGT_FUNCTION_PINNED) != 0;
  options.min_graph_nodes = read.min_graph_nodes;
  if (read.max_static_changes != 0) options.max_static_changes = read.max_static_changes;
  if (read.max_recordings != 0) options.max_recordings = read.max_recordings;
  return made;
}

}  // namespace cgtree::capi
