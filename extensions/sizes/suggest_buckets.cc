// Finds the cheapest buckets for the first sizes of an axis, allowing one bucket more in each
// round, and for several axes by turns.
#include "extensions/sizes/suggest_buckets.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace cgtree {
namespace {

// A Sizes holds the sizes that calls had, ascending, each once.
struct Sizes {
  std::vector<std::int64_t> size;
  std::vector<double> cost;   // of a bucket of this size
  std::vector<double> calls;  // how many had this size or a smaller one

  std::size_t count() const { return size.size(); }
  // Returns the cost of the calls with sizes [begin, end), all padded to the last of these.
  double cost_of(std::size_t begin, std::size_t end) const {
    return (calls[end - 1] - (begin == 0 ? 0 : calls[begin - 1])) * cost[end - 1];
  }
};

Sizes sizes_of(std::span<const SizeCount> histogram, const BucketCost& cost) {
  std::map<std::int64_t, double> counts;
  for (const SizeCount& entry : histogram) {
    if (entry.size <= 0) {
      throw InvalidArgument(fmt::format(
          "suggest_buckets: the histogram has size {}, buckets are positive", entry.size));
    }
    if (entry.count > 0) counts[entry.size] += static_cast<double>(entry.count);
  }
  Sizes sizes;
  double calls = 0;
  for (const auto& [size, count] : counts) {
    const double price = cost ? cost(size) : static_cast<double>(size);
    if (!sizes.cost.empty() && price < sizes.cost.back()) {
      throw InvalidArgument(
          fmt::format("suggest_buckets: size {} costs {}, size {} costs {}: a larger bucket must "
                      "not cost less",
                      sizes.size.back(), sizes.cost.back(), size, price));
    }
    calls += count;
    sizes.size.push_back(size);
    sizes.cost.push_back(price);
    sizes.calls.push_back(calls);
  }
  return sizes;
}

// Returns the cheapest buckets, and the fewest of those. Requires: there are sizes.
std::vector<std::int64_t> cheapest(const Sizes& sizes, std::size_t max_buckets) {
  const std::size_t n = sizes.count();
  // least[e] is the least cost of the first e sizes with as many buckets as there have been rounds;
  // begins[round][e] says where the last of these buckets begins.
  std::vector<double> least(n + 1, std::numeric_limits<double>::infinity());
  least[0] = 0;
  std::vector<std::vector<std::size_t>> begins;
  while (begins.size() < std::min(n, max_buckets)) {
    std::vector<double> next = least;
    std::vector<std::size_t> begin(n + 1, n);  // n: one bucket less costs as little
    for (std::size_t e = 1; e <= n; ++e) {
      for (std::size_t b = 0; b < e; ++b) {
        const double total = least[b] + sizes.cost_of(b, e);
        if (total >= next[e]) continue;
        next[e] = total;
        begin[e] = b;
      }
    }
    begins.push_back(std::move(begin));
    if (begins.size() > 1 && next[n] >= least[n]) break;
    least = std::move(next);
  }

  std::vector<std::int64_t> buckets;
  std::size_t end = n;
  for (std::size_t round = begins.size(); round-- > 0 && end > 0;) {
    if (begins[round][end] == n) continue;
    buckets.push_back(sizes.size[end - 1]);
    end = begins[round][end];
  }
  std::reverse(buckets.begin(), buckets.end());
  return buckets;
}

// A Joint is a histogram of several axes. A choice of buckets is, for each axis and each of its
// sizes, which size is the bucket.
class Joint {
 public:
  using Choice = std::vector<std::vector<std::size_t>>;

  Joint(std::span<const SizesCount> histogram, std::span<const BucketCost> costs);

  std::size_t axes() const { return axes_.size(); }
  std::size_t sizes(std::size_t axis) const { return axes_[axis].count(); }
  double total(const Choice& choice) const;
  // Returns the buckets of an axis.
  std::vector<std::int64_t> list(const Choice& choice, std::size_t axis) const;
  // Returns the best choice of those that giving one axis after the other its cheapest list of at
  // most `counts` buckets ends with: from no padding and from all that there can be, first axis
  // first and last axis first.
  Choice descend(std::span<const std::size_t> counts) const;

 private:
  struct Entry {
    std::vector<std::size_t> size;  // by axis: its number
    double count;
  };

  void give_cheapest(std::size_t axis, std::size_t count, Choice& choice) const;

  std::vector<Sizes> axes_;
  std::vector<Entry> entries_;
};

Joint::Joint(std::span<const SizesCount> histogram, std::span<const BucketCost> costs) {
  const std::size_t axes = histogram.empty() ? 0 : histogram[0].sizes.size();
  for (std::size_t axis = 0; axis < axes; ++axis) {
    std::map<std::int64_t, std::uint64_t> counts;
    for (const SizesCount& entry : histogram) {
      if (entry.sizes.size() != axes) {
        throw InvalidArgument(fmt::format(
            "suggest_buckets: the histogram has an entry with {} sizes, and one with {}", axes,
            entry.sizes.size()));
      }
      counts[entry.sizes[axis]] += entry.count;
    }
    std::vector<SizeCount> list;
    for (const auto& [size, count] : counts)
      list.push_back({size, count});
    if (axes > 1) list = cut_down(list);
    axes_.push_back(sizes_of(list, axis < costs.size() ? costs[axis] : BucketCost()));
  }
  std::map<std::vector<std::size_t>, double> counts;
  for (const SizesCount& entry : histogram) {
    if (entry.count == 0) continue;
    std::vector<std::size_t> at(axes);
    for (std::size_t axis = 0; axis < axes; ++axis) {
      const std::vector<std::int64_t>& size = axes_[axis].size;
      const auto found = std::lower_bound(size.begin(), size.end(), entry.sizes[axis]);
      at[axis] = static_cast<std::size_t>(found - size.begin());
    }
    counts[at] += static_cast<double>(entry.count);
  }
  for (const auto& [size, count] : counts)
    entries_.push_back({size, count});
}

double Joint::total(const Choice& choice) const {
  double sum = 0;
  for (const Entry& entry : entries_) {
    double cost = entry.count;
    for (std::size_t axis = 0; axis < axes(); ++axis)
      cost *= axes_[axis].cost[choice[axis][entry.size[axis]]];
    sum += cost;
  }
  return sum;
}

std::vector<std::int64_t> Joint::list(const Choice& choice, std::size_t axis) const {
  std::vector<std::int64_t> list;
  for (const std::size_t bucket : choice[axis]) {
    const std::int64_t size = axes_[axis].size[bucket];
    if (list.empty() || list.back() != size) list.push_back(size);
  }
  return list;
}

void Joint::give_cheapest(std::size_t axis, std::size_t count, Choice& choice) const {
  Sizes sizes = axes_[axis];
  std::fill(sizes.calls.begin(), sizes.calls.end(), 0);
  for (const Entry& entry : entries_) {
    double weight = entry.count;
    for (std::size_t other = 0; other < axes(); ++other) {
      if (other != axis) weight *= axes_[other].cost[choice[other][entry.size[other]]];
    }
    sizes.calls[entry.size[axis]] += weight;
  }
  std::partial_sum(sizes.calls.begin(), sizes.calls.end(), sizes.calls.begin());
  const std::vector<std::int64_t> buckets = cheapest(sizes, count);
  for (std::size_t i = 0, bucket = 0; i < sizes.count(); ++i) {
    if (sizes.size[i] > buckets[bucket]) ++bucket;
    const auto found = std::lower_bound(sizes.size.begin(), sizes.size.end(), buckets[bucket]);
    choice[axis][i] = static_cast<std::size_t>(found - sizes.size.begin());
  }
}

Joint::Choice Joint::descend(std::span<const std::size_t> counts) const {
  Choice best;
  double least = std::numeric_limits<double>::infinity();
  for (const bool is_padded : {false, true}) {
    for (const bool is_reversed : {false, true}) {
      Choice choice(axes());
      for (std::size_t axis = 0; axis < axes(); ++axis) {
        choice[axis].assign(sizes(axis), sizes(axis) - 1);
        if (!is_padded) std::iota(choice[axis].begin(), choice[axis].end(), std::size_t{0});
      }
      double before = std::numeric_limits<double>::infinity();
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
// small counts, and about eight for each doubling of larger ones. Where more buckets are no harm,
// the last axis has as many as are left.
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

// Returns the bytes of all combinations of sizes, one of each list.
double bytes_of(const std::vector<std::vector<std::int64_t>>& lists, const BucketLimits& limits) {
  std::vector<std::size_t> at(lists.size(), 0);
  std::vector<std::int64_t> sizes(lists.size());
  double bytes = 0;
  for (;;) {
    for (std::size_t axis = 0; axis < lists.size(); ++axis)
      sizes[axis] = lists[axis][at[axis]];
    bytes += limits.bytes(sizes);
    std::size_t axis = 0;
    while (axis < lists.size() && ++at[axis] == lists[axis].size())
      at[axis++] = 0;
    if (axis == lists.size()) return bytes;
  }
}

}  // namespace

std::vector<SizeCount> cut_down(std::span<const SizeCount> counts) {
  if (counts.size() <= kMostSizesTogether) return {counts.begin(), counts.end()};
  std::uint64_t all = 0;
  for (const SizeCount& entry : counts)
    all += entry.count;
  std::vector<SizeCount> kept;
  std::uint64_t sum = 0;
  for (const SizeCount& entry : counts) {
    sum += entry.count;
    const bool is_last = &entry == &counts.back();
    if (!is_last && sum < all / (kMostSizesTogether - 1) + 1) continue;
    kept.push_back({entry.size, sum});
    sum = 0;
  }
  return kept;
}

std::vector<std::int64_t> suggest_buckets(std::span<const SizeCount> histogram,
                                          std::size_t max_buckets, const BucketCost& cost) {
  if (max_buckets == 0) throw InvalidArgument("suggest_buckets: at least one bucket is needed");
  const Sizes sizes = sizes_of(histogram, cost);
  if (sizes.count() == 0) return {};
  return cheapest(sizes, max_buckets);
}

std::vector<std::vector<std::int64_t>> suggest_buckets(std::span<const SizesCount> histogram,
                                                       const BucketLimits& limits,
                                                       std::span<const BucketCost> costs) {
  if (limits.max_combinations == 0) {
    throw InvalidArgument("suggest_buckets: at least one combination of buckets is needed");
  }
  const Joint joint(histogram, costs);
  std::vector<std::vector<std::int64_t>> best(joint.axes());
  if (joint.axes() == 0 || joint.sizes(0) == 0) return best;
  auto least = std::pair(std::numeric_limits<double>::infinity(), std::size_t{0});
  double fewest_bytes = std::numeric_limits<double>::infinity();
  std::vector<std::size_t> counts(joint.axes());
  const auto visit = [&](const std::vector<std::size_t>& split) {
    const Joint::Choice choice = joint.descend(split);
    std::vector<std::vector<std::int64_t>> lists;
    std::size_t combinations = 1;
    for (std::size_t axis = 0; axis < joint.axes(); ++axis)
      combinations *= lists.emplace_back(joint.list(choice, axis)).size();
    const auto rank = std::pair(joint.total(choice), combinations);
    if (rank >= least) return;
    if (limits.bytes) {
      const double bytes = bytes_of(lists, limits);
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
  throw InvalidArgument(fmt::format(
      "suggest_buckets: recordings of the largest sizes alone take {} bytes, max_bytes is {}",
      fewest_bytes, limits.max_bytes));
}

}  // namespace cgtree
