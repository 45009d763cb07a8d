// Checks the options of dynamic axes.
#include "cgtree/axes/axis_layout.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/format.h"
#include "interop/tensor/shape.h"

namespace cgtree {
namespace {

// Builds one layout; the function's name begins each message.
class Builder {
 public:
  Builder(const std::string& function, const CompileOptions& options)
      : function_(function), options_(options) {}

  AxisLayout build() {
    for (std::size_t i = 0; i < options_.inputs.size(); ++i)
      add_input(i);
    for (const Buckets& buckets : options_.buckets) {
      take({.name = buckets.axis,
            .policy = AxisPolicy::kBuckets,
            .sizes = buckets.sizes,
            .above_largest = buckets.above_largest});
    }
    for (const AxisOptions& axis : options_.axes)
      take(axis);
    for (const AxisOptions& key : options_.keys)
      add_key(key);
    if (!(options_.max_waste >= 1)) {
      refuse("max_waste is {}: at least 1, which is no padding", options_.max_waste);
    }
    for (const AxisUse& use : layout_.inputs)
      check_not_static(use);
    for (std::size_t i = 0; i < options_.outputs.size(); ++i)
      add_output(i);
    return std::move(layout_);
  }

 private:
  template <typename... Arguments>
  [[noreturn]] void refuse(PatternFor<Arguments...> pattern, const Arguments&... arguments) {
    throw InvalidArgument(
        str_format("'{}': {}", function_, str_format<Arguments...>(pattern, arguments...)));
  }

  std::string known_names() const {
    std::string names;
    for (const AxisOptions& axis : layout_.axes)
      names += str_format("{}'{}'", names.empty() ? "" : ", ", axis.name);
    return names.empty() ? "none" : names;
  }

  AxisOptions* find(const std::string& name) {
    const auto found = std::ranges::find(layout_.axes, name, &AxisOptions::name);
    return found == layout_.axes.end() ? nullptr : &*found;
  }

  void check_use(const std::string& tensor, const DynamicAxis& dynamic,
                 const std::vector<AxisUse>& uses, std::size_t i) {
    if (dynamic.name.empty()) refuse("axis {} of {} needs a name", dynamic.axis, tensor);
    if (dynamic.axis < 0 || dynamic.axis >= Shape::kMaxRank) {
      refuse("axis '{}' of {} is number {}; tensors have axes 0 to {}", dynamic.name, tensor,
             dynamic.axis, Shape::kMaxRank - 1);
    }
    for (const AxisUse& use : uses) {
      if (use.tensor != i || use.dim != static_cast<std::uint32_t>(dynamic.axis)) continue;
      refuse("axis {} of {} has two names, '{}' and '{}'", dynamic.axis, tensor,
             layout_.axes[use.axis].name, dynamic.name);
    }
  }

  AxisUse use_of(std::size_t tensor, const DynamicAxis& dynamic, const AxisOptions* axis) const {
    return {static_cast<std::uint32_t>(tensor), static_cast<std::uint32_t>(dynamic.axis),
            static_cast<std::uint32_t>(axis - layout_.axes.data())};
  }

  void check_room(const std::string& name) {
    if (layout_.axes.size() < kMaxDynamicAxes) return;
    refuse("more than {} dynamic axes: {} and '{}'", kMaxDynamicAxes, known_names(), name);
  }

  void add_key(const AxisOptions& options) {
    if (options.name.empty()) refuse("an integer of the key needs a name");
    if (find(options.name) != nullptr) {
      refuse("'{}' of the key has the name of an axis, or options twice", options.name);
    }
    check_room(options.name);
    check(options, str_format("'{}' of the key", options.name), /*least=*/0);
    layout_.axes.push_back(options);
    ++layout_.keys;
  }

  void add_input(std::size_t i) {
    for (const DynamicAxis& dynamic : options_.inputs[i].dynamic) {
      check_use(text_of_input(i, options_.inputs[i].name), dynamic, layout_.inputs, i);
      AxisOptions* axis = find(dynamic.name);
      if (axis == nullptr) {
        check_room(dynamic.name);
        axis = &layout_.axes.emplace_back(AxisOptions{.name = dynamic.name});
      }
      layout_.inputs.push_back(use_of(i, dynamic, axis));
    }
  }

  void add_output(std::size_t i) {
    for (const DynamicAxis& dynamic : options_.outputs[i].dynamic) {
      const std::string output = text_of_output(i, options_.outputs[i].name);
      check_use(output, dynamic, layout_.outputs, i);
      const AxisOptions* axis = find(dynamic.name);
      if (axis == nullptr) {
        refuse("{} names axis '{}', no input does; dynamic axes of the inputs: {}", output,
               dynamic.name, known_names());
      }
      if (axis >= layout_.axes.data() + layout_.axes.size() - layout_.keys) {
        refuse(
            "{} names '{}', which is an integer of the key: outputs are sliced to sizes of inputs; "
            "slice it after the call, or pass a tensor with that axis",
            output, dynamic.name);
      }
      layout_.outputs.push_back(use_of(i, dynamic, axis));
    }
  }

  // Takes the options of an axis that an input has named.
  void take(const AxisOptions& options) {
    AxisOptions* const axis = find(options.name);
    if (axis == nullptr) {
      refuse("options name axis '{}', no input does; dynamic axes of the inputs: {}", options.name,
             known_names());
    }
    if (std::find(taken_.begin(), taken_.end(), options.name) != taken_.end()) {
      refuse("axis '{}' has options twice", options.name);
    }
    taken_.push_back(options.name);
    check(options, str_format("axis '{}'", options.name), /*least=*/1);
    *axis = options;
  }

  // `least`: the smallest size allowed in a list.
  void check(const AxisOptions& options, const std::string& what, std::int64_t least) {
    const bool has_list =
        options.policy == AxisPolicy::kBuckets || options.policy == AxisPolicy::kAllowList;
    if (has_list) {
      check_sizes(options, what, least);
    } else if (!options.sizes.empty()) {
      refuse("{} has a list of sizes, {{{}}}, and a policy that takes none", what,
             joined(options.sizes, ", "));
    }
    check_rounding(options, what);
    if (options.policy != AxisPolicy::kExact && options.max_sizes != SIZE_MAX) {
      refuse("{} has max_sizes = {}, which is of AxisPolicy::kExact", what, options.max_sizes);
    }
    if (options.max_sizes > kMostSizes && options.max_sizes != SIZE_MAX) {
      refuse("{} has max_sizes = {}: at most {}, or leave it out", what, options.max_sizes,
             kMostSizes);
    }
    if (options.max_sizes == 0) {
      refuse("{} has max_sizes = 0: at least 1, or AxisPolicy::kSkip", what);
    }
  }

  void check_rounding(const AxisOptions& options, const std::string& what) {
    const bool is_multiples = options.policy == AxisPolicy::kMultiples;
    if (!is_multiples && options.multiple_of != 1) {
      refuse("{} has multiple_of = {}, which is of AxisPolicy::kMultiples", what,
             options.multiple_of);
    }
    if (is_multiples && (options.multiple_of < 2 || options.multiple_of > INT64_MAX)) {
      refuse("{} has AxisPolicy::kMultiples and multiple_of = {}: from 2 to {}", what,
             options.multiple_of, INT64_MAX);
    }
    if (options.largest == SIZE_MAX) return;
    if (!is_multiples && options.policy != AxisPolicy::kPowersOfTwo) {
      refuse("{} has largest = {}, which is of AxisPolicy::kMultiples and kPowersOfTwo", what,
             options.largest);
    }
    const bool is_one = options.largest > 0 && options.largest <= INT64_MAX &&
                        (is_multiples ? options.largest % options.multiple_of == 0
                                      : std::has_single_bit(options.largest));
    if (is_one) return;
    refuse("{} has largest = {}: give a {}, to which sizes are padded", what, options.largest,
           is_multiples ? str_format("multiple of {}", options.multiple_of) : "power of two");
  }

  void check_sizes(const AxisOptions& axis, const std::string& name, std::int64_t least) {
    const char* const what = axis.policy == AxisPolicy::kBuckets ? "buckets" : "sizes";
    if (axis.sizes.empty()) refuse("{} has an empty list of {}", name, what);
    std::int64_t before = -1;
    const std::string list = str_format("{} has {} {{{}}}", name, what, joined(axis.sizes, ", "));
    for (const std::int64_t size : axis.sizes) {
      if (size < least) refuse("{}: {} is {}", list, size, least > 0 ? "not positive" : "negative");
      if (size == before) refuse("{}: {} is there twice", list, size);
      if (size < before)
        refuse("{}: {} follows {}; list them in ascending order", list, size, before);
      before = size;
    }
  }

  void check_not_static(const AxisUse& use) {
    const InputOptions& input = options_.inputs[use.tensor];
    const AxisOptions& axis = layout_.axes[use.axis];
    if (!input.is_static || !pads(axis)) return;
    refuse(
        "{} is static, and its axis '{}' would be padded: a static input is not copied; give it "
        "the largest size, or do not declare it static",
        text_of_input(use.tensor, input.name), axis.name);
  }

  const std::string& function_;
  const CompileOptions& options_;
  AxisLayout layout_;
  std::vector<std::string> taken_;
};

std::string text_of(const char* kind, std::size_t number, const std::string& name) {
  return name.empty() ? str_format("{} {}", kind, number)
                      : str_format("{} {} '{}'", kind, number, name);
}

}  // namespace

Sizes sizes_of(const AxisOptions& axis) {
  if (axis.policy < AxisPolicy::kMultiples || axis.largest == SIZE_MAX) return axis.sizes;
  Sizes sizes;
  const bool is_multiples = axis.policy == AxisPolicy::kMultiples;
  if (is_multiples && axis.largest / axis.multiple_of > kMostSizes) return sizes;
  for (std::size_t size = is_multiples ? axis.multiple_of : 1; size <= axis.largest;
       size = is_multiples ? size + axis.multiple_of : size * 2)
    sizes.push_back(static_cast<std::int64_t>(size));
  return sizes;
}

bool pads(const AxisOptions& axis) noexcept {
  return axis.policy >= AxisPolicy::kBuckets ||
         (axis.max_sizes != SIZE_MAX && axis.at_max_sizes == AtMaxSizes::kNextLarger);
}

const AxisUse& first_input_with(const AxisLayout& layout, std::uint32_t axis) {
  return *std::find_if(layout.inputs.begin(), layout.inputs.end(),
                       [&](const AxisUse& use) { return use.axis == axis; });
}

AxisLayout layout_of(const std::string& function, const CompileOptions& options) {
  return Builder(function, options).build();
}

std::string text_of_input(std::size_t input, const std::string& name) {
  return text_of("input", input, name);
}

std::string text_of_binding(std::size_t binding, const std::string& name) {
  return text_of("binding", binding, name);
}

std::string text_of_output(std::size_t output, const std::string& name) {
  return text_of("output", output, name);
}

void refuse_gaps(const std::string& function, const std::string& input, const std::string& given) {
  throw InvalidArgument(
      str_format("{} of '{}' is {}, which is not contiguous, and require_contiguous is set: pass "
                 "a dense copy, made with copy_elements() of interop/tensor/copy.h",
                 input, function, given));
}

std::string text_of_given(std::size_t count, std::string_view one) {
  return str_format("{} {}{} given", count, one, count == 1 ? " is" : "s are");
}

}  // namespace cgtree
