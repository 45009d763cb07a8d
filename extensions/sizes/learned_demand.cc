// Reads what the histograms have more than when they were read last.
#include "extensions/sizes/learned_demand.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "cgtree/compile.h"
#include "cgtree/tree/engine.h"

namespace cgtree {
namespace {

constexpr double kLeastWeight = 1.0 / 64;
constexpr double kHalfLife = 128;  // a call so many calls ago weighs half

}  // namespace

LearnedDemand::LearnedDemand(const CompiledCore& function) : function_(function.state()) {
  const AxisPlan* const plan = function_.axes.get();
  for (std::size_t axis = 0; plan != nullptr && axis < plan->size(); ++axis) {
    const AxisRule& rule = plan->rule(axis);
    if (rule.is_learned()) {
      axes_.push_back(axis);
    } else if (sizes_of(rule.options()).empty()) {
      others_[axis] = {};
    }
  }
  if (!axes_.empty()) return;
  throw InvalidArgument(fmt::format(
      "a learner of '{}', which has no axis and no integer of the key with AxisPolicy::kLearned",
      function.name()));
}

SizePoint LearnedDemand::point_of(std::span<const std::int64_t> sizes) const {
  SizePoint point;
  for (const std::size_t axis : axes_)
    point.push_back(sizes[axis]);
  return point;
}

SizePoint LearnedDemand::point_of(const CallSizes& sizes) const {
  SizePoint point;
  for (const std::size_t axis : axes_)
    point.push_back(sizes[name_of(axis)]);
  return point;
}

const std::string& LearnedDemand::name_of(std::size_t axis) const {
  return function_.axes->rule(axis).name();
}

// Calls with several sizes that are learned are counted together; there may be too many
// combinations of a learned size with those of other axes.
std::vector<std::pair<SizePoint, std::uint64_t>> LearnedDemand::counts() const {
  std::vector<std::pair<SizePoint, std::uint64_t>> counts;
  if (axes_.size() == 1) {
    for (const SizeCount& count : function_.axes->histogram(axes_[0]).counts())
      counts.emplace_back(SizePoint{count.size}, count.count);
    return counts;
  }
  for (const SizesCount& count : function_.axes->joint_histogram())
    counts.emplace_back(point_of(count.sizes), count.count);
  return counts;
}

// Returns how many calls no recording has served. A call that requires a graph fails then.
std::uint64_t LearnedDemand::unserved() const noexcept {
  std::uint64_t calls = function_.options.require_graph ? function_.counters.failures.get() : 0;
  for (const SkipReason reason :
       {SkipReason::kNotRecorded, SkipReason::kTooMuchPadding, SkipReason::kUnsafePadding})
    calls += function_.counters.skips[static_cast<std::size_t>(reason)];
  return calls;
}

bool LearnedDemand::read(std::span<const SizePoint> points, const Serves& serves) {
  std::map<SizePoint, std::uint64_t> now;
  for (const auto& [sizes, count] : counts())
    now[sizes] += count;
  std::uint64_t calls = 0, above = 0;
  std::vector<PointDemand> more;
  for (const auto& [sizes, count] : now) {
    const std::uint64_t before = std::exchange(counted_[sizes], count);
    if (count == before) continue;
    calls += count - before;
    const bool is_held =
        std::ranges::any_of(points, [&](const SizePoint& point) { return serves(point, sizes); });
    if (!is_held) above += count - before;
    SizePoint positive = sizes;
    for (std::int64_t& size : positive)
      size = std::max<std::int64_t>(size, 1);
    more.push_back({std::move(positive), static_cast<double>(count - before)});
  }
  const double left = std::exp2(-static_cast<double>(calls) / kHalfLife);
  const auto forget = [left](auto& weights) {
    for (auto& [sizes, weight] : weights)
      weight *= left;
    std::erase_if(weights, [](const auto& entry) { return entry.second < kLeastWeight; });
  };
  forget(weights_);
  for (const PointDemand& one : more)
    weights_[one.sizes] += one.weight;
  for (auto& [axis, other] : others_) {
    forget(other.weights);
    for (const SizeCount& count : function_.axes->histogram(axis).counts()) {
      const std::uint64_t before = std::exchange(other.counted[count.size], count.count);
      if (count.count == before) continue;
      other.weights[function_.axes->rule(axis).rounded(count.size)] +=
          static_cast<double>(count.count - before);
    }
  }
  calls_ += calls;
  const std::uint64_t missed = unserved();
  return missed - std::exchange(missed_, missed) > above;
}

void LearnedDemand::leave_out(const CallSizes& sizes) {
  ++counted_[point_of(sizes)];
  for (auto& [axis, other] : others_)
    ++other.counted[sizes[name_of(axis)]];
}

std::optional<std::vector<std::int64_t>> LearnedDemand::most_frequent(std::size_t axis) const {
  constexpr std::size_t kMost = 16;
  const auto found = others_.find(axis);
  if (found == others_.end()) return std::nullopt;
  std::vector<std::pair<double, std::int64_t>> order;
  for (const auto& [size, weight] : found->second.weights)
    order.emplace_back(-weight, size);
  std::ranges::sort(order);
  order.resize(std::min(order.size(), kMost));
  std::vector<std::int64_t> sizes;
  for (const auto& [weight, size] : order)
    sizes.push_back(size);
  return sizes;
}

}  // namespace cgtree
