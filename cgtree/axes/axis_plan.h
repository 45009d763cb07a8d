// AxisPlan: the dynamic axes of one function: reads a call's sizes, chooses the sizes that the step
// function sees, and says how it sees each input.
//
// An example. A function has buckets {4, 8} for axis "n" of input 0 and of output 0, and is called
// with a tensor of 3 rows:
//
//   read()    actual = {3}             the sizes in the call
//   choose()  padded = {4}             the AxisRule of "n" picks the bucket
//   pad()     input 0 is {4, ...}      from here on the call is about its padded inputs: the key,
//                                      the recording and fits() know nothing of 3
//   replay    the root node copies 3 rows to the recorded {4, ...} and writes the padding behind
//             them; the sizes are kernel arguments, so that a call with 2 rows patches the same
//             node
//   outputs   are recorded as {4, ...} and handed out as slices of 3 rows
//
// If the tensor's own storage holds 4 rows and the padding may be anything, nothing is copied: the
// step function sees the input in place.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cgtree/axes/axis_layout.h"
#include "cgtree/axes/axis_rule.h"
#include "cgtree/axes/shape_cache.h"
#include "cgtree/axes/size_histogram.h"
#include "cgtree/explanation.h"
#include "cgtree/input_list.h"

namespace cgtree {

// One size per axis, in the order of AxisLayout::axes.
using AxisSizes = std::array<std::int64_t, kMaxDynamicAxes>;

// The sizes of the dynamic axes of one call.
struct CallAxes {
  AxisSizes actual = {};
  AxisSizes padded = {};  // what the step function sees
};

// An AxisPlan is made by compile(). It holds what calls have taught it (sizes, shapes), never a
// call. A call whose sizes it knows does not allocate.
// Thread safety: used by the thread that is inside the context.
class AxisPlan {
 public:
  // Returns null for a function without dynamic axes. The arguments must outlive the plan.
  // Throws InvalidArgument if the options contradict each other.
  static std::unique_ptr<AxisPlan> of(const std::string& function, const CompileOptions& options);

  explicit AxisPlan(const std::string& function, const CompileOptions& options, AxisLayout layout);

  const AxisLayout& layout() const noexcept { return layout_; }
  std::size_t size() const noexcept { return rules_.size(); }
  const AxisRule& rule(std::size_t axis) const noexcept { return rules_[axis]; }
  // Returns the number of the axis. Throws InvalidArgument if there is none of that name.
  std::size_t find(std::string_view name) const;

  // Sets axes.actual to the sizes in a call. Throws InvalidArgument if inputs disagree, lack an
  // axis or are null.
  void read(InputList inputs, CallAxes& axes) const;
  // Sets axes.padded for axes.actual, and returns the strictest choice of all axes. axes.padded is
  // meaningful only if that is kSize.
  AxisChoice choose(CallAxes& axes) const noexcept;
  // Returns whether a step function that sees `sizes` may serve the call: larger only where it is
  // padded.
  bool may_pad_to(const AxisSizes& sizes, const CallAxes& axes) const noexcept;
  // Returns the product of the sizes, by which one set of sizes is smaller than another.
  double work(const AxisSizes& sizes) const noexcept;

  // Returns the inputs with the shapes that axes.padded gives them, valid until the next call.
  InputList pad(InputList inputs, const CallAxes& axes);

  // Notes a call that has been made. `counts`: the histograms include it.
  void note(const CallAxes& axes, bool counts) noexcept;
  // Notes that axes.padded was warmed up. Returns for each axis the size that must be dropped for
  // it, or -1.
  AxisSizes admit(const CallAxes& axes) noexcept;

  // Returns the sizes, and what makes them a reason to skip, for explanations.
  std::vector<AxisInUse> in_use(const CallAxes& axes, bool is_graphed) const;
  std::string why_not(SkipReason reason, const CallAxes& axes) const;
  const SizeHistogram& histogram(std::size_t axis) const noexcept { return histograms_[axis]; }

  // What fills input `i` beyond its actual sizes.
  const Padding& padding(std::size_t i) const { return options_.inputs[i].padding; }

 private:
  struct PaddedTensor {
    std::uint32_t tensor;  // the number of the input, or of the output
    std::vector<AxisUse> uses;
    bool may_see_rest;  // the step function may see what lies behind the input, and leaves it alone
    ShapeCache shapes;
  };

  [[noreturn]] void refuse_input(InputList inputs, const AxisUse& use) const;
  [[noreturn]] void refuse_sizes(InputList inputs, const AxisUse& use) const;
  std::string use_text(const AxisUse& use) const;
  std::vector<PaddedTensor> padded_among(const std::vector<AxisUse>& all) const;
  PaddedInput pad(PaddedTensor& padded, const Tensor& tensor, const AxisSizes& sizes);
  void pad_buffers(InputList inputs, const CallAxes& axes);
  bool has_sizes(const PaddedTensor& padded, const Tensor& buffer,
                 const AxisSizes& sizes) const noexcept;

  const std::string& function_;
  const CompileOptions& options_;
  const AxisLayout layout_;
  std::vector<AxisRule> rules_;
  std::vector<SizeHistogram> histograms_;
  std::vector<PaddedTensor> padded_;
  std::vector<PaddedTensor> padded_outputs_;  // for the buffers of outputs

  std::vector<PaddedInput> inputs_;  // what pad() has returned, by input
  bool has_buffers_ = false;         // inputs_ describes buffers too
};

}  // namespace cgtree
