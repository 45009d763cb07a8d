// LearnedDemand: how often calls have had each combination of the sizes that are learned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "extensions/sizes/precapture.h"
#include "extensions/sizes/size_plan.h"

namespace cgtree {

class CompiledCore;
struct FunctionState;
struct SizesCount;

// A LearnedDemand reads the histograms of a function. Older calls weigh less.
//
// Thread safety: as the context, used by one thread at a time.
class LearnedDemand {
 public:
  // How often calls had these sizes.
  using Weights = std::map<SizePoint, double>;

  // A call 128 calls ago weighs half. Throws InvalidArgument unless one of the axes and
  // integers of the key of the function has AxisPolicy::kLearned.
  explicit LearnedDemand(const CompiledCore& function);

  // Adds the calls since the last time, and returns whether one of them has missed: no recording
  // has served it, although one of `points` does.
  bool read(std::span<const SizePoint> points, const Serves& serves);
  // Leaves a call out that the learner has made: it is no demand.
  void leave_out(const CallSizes& sizes);

  // The calls that were read.
  std::uint64_t calls() const noexcept { return calls_; }
  // What they had, without sizes that were seldom and long ago.
  const Weights& weights() const noexcept { return weights_; }
  // The axes that are learned, by their positions among all of them.
  const std::vector<std::size_t>& axes() const noexcept { return axes_; }
  // Returns the sizes of an axis that lists none and is not learned, at most 16, most frequent
  // first; or nothing for another axis.
  std::optional<std::vector<std::int64_t>> most_frequent(std::size_t axis) const;

  // Returns the sizes that are learned, of the sizes of all axes.
  SizePoint point_of(std::span<const std::int64_t> sizes) const;
  SizePoint point_of(const CallSizes& sizes) const;

 private:
  // An axis that lists no sizes and is not learned.
  struct Other {
    std::map<std::int64_t, std::uint64_t> counted;
    std::map<std::int64_t, double> weights;
  };

  const std::string& name_of(std::size_t axis) const;
  std::uint64_t unserved() const noexcept;
  std::vector<std::pair<SizePoint, std::uint64_t>> counts() const;

  const FunctionState& function_;
  std::vector<std::size_t> axes_;
  std::map<std::size_t, Other> others_;
  std::map<SizePoint, std::uint64_t> counted_;  // as the histogram was when it was read last
  Weights weights_;
  std::uint64_t calls_ = 0;
  std::uint64_t missed_ = 0;  // as unserved() was when last looked at
};

}  // namespace cgtree
