// AxisLayout: which tensors of a function have which dynamic axes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cgtree/values/options.h"

namespace cgtree {

inline constexpr std::size_t kMaxDynamicAxes = 8;  // integers of the key included
inline constexpr std::size_t kMostSizes = 65536;   // the largest AxisOptions::max_sizes

// An AxisUse says that dimension `dim` of input or output `tensor` has the size of axis `axis`.
struct AxisUse {
  std::uint32_t tensor = 0;
  std::uint32_t dim = 0;
  std::uint32_t axis = 0;
};

// An AxisLayout holds the checked options of dynamic axes of CompileOptions.
struct AxisLayout {
  std::vector<AxisOptions> axes;  // in the order in which inputs name them, then `keys` of the key
  std::size_t keys = 0;
  std::vector<AxisUse> inputs;   // in the order of the inputs
  std::vector<AxisUse> outputs;  // in the order of the outputs
};

// Returns the sizes of the policy, ascending; none if they are unlimited, or more than kMostSizes.
Sizes sizes_of(const AxisOptions& axis);

// Returns whether the step function may see a larger size than the actual one.
bool pads(const AxisOptions& axis) noexcept;

// Returns the first input that has the axis. Requires: an input has it.
const AxisUse& first_input_with(const AxisLayout& layout, std::uint32_t axis);

// Returns the layout that the options describe. Throws InvalidArgument if they contradict each
// other, with the names and both sides.
AxisLayout layout_of(const std::string& function, const CompileOptions& options);

// Returns "input 2 'mask'".
std::string text_of_input(std::size_t input, const std::string& name);
// Returns "binding 2 'kv_cache'": an input of Steps.
std::string text_of_binding(std::size_t binding, const std::string& name);
// Returns "output 2 'logits'".
std::string text_of_output(std::size_t output, const std::string& name);
// Throws InvalidArgument for an input that require_contiguous forbids.
[[noreturn]] void refuse_gaps(const std::string& function, const std::string& input,
                              const std::string& given);
// Returns "1 input is given" or "2 inputs are given".
std::string text_of_given(std::size_t count, std::string_view one);

}  // namespace cgtree
