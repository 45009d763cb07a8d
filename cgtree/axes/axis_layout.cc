// Checks what options say about dynamic axes.
#include "cgtree/axes/axis_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
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
    for (const AxisUse& use : layout_.inputs)
      check_not_static(use);
    for (std::size_t i = 0; i < options_.outputs.size(); ++i)
      add_output(i);
    return std::move(layout_);
  }

 private:
  template <typename... Arguments>
  [[noreturn]] void refuse(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    throw InvalidArgument(fmt::format("'{}': {}", function_,
                                      fmt::vformat(format, fmt::make_format_args(arguments...))));
  }

  std::string known_names() const {
    std::string names;
    for (const AxisOptions& axis : layout_.axes)
      names += fmt::format("{}'{}'", names.empty() ? "" : ", ", axis.name);
    return names.empty() ? "none" : names;
  }

  AxisOptions* find(const std::string& name) {
    const auto found = std::find_if(layout_.axes.begin(), layout_.axes.end(),
                                    [&](const AxisOptions& axis) { return axis.name == name; });
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

  void add_input(std::size_t i) {
    for (const DynamicAxis& dynamic : options_.inputs[i].dynamic) {
      check_use(text_of_input(i, options_.inputs[i].name), dynamic, layout_.inputs, i);
      AxisOptions* axis = find(dynamic.name);
      if (axis == nullptr) {
        if (layout_.axes.size() == kMaxDynamicAxes) {
          refuse("more than {} dynamic axes: {} and '{}'", kMaxDynamicAxes, known_names(),
                 dynamic.name);
        }
        axis = &layout_.axes.emplace_back(AxisOptions{.name = dynamic.name});
      }
      layout_.inputs.push_back({static_cast<std::uint32_t>(i),
                                static_cast<std::uint32_t>(dynamic.axis),
                                static_cast<std::uint32_t>(axis - layout_.axes.data())});
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
      layout_.outputs.push_back({static_cast<std::uint32_t>(i),
                                 static_cast<std::uint32_t>(dynamic.axis),
                                 static_cast<std::uint32_t>(axis - layout_.axes.data())});
    }
  }

  // The options of an axis that an input has named.
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
    const bool has_list =
        options.policy == AxisPolicy::kBuckets || options.policy == AxisPolicy::kAllowList;
    if (has_list) {
      check_sizes(options);
    } else if (!options.sizes.empty()) {
      refuse("axis '{}' has a list of sizes, {{{}}}, and a policy that takes none", options.name,
             fmt::join(options.sizes, ", "));
    }
    if (options.policy != AxisPolicy::kExact && options.max_sizes != SIZE_MAX) {
      refuse("axis '{}' has max_sizes = {}, which is of AxisPolicy::kExact", options.name,
             options.max_sizes);
    }
    if (options.max_sizes > kMostSizes && options.max_sizes != SIZE_MAX) {
      refuse("axis '{}' has max_sizes = {}: at most {}, or leave it out", options.name,
             options.max_sizes, kMostSizes);
    }
    if (options.max_sizes == 0) {
      refuse("axis '{}' has max_sizes = 0: at least 1, or AxisPolicy::kSkip", options.name);
    }
    *axis = options;
  }

  void check_sizes(const AxisOptions& axis) {
    const char* const what = axis.policy == AxisPolicy::kBuckets ? "buckets" : "sizes";
    if (axis.sizes.empty()) refuse("axis '{}' has an empty list of {}", axis.name, what);
    std::int64_t before = 0;
    for (const std::int64_t size : axis.sizes) {
      if (size <= 0) {
        refuse("axis '{}' has {} {{{}}}: {} is not positive", axis.name, what,
               fmt::join(axis.sizes, ", "), size);
      }
      if (size == before) {
        refuse("axis '{}' has {} {{{}}}: {} is there twice", axis.name, what,
               fmt::join(axis.sizes, ", "), size);
      }
      if (size < before) {
        refuse("axis '{}' has {} {{{}}}: {} follows {}; list them in ascending order", axis.name,
               what, fmt::join(axis.sizes, ", "), size, before);
      }
      before = size;
    }
  }

  void check_not_static(const AxisUse& use) {
    const InputOptions& input = options_.inputs[use.tensor];
    const AxisOptions& axis = layout_.axes[use.axis];
    const bool pads = axis.policy == AxisPolicy::kBuckets ||
                      (axis.max_sizes != SIZE_MAX && axis.at_max_sizes == AtMaxSizes::kNextLarger);
    if (!input.is_static || !pads) return;
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
  return name.empty() ? fmt::format("{} {}", kind, number)
                      : fmt::format("{} {} '{}'", kind, number, name);
}

}  // namespace

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

std::string text_of_output(std::size_t output, const std::string& name) {
  return text_of("output", output, name);
}

}  // namespace cgtree
