// AxisPlan: the dynamic axes of one function: reads a call's sizes, chooses the sizes and shapes
// that the step function sees. ShapeCache: keeps these shapes.
//
// An example: a function has buckets {4, 8} for axis "n" of input 0 and of output 0, and is called
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
// step function sees the input in place. An input of which it returns a view is always copied: the
// output is then the copy, so that its kind does not depend on the sizes.
//
// An integer of the key with options is an axis that no input has: read() takes its size from the
// key, and pad() writes the padded size to the key.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/published.h"
#include "cgtree/axes/axis_layout.h"
#include "cgtree/axes/axis_rule.h"
#include "cgtree/values/explanation.h"
#include "cgtree/values/input_list.h"
#include "cgtree/values/key.h"
#include "interop/tensor/shape.h"

namespace cgtree {

// One size per axis, in the order of AxisLayout::axes.
using AxisSizes = std::array<std::int64_t, kMaxDynamicAxes>;

// The sizes of the dynamic axes of one call, and the integers of its key.
struct CallAxes {
  AxisSizes actual = {};
  AxisSizes padded = {};  // the sizes that the step function sees
  // By axis: it must not be padded, for SkipReason::kUnsafePadding. Set by plans that guard inputs.
  std::bitset<kMaxDynamicAxes> unsafe = {};
};

// A ShapeCache is set-associative: a set has eight entries, and the oldest is replaced. It is
// therefore bounded, and a loop over as many sizes as it was made for finds each of them. All
// shapes of a cache have the same strides, or all are row-major.
class ShapeCache {
 public:
  ShapeCache() = default;
  explicit ShapeCache(std::int64_t shapes)
      : sets_(std::bit_ceil(
            static_cast<std::size_t>(std::clamp<std::int64_t>(shapes / (kWays / 2), 1, kMaxSets)))),
        entries_(sets_ * kWays),
        next_(sets_, 0) {}

  // Returns the shape of these dims, made by make() if the cache lacks it. The reference is valid
  // until the next call. Throws the exceptions of make().
  template <typename Make>
  const Shape& get(std::span<const std::int64_t> dims, Make&& make) {
    const std::size_t set = hash_of_sizes(dims) >> (64 - std::countr_zero(sets_) - 1) >> 1;
    Shape* const entries = entries_.data() + set * kWays;
    for (std::size_t i = 0; i < kWays; ++i) {
      const std::span<const std::int64_t> known = entries[i].dims();
      if (known.size() == dims.size() &&
          std::equal(known.data(), known.data() + known.size(), dims.data())) {
        return entries[i];
      }
    }
    Shape& entry = entries[next_[set]];
    entry = make();
    next_[set] = static_cast<std::uint8_t>((next_[set] + 1) % kWays);
    return entry;
  }

 private:
  static constexpr std::size_t kWays = 8;
  static constexpr std::int64_t kMaxSets = 128;

  std::size_t sets_ = 1;
  std::vector<Shape> entries_ = std::vector<Shape>(kWays);  // set by set
  std::vector<std::uint8_t> next_ = {0};                    // by set: the entry to fill next
};

// An AxisPlan is made by compile(). It keeps facts from calls (sizes, shapes), never a call. A call
// with known sizes does not allocate.
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
  // Returns whether one of the axes is learned: calls then record nothing.
  bool learns() const noexcept { return learns_; }
  // Replaces the sizes of an axis that is learned: ascending.
  void set_sizes(std::size_t axis, Sizes sizes) noexcept {
    rules_[axis].set_sizes(std::move(sizes));
  }
  // Returns the number of the axis. Throws InvalidArgument if no axis has that name.
  std::size_t find(std::string_view name) const;

  // Sets axes.actual to the sizes in a call. Throws InvalidArgument if inputs disagree, lack an
  // axis or are null; if an integer of the key is missing, a string or negative; and if an input
  // has gaps that InputOptions::require_contiguous forbids.
  void read(InputList inputs, CallAxes& axes) const;
  // Sets axes.padded for axes.actual, and returns the strictest choice of all axes. axes.padded is
  // valid only if that is kSize.
  AxisChoice choose(CallAxes& axes) const noexcept;
  // Returns whether a step function that sees `sizes` may serve the call: larger only along padded
  // axes, and not too large.
  bool may_pad_to(const AxisSizes& sizes, const CallAxes& axes) const noexcept;
  // Returns whether a recording of `point` serves calls of `sizes`, one for each of `axes`: as
  // choose() and may_pad_to() decide, with `most_waste` instead of max_waste.
  bool serves(std::span<const std::size_t> axes, std::span<const std::int64_t> point,
              std::span<const std::int64_t> sizes, double most_waste) const noexcept;
  // Returns the part of max_waste left for `axes` if the others are padded as on average. At least
  // 1.
  double waste_left_for(std::span<const std::size_t> axes) const noexcept;
  // Returns the product of the sizes, which orders sets of sizes.
  double work(const AxisSizes& sizes) const noexcept;

  // Returns the inputs with the shapes and the key of axes.padded, valid until the next call.
  // Requires: the actual inputs. Throws InvalidArgument if the key becomes too long.
  InputList pad(InputList inputs, const CallAxes& axes);

  // Notes that the step function returns views of an input.
  void note_returned(std::size_t input) noexcept;
  // Notes a call. `counts`: the histograms include it. `is_padded`: it ran with axes.padded, and
  // not eagerly.
  void note(const CallAxes& axes, bool counts, bool is_padded = true) noexcept;
  // Notes that axes.padded was warmed up. Returns for each axis the size that must be dropped in
  // exchange, or -1.
  AxisSizes admit(const CallAxes& axes) noexcept;

  // Returns the sizes, and the reason that they cause a skip, for explanations.
  std::vector<AxisInUse> in_use(const CallAxes& axes, bool is_graphed) const;
  std::string why_not(SkipReason reason, const CallAxes& axes) const;
  const Histogram<std::int64_t>& histogram(std::size_t axis) const noexcept {
    return histograms_[axis];
  }
  // Returns the sums over the histogram; for a learned axis, whose sizes change, the sums over
  // calls as they were padded. Any thread; does not allocate.
  SizeSums size_sums(std::size_t axis) const noexcept;
  // Returns how often each combination of sizes occurred.
  std::map<Sizes, std::uint64_t> joint_histogram() const;

  // Returns whether the step function may see a larger input `i` than the actual one.
  bool pads(std::size_t i) const noexcept {
    return std::any_of(padded_.begin(), padded_.end(),
                       [&](const PaddedTensor& one) { return one.tensor == i; });
  }
  // The values of input `i` beyond its actual sizes.
  const Padding& padding(std::size_t i) const { return options_.inputs[i].padding; }
  // Returns whether zeros must not pad input `i`, if it is of this type: the caller did not choose
  // them, and the function writes another input.
  bool is_unsafe(std::size_t i, DType dtype) const noexcept;
  // Returns whether the call is not padded along the axis for this reason.
  bool is_unsafe(const CallAxes& axes, std::size_t axis) const noexcept {
    return is_unsafe_inside(axis) || (!guarded_.empty() && axes.unsafe[axis]);
  }
  // Notes that the step calls a function for which zeros along the axis are unsafe: later calls are
  // not padded along it. `why`: that function and its input, for why_not().
  void note_unsafe_inside(std::size_t axis, std::string why);
  bool is_unsafe_inside(std::size_t axis) const noexcept { return !inside_[axis].empty(); }

 private:
  struct PaddedTensor {
    std::uint32_t tensor;  // the number of the input, or of the output
    std::vector<AxisUse> uses;
    bool may_see_rest;  // the step function leaves memory after the input alone
    ShapeCache shapes;
    bool is_returned = false;  // the step function returns views of it
  };

  void read_key(std::string_view key, CallAxes& axes) const;
  [[noreturn]] void refuse_key(std::string_view key, const std::string& name,
                               std::string_view what) const;
  std::string_view pad_key(std::string_view key, const AxisSizes& sizes);
  // Returns the index of the key integer of this name among the axes, or size().
  std::size_t find_key(std::string_view name) const noexcept;
  bool is_wasteful(const AxisSizes& sizes, const CallAxes& axes) const noexcept {
    return options_.max_waste < std::numeric_limits<double>::infinity() &&
           work(sizes) > options_.max_waste * work(axes.actual);
  }
  // Returns the reason that the call must not be padded to the sizes, if any.
  std::optional<SkipReason> refuses(const AxisSizes& sizes, const CallAxes& axes) const noexcept;
  [[noreturn]] void refuse_input(InputList inputs, const AxisUse& use) const;
  [[noreturn]] void refuse_sizes(InputList inputs, const AxisUse& use) const;
  void read_more(InputList inputs, CallAxes& axes) const;
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
  bool learns_ = false;
  std::vector<Histogram<std::int64_t>> histograms_;
  struct Sums {
    Published<std::uint64_t> actual, padded;
  };
  std::vector<Sums> learned_sums_;         // by axis; valid if it is learned
  Histogram<AxisSizes> joint_;             // if there are several axes
  std::vector<std::uint32_t> contiguous_;  // the inputs with require_contiguous
  std::vector<std::uint32_t> guarded_;     // the inputs for which is_unsafe() may be true
  std::bitset<kMaxDynamicAxes> unsafe_;    // of the last call
  std::vector<std::string> inside_;        // by axis: the reason that it is unsafe inside, or ""
  bool has_more_to_read_ = false;          // more than the sizes of inputs
  bool limits_padding_ = false;            // refuses() may return a reason
  std::vector<PaddedTensor> padded_;
  std::vector<PaddedTensor> padded_outputs_;  // for the buffers of outputs

  std::vector<PaddedInput> inputs_;  // the result of pad(), by input
  bool has_buffers_ = false;         // inputs_ describes buffers too
  Key padded_key_;                   // the result of pad()
};

}  // namespace cgtree
