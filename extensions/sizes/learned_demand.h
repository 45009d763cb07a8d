// LearnedDemand: how often calls had each combination of the learned sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "extensions/sizes/precapture.h"
#include "extensions/sizes/size_plan.h"

namespace cgtree {

class CompiledCore;
struct FunctionState;

// A LearnedDemand reads the histograms of a function. Older calls weigh less.
//
// Thread safety: as the context, used by one thread at a time.
class LearnedDemand {
 public:
  // A call 128 calls ago weighs half. Throws InvalidArgument unless one of the axes and
  // integers of the key of the function has AxisPolicy::kLearned.
  explicit LearnedDemand(const CompiledCore& function);

  // Adds the calls since the last time, and returns whether one of them missed: no recording served
  // it, although one of `points` does.
  bool read(std::span<const Sizes> points, const Serves& serves);
  // Excludes a call that the learner made: it is not demand.
  void leave_out(const CallSizes& sizes);

  // The calls that were read.
  std::uint64_t calls() const noexcept { return calls_; }
  // The sizes that calls had, without rare and old ones.
  const Demand& weights() const noexcept { return learned_.weights; }
  // The learned axes, by their positions among all axes.
  const std::vector<std::size_t>& axes() const noexcept { return learned_.axes; }
  // Returns the sizes of an axis that lists none and is not learned, at most 16, most frequent
  // first; empty for another axis.
  Sizes most_frequent(std::size_t axis) const;

  // Returns the learned sizes among the sizes of all axes.
  Sizes point_of(std::span<const std::int64_t> sizes) const;
  Sizes point_of(const CallSizes& sizes) const { return sizes_of(learned_.axes, sizes); }

 private:
  using Counts = std::map<Sizes, std::uint64_t>;

  // The calls by their sizes along some of the axes.
  struct Seen {
    std::vector<std::size_t> axes;
    Counts counted;  // the histogram at the last reading
    Demand weights;
  };

  Sizes sizes_of(const std::vector<std::size_t>& axes, const CallSizes& sizes) const;
  std::uint64_t unserved() const noexcept;
  Counts counts(const std::vector<std::size_t>& axes) const;
  Counts take_new(Seen& seen) const;
  void add(const Counts& more, double left, Seen& seen) const;

  const FunctionState& function_;
  Seen learned_;
  std::vector<Seen> others_;  // one for each axis that lists no sizes and is not learned
  std::uint64_t calls_ = 0;
  std::uint64_t missed_ = 0;  // unserved() at the last reading
};

}  // namespace cgtree
