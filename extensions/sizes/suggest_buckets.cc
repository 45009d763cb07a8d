// Searches one axis by best_sizes(), and several axes in turn.
#include "extensions/sizes/suggest_buckets.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/format.h"

namespace cgtree {
namespace {

constexpr double kMostCost = std::numeric_limits<double>::infinity();

// An Axis holds the sizes that calls had along one axis, ascending, and the cost of a bucket of
// each. Its constructor throws InvalidArgument for invalid ones.
struct Axis {
  Axis(const AxisDemand& demand, const SizeCost& cost);

  std::size_t count() const { return sizes.size(); }
  // Returns the number of the first size that is at least as large.
  std::size_t find(std::int64_t size) const {
    return static_cast<std::size_t>(std::ranges::lower_bound(sizes, size) - sizes.begin());
  }
  // Returns the cheapest buckets for these calls, and the fewest of those.
  Sizes cheapest(const AxisDemand& demand, std::size_t max_buckets) const {
    return best_sizes(demand, max_buckets, [this](std::int64_t size) { return costs[find(size)]; });
  }

  Sizes sizes;
  std::vector<double> costs;
};

Axis::Axis(const AxisDemand& demand, const SizeCost& cost) {
  for (const auto& [size, calls] : demand) {
    if (size <= 0) {
      throw InvalidArgument(
          str_format("suggest_buckets: the histogram has size {}, buckets are positive", size));
    }
    const double price = cost ? cost(size) : static_cast<double>(size);
    if (!costs.empty() && price < costs.back()) {
      throw InvalidArgument(
          str_format("suggest_buckets: size {} costs {}, size {} costs {}: a larger bucket must "
                     "not cost less",
                     sizes.back(), costs.back(), size, price));
    }
    sizes.push_back(size);
    costs.push_back(price);
  }
}

// A Joint is a histogram of several axes. A choice of buckets assigns, for each axis, a bucket to
// each of its sizes.
class Joint {
 public:
  using Choice = std::vector<std::vector<std::size_t>>;

  Joint(const std::map<Sizes, std::uint64_t>& histogram, std::span<const SizeCost> costs);

  std::size_t axes() const { return axes_.size(); }
  std::size_t sizes(std::size_t axis) const { return axes_[axis].count(); }
  double total(const Choice& choice) const;
  // Returns the buckets of each axis.
  std::vector<Sizes> lists(const Choice& choice) const;
  // Returns the best choice found by giving one axis after the other its cheapest list of at most
  // `counts` buckets: starting without padding and with all possible padding, first axis first and
  // last axis first.
  Choice descend(std::span<const std::size_t> counts) const;

 private:
  void give_cheapest(std::size_t axis, std::size_t count, Choice& choice) const;

  std::vector<Axis> axes_;
  // The calls by the numbers of their sizes.
  std::vector<std::pair<std::vector<std::size_t>, double>> entries_;
};

Joint::Joint(const std::map<Sizes, std::uint64_t>& histogram, std::span<const SizeCost> costs) {
  const std::size_t axes = histogram.empty() ? 0 : histogram.begin()->first.size();
  std::vector<AxisDemand> demand(axes);
  for (const auto& [sizes, count] : histogram) {
    if (sizes.size() != axes) {
      throw InvalidArgument(
          str_format("suggest_buckets: the histogram has an entry with {} sizes, and one with {}",
                     axes, sizes.size()));
    }
    for (std::size_t axis = 0; axis < axes && count > 0; ++axis)
      demand[axis][sizes[axis]] += static_cast<double>(count);
  }
  for (std::size_t axis = 0; axis < axes; ++axis) {
    if (axes > 1) demand[axis] = cut_down(demand[axis]);
    axes_.emplace_back(demand[axis], axis < costs.size() ? costs[axis] : SizeCost());
  }
  std::map<std::vector<std::size_t>, double> counts;
  for (const auto& [sizes, count] : histogram) {
    if (count == 0) continue;
    std::vector<std::size_t> at;
    for (std::size_t axis = 0; axis < axes; ++axis)
      at.push_back(axes_[axis].find(sizes[axis]));
    counts[at] += static_cast<double>(count);
  }
  entries_.assign(counts.begin(), counts.end());
}

double Joint::total(const Choice& choice) const {
  double sum = 0;
  for (const auto& [at, count] : entries_) {
    double cost = count;
    for (std::size_t axis = 0; axis < axes(); ++axis)
      cost *= axes_[axis].costs[choice[axis][at[axis]]];
    sum += cost;
  }
  return sum;
}

std::vector<Sizes> Joint::lists(const Choice& choice) const {
  std::vector<Sizes> lists(axes());
  for (std::size_t axis = 0; axis < axes(); ++axis) {
    for (const std::size_t bucket : choice[axis])
      lists[axis].push_back(axes_[axis].sizes[bucket]);
    lists[axis].erase(std::ranges::unique(lists[axis]).begin(), lists[axis].end());
  }
  return lists;
}

void Joint::give_cheapest(std::size_t axis, std::size_t count, Choice& choice) const {
  const Axis& here = axes_[axis];
  std::vector<double> weights(here.count());
  for (const auto& [at, calls] : entries_) {
    double weight = calls;
    for (std::size_t other = 0; other < axes(); ++other) {
      if (other != axis) weight *= axes_[other].costs[choice[other][at[other]]];
    }
    weights[at[axis]] += weight;
  }
  AxisDemand demand;
  for (std::size_t i = 0; i < here.count(); ++i)
    demand[here.sizes[i]] = weights[i];
  const Sizes buckets = here.cheapest(demand, count);
  for (std::size_t i = 0; i < here.count(); ++i)
    choice[axis][i] = here.find(*std::ranges::lower_bound(buckets, here.sizes[i]));
}

Joint::Choice Joint::descend(std::span<const std::size_t> counts) const {
  Choice best;
  double least = kMostCost;
  for (const bool is_padded : {false, true}) {
    for (const bool is_reversed : {false, true}) {
      Choice choice(axes());
      for (std::size_t axis = 0; axis < axes(); ++axis) {
        choice[axis].assign(sizes(axis), sizes(axis) - 1);
        if (!is_padded) std::iota(choice[axis].begin(), choice[axis].end(), std::size_t{0});
      }
      double before = kMostCost;
      for (int round = 0; round < 32; ++round) {
        for (std::size_t i = 0; i < axes(); ++i) {
          const std::size_t axis = is_reversed ? axes() - 1 - i : i;
          give_cheapest(axis, counts[axis], choice);
        }
        const double now = total(choice);
        if (now >= before) break;
        before = now;
        if (now >= least) continue;
        least = now;
        best = choice;
      }
    }
  }
  return best;
}

// Calls visit(counts) for ways to share out `left` combinations among the axes from `axis` on: all
// small counts, and about eight for each doubling of larger ones. If more buckets never cost more,
// the last axis gets as many as are left.
template <typename Visit>
void for_each_split(const Joint& joint, std::size_t axis, std::size_t left, bool is_harm,
                    std::vector<std::size_t>& counts, const Visit& visit) {
  if (axis == joint.axes()) return visit(counts);
  const std::size_t most = std::min(left, joint.sizes(axis));
  const bool takes_all = axis + 1 == joint.axes() && !is_harm;
  for (std::size_t count = takes_all ? most : 1;; count += std::max<std::size_t>(1, count / 8)) {
    counts[axis] = std::min(count, most);
    for_each_split(joint, axis + 1, left / counts[axis], is_harm, counts, visit);
    if (count >= most) return;
  }
}

// Returns the bytes of all combinations with one size of each list from `sizes.size()` on.
double bytes_of(std::span<const Sizes> lists, const BucketLimits& limits, Sizes& sizes) {
  if (sizes.size() == lists.size()) return limits.bytes(sizes);
  double bytes = 0;
  for (const std::int64_t size : lists[sizes.size()]) {
    sizes.push_back(size);
    bytes += bytes_of(lists, limits, sizes);
    sizes.pop_back();
  }
  return bytes;
}

}  // namespace

Sizes suggest_buckets(const std::map<std::int64_t, std::uint64_t>& histogram,
                      std::size_t max_buckets, const SizeCost& cost) {
  if (max_buckets == 0) throw InvalidArgument("suggest_buckets: at least one bucket is needed");
  AxisDemand demand;
  for (const auto& [size, count] : histogram)
    if (count > 0) demand[size] = static_cast<double>(count);
  return Axis(demand, cost).cheapest(demand, max_buckets);
}

std::vector<Sizes> suggest_buckets(const std::map<Sizes, std::uint64_t>& histogram,
                                   const BucketLimits& limits, std::span<const SizeCost> costs) {
  if (limits.max_combinations == 0) {
    throw InvalidArgument("suggest_buckets: at least one combination of buckets is needed");
  }
  const Joint joint(histogram, costs);
  std::vector<Sizes> best(joint.axes());
  if (joint.axes() == 0 || joint.sizes(0) == 0) return best;
  auto least = std::pair(kMostCost, std::size_t{0});
  double fewest_bytes = kMostCost;
  std::vector<std::size_t> counts(joint.axes());
  const auto visit = [&](const std::vector<std::size_t>& split) {
    const Joint::Choice choice = joint.descend(split);
    std::vector<Sizes> lists = joint.lists(choice);
    std::size_t combinations = 1;
    for (const Sizes& list : lists)
      combinations *= list.size();
    const auto rank = std::pair(joint.total(choice), combinations);
    if (rank >= least) return;
    if (limits.bytes) {
      Sizes none;
      const double bytes = bytes_of(lists, limits, none);
      fewest_bytes = std::min(fewest_bytes, bytes);
      if (bytes > static_cast<double>(limits.max_bytes)) return;
    }
    least = rank;
    best = std::move(lists);
  };
  const bool is_harm = limits.bytes != nullptr;
  for_each_split(joint, 0, std::min(limits.max_combinations, BucketLimits::kMostCombinations),
                 is_harm, counts, visit);
  if (!best[0].empty()) return best;
  throw InvalidArgument(str_format(
      "suggest_buckets: recordings of the largest sizes alone take {} bytes, max_bytes is {}",
      fewest_bytes, limits.max_bytes));
}

}  // namespace cgtree
