// AxisPlan: the dynamic axes of one function: reads a call's sizes, chooses those that the step
// function sees, and says how it sees each input. Made at compile(); a call it has seen the like of
// takes no memory.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cgtree/explanation.h"
#include "cgtree/axes/axis_layout.h"
#include "cgtree/axes/axis_rule.h"
#include "cgtree/axes/shape_cache.h"
#include "cgtree/axes/size_histogram.h"
#include "cgtree/input_list.h"

namespace cgtree {

// One size per axis, in the order of AxisLayout::axes.
using AxisSizes = std::array<std::int64_t, kMaxDynamicAxes>;

// Threads: the lane's.
class AxisPlan {
 public:
  // Null for a function without dynamic axes. Throws InvalidArgument.
  // What it is given must outlive it.
  static std::unique_ptr<AxisPlan> of(const std::string& function, const CompileOptions& options);

  explicit AxisPlan(const std::string& function, const CompileOptions& options, AxisLayout layout);

  const AxisLayout& layout() const noexcept { return layout_; }
  std::size_t size() const noexcept { return rules_.size(); }
  const AxisRule& rule(std::size_t axis) const noexcept { return rules_[axis]; }
  // The number of the axis. Throws InvalidArgument.
  std::size_t find(std::string_view name) const;

  // Notes the sizes of a call. Throws InvalidArgument where inputs disagree, lack an axis or hold
  // nothing.
  void read(InputList inputs);
  const AxisSizes& given() const noexcept { return given_; }

  // What is to happen to the call that was read: the strictest of what its axes say; kSize where
  // all have chosen, which seen() then holds.
  AxisChoice choose() noexcept;
  const AxisSizes& seen() const noexcept { return seen_; }
  // Chooses these sizes.
  void choose(const AxisSizes& sizes) noexcept { seen_ = sizes; }
  // Whether a step function that sees `sizes` may serve the call: larger only where it is padded.
  bool may_see(const AxisSizes& sizes) const noexcept;
  // Elements of all axes multiplied: what smallest means among sizes.
  double work(const AxisSizes& sizes) const noexcept;
  bool pads() const noexcept { return !padded_.empty(); }

  // The inputs as seen with the sizes chosen. Valid until the next call of it.
  InputList see(InputList inputs);

  // The call has been made. `counts`: in the histograms.
  void note(bool counts) noexcept;
  // The call was the first with the sizes seen. For each axis the size that must go, or -1.
  AxisSizes admit() noexcept;

  // For explanations: the sizes, and what makes them a reason to skip.
  std::vector<AxisInUse> in_use(bool is_graphed) const;
  std::string why_not(SkipReason reason) const;
  const SizeHistogram& histogram(std::size_t axis) const noexcept { return histograms_[axis]; }

  // What fills input `i` beyond its true sizes.
  const Padding& padding(std::size_t i) const { return options_.inputs[i].padding; }

 private:
  struct PaddedTensor {
    std::uint32_t tensor;  // the number of the input, or of the output
    std::vector<AxisUse> uses;
    bool may_see_rest;  // whatever lies beyond may be seen, and is not written
    ShapeCache shapes;
  };

  [[noreturn]] void refuse_input(InputList inputs, const AxisUse& use) const;
  [[noreturn]] void refuse_sizes(InputList inputs, const AxisUse& use) const;
  std::string use_text(const AxisUse& use) const;
  std::vector<PaddedTensor> padded_among(const std::vector<AxisUse>& all) const;
  SeenInput see(PaddedTensor& padded, const Tensor& tensor);
  void see_buffers(InputList inputs);
  bool fits_uses(const PaddedTensor& padded, const Tensor& buffer) const noexcept;

  const std::string& function_;
  const CompileOptions& options_;
  const AxisLayout layout_;
  std::vector<AxisRule> rules_;
  std::vector<SizeHistogram> histograms_;
  std::vector<PaddedTensor> padded_;
  std::vector<PaddedTensor> padded_outputs_;  // for the buffers of outputs

  AxisSizes given_ = {};
  AxisSizes seen_ = {};
  std::vector<SeenInput> inputs_;  // by input
  bool saw_buffers_ = false;       // inputs_ tells of some
};

}  // namespace cgtree
