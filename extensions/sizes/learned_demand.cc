// Reads the growth of the histograms since the last reading.
#include "extensions/sizes/learned_demand.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "cgtree/compile.h"
#include "cgtree/tree/engine.h"

namespace cgtree {
namespace {

constexpr double kLeastWeight = 1.0 / 64;
constexpr double kHalfLife = 128;  // a call this many calls ago weighs half

}  // namespace

LearnedDemand::LearnedDemand(const CompiledCore& function) : function_(function.state()) {
  const AxisPlan* const plan = function_.axes.get();
  for (std::size_t axis = 0; plan != nullptr && axis < plan->size(); ++axis) {
    const AxisRule& rule = plan->rule(axis);
    if (rule.is_learned()) {
      learned_.axes.push_back(axis);
    } else if (cgtree::sizes_of(rule.options()).empty()) {
      others_.push_back({{axis}, {}, {}});
    }
  }
  if (!learned_.axes.empty()) return;
  throw InvalidArgument(str_format(
      "a learner of '{}', which has no axis and no integer of the key with AxisPolicy::kLearned",
      function.name()));
}

Sizes LearnedDemand::point_of(std::span<const std::int64_t> sizes) const {
  Sizes point;
  for (const std::size_t axis : learned_.axes)
    point.push_back(sizes[axis]);
  return point;
}

Sizes LearnedDemand::sizes_of(const std::vector<std::size_t>& axes, const CallSizes& sizes) const {
  Sizes some;
  for (const std::size_t axis : axes)
    some.push_back(sizes[function_.axes->rule(axis).name()]);
  return some;
}

// Calls with several learned sizes are counted together; combinations of a learned size with those
// of other axes may be too many.
LearnedDemand::Counts LearnedDemand::counts(const std::vector<std::size_t>& axes) const {
  Counts counts;
  if (axes.size() == 1) {
    for (const auto& [size, count] : function_.axes->histogram(axes[0]).counts())
      counts[{size}] = count;
    return counts;
  }
  for (const auto& [sizes, count] : function_.axes->joint_histogram())
    counts[point_of(sizes)] += count;
  return counts;
}

// Returns how many calls no recording served. A call that requires a graph then fails.
std::uint64_t LearnedDemand::unserved() const noexcept {
  std::uint64_t calls = function_.options.require_graph ? function_.counters.failures.get() : 0;
  for (const SkipReason reason :
       {SkipReason::kNotRecorded, SkipReason::kTooMuchPadding, SkipReason::kUnsafePadding})
    calls += function_.counters.skips[static_cast<std::size_t>(reason)];
  return calls;
}

LearnedDemand::Counts LearnedDemand::take_new(Seen& seen) const {
  Counts more = counts(seen.axes);
  for (auto& [sizes, count] : more)
    count -= std::exchange(seen.counted[sizes], count);
  std::erase_if(more, [](const auto& entry) { return entry.second == 0; });
  return more;
}

// `left`: the remaining weight of a call of the last time.
void LearnedDemand::add(const Counts& more, double left, Seen& seen) const {
  for (auto& [sizes, weight] : seen.weights)
    weight *= left;
  std::erase_if(seen.weights, [](const auto& entry) { return entry.second < kLeastWeight; });
  for (const auto& [sizes, count] : more) {
    Sizes recorded;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const AxisRule& rule = function_.axes->rule(seen.axes[i]);
      recorded.push_back(rule.is_learned() ? std::max<std::int64_t>(sizes[i], 1)
                                           : rule.rounded(sizes[i]));
    }
    seen.weights[recorded] += static_cast<double>(count);
  }
}

bool LearnedDemand::read(std::span<const Sizes> points, const Serves& serves) {
  const Counts more = take_new(learned_);
  std::uint64_t calls = 0, above = 0;
  for (const auto& [sizes, count] : more) {
    calls += count;
    const bool is_held = std::ranges::any_of(
        points, [&sizes = sizes, &serves](const Sizes& point) { return serves(point, sizes); });
    if (!is_held) above += count;
  }
  const double left = std::exp2(-static_cast<double>(calls) / kHalfLife);
  add(more, left, learned_);
  for (Seen& other : others_)
    add(take_new(other), left, other);
  calls_ += calls;
  const std::uint64_t missed = unserved();
  return missed - std::exchange(missed_, missed) > above;
}

void LearnedDemand::leave_out(const CallSizes& sizes) {
  ++learned_.counted[sizes_of(learned_.axes, sizes)];
  for (Seen& other : others_)
    ++other.counted[sizes_of(other.axes, sizes)];
}

Sizes LearnedDemand::most_frequent(std::size_t axis) const {
  constexpr std::size_t kMost = 16;
  std::vector<std::pair<double, std::int64_t>> order;
  for (const Seen& other : others_) {
    if (other.axes[0] != axis) continue;
    for (const auto& [sizes, weight] : other.weights)
      order.emplace_back(-weight, sizes[0]);
  }
  std::ranges::sort(order);
  order.resize(std::min(order.size(), kMost));
  Sizes frequent;
  for (const auto& [weight, size] : order)
    frequent.push_back(size);
  return frequent;
}

}  // namespace cgtree
