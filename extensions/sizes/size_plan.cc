// Finds the best sizes by dynamic programming, and goes there step by step.
#include "extensions/sizes/size_plan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <utility>

#include "extensions/sizes/suggest_buckets.h"

namespace cgtree {
namespace {

constexpr double kLeastGain = 0.02;
constexpr double kLeastGainOfRoom = 0.0025;
constexpr double kLeastEager = 1.25;  // times a replay

void note_least(std::map<std::int64_t, double>& points, std::int64_t size, double us) {
  const auto [found, is_new] = points.try_emplace(size, us);
  if (!is_new) found->second = std::min(found->second, us);
}

}  // namespace

void SizeCosts::add(std::int64_t size, double replay_us, double eager_us) {
  note_least(replay_, size, replay_us);
  note_least(eager_, size, std::max(eager_us, kLeastEager * replay_us));
}

double SizeCosts::at(const Points& points, std::int64_t size, double otherwise) {
  if (points.empty()) return otherwise * static_cast<double>(size);
  if (points.size() == 1) {
    const auto& [known, us] = *points.begin();
    return us * static_cast<double>(size) / static_cast<double>(known);
  }
  auto right = points.lower_bound(size);
  if (right == points.begin()) ++right;
  if (right == points.end()) --right;
  const auto left = std::prev(right);
  double slope = (right->second - left->second) / static_cast<double>(right->first - left->first);
  // Two sizes next to each other, measured with noise, may fall; far beyond them nothing is free.
  if (size > points.rbegin()->first) slope = std::max(slope, 0.0);
  const double us = left->second + slope * static_cast<double>(size - left->first);
  return std::max(us, 0.0);
}

double SizeCosts::eager(std::int64_t size) const {
  if (eager_.empty()) return at(eager_, size, 2);
  const bool is_below = size < eager_.begin()->first;
  if (!is_below && size <= eager_.rbegin()->first) return at(eager_, size, 2);
  const auto& nearest = is_below ? *eager_.begin() : *eager_.rbegin();
  const double replay_us = replay_.at(nearest.first);
  if (replay_us <= 0) return at(eager_, size, 2);
  return replay(size) * (nearest.second / replay_us);
}

double cost_of(std::span<const SizeDemand> demand, const SizeSet& recorded,
               const SizeCosts& costs) {
  double sum = 0;
  auto next = recorded.begin();
  for (const SizeDemand& one : demand) {
    while (next != recorded.end() && *next < one.size)
      ++next;
    sum += one.weight * (next == recorded.end() ? costs.eager(one.size) : costs.replay(*next));
  }
  return sum;
}

SizeSet best_sizes(std::span<const SizeDemand> demand, const SizeCosts& costs,
                   std::size_t max_sizes) {
  return best_sizes(demand, costs, max_sizes, holds);
}

// Dynamic programming: least[e] is the least cost of calls with the first e sizes, the largest of
// which is recorded; those above it run eagerly, and so do those that the next size does not serve.
SizeSet best_sizes(std::span<const SizeDemand> demand, const SizeCosts& costs,
                   std::size_t max_sizes, const Serves& serves) {
  constexpr double kUnit = 1024;  // counts are integers
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<SizeCount> all;
  for (const SizeDemand& one : demand) {
    const auto count = static_cast<std::uint64_t>(std::llround(one.weight * kUnit));
    if (count > 0) all.push_back({one.size, count});
  }
  const std::vector<SizeCount> counts = cut_down(all);  // the search takes the square of them
  const std::size_t n = counts.size();
  std::vector<double> price(n), calls(n + 1), above(n + 1);
  for (std::size_t i = 0; i < n; ++i) {
    price[i] = std::max(i == 0 ? 0 : price[i - 1], costs.replay(counts[i].size));
    calls[i + 1] = calls[i] + static_cast<double>(counts[i].count);
  }
  for (std::size_t i = n; i-- > 0;)
    above[i] = above[i + 1] + static_cast<double>(counts[i].count) * costs.eager(counts[i].size);
  std::vector<std::size_t> served_from(n);  // by size: the smallest one that it serves
  for (std::size_t i = 0; i < n; ++i) {
    served_from[i] = i;
    while (served_from[i] > 0 && serves({counts[i].size}, {counts[served_from[i] - 1].size}))
      --served_from[i];
  }

  std::vector<double> least(n + 1, kNever);
  least[0] = 0;
  double best = above[0];
  std::size_t rounds = 0, end = 0;
  std::vector<std::vector<std::size_t>> before;  // by round and end: where the last size begins
  while (before.size() < std::min(n, max_sizes)) {
    std::vector<double> next(n + 1, kNever);
    std::vector<std::size_t>& begins = before.emplace_back(n + 1);
    for (std::size_t e = 1; e <= n; ++e) {
      for (std::size_t b = 0; b < e; ++b) {
        const std::size_t from = std::max(b, served_from[e - 1]);
        const double cost =
            least[b] + above[b] - above[from] + (calls[e] - calls[from]) * price[e - 1];
        if (cost >= next[e]) continue;
        next[e] = cost;
        begins[e] = b;
      }
      if (next[e] + above[e] >= best) continue;
      best = next[e] + above[e];
      rounds = before.size();
      end = e;
    }
    least = std::move(next);
  }
  SizeSet sizes;
  for (; rounds > 0; end = before[--rounds][end])
    sizes.push_back(counts[end - 1].size);
  std::ranges::reverse(sizes);
  return sizes;
}

std::int64_t work_of(const SizePoint& sizes) noexcept {
  std::int64_t work = 1;
  for (const std::int64_t size : sizes)
    if (__builtin_mul_overflow(work, size, &work)) return std::numeric_limits<std::int64_t>::max();
  return work;
}

bool holds(const SizePoint& point, const SizePoint& sizes) noexcept {
  return std::ranges::equal(point, sizes, std::ranges::greater_equal());
}

namespace {

// A Coverage says for each demand which work its calls have, in a replay or, if no point holds
// them, eagerly.
class Coverage {
 public:
  Coverage(std::span<const PointDemand> demand, const SizeCosts& costs, const Serves& serves)
      : demand_(demand), costs_(costs), serves_(serves), work_(demand.size(), kEager) {
    for (const PointDemand& one : demand)
      cost_ += one.weight * costs.eager(work_of(one.sizes));
  }

  double cost() const noexcept { return cost_; }
  // Returns the cost with one more point.
  double cost_with(const SizePoint& point) const {
    double cost = cost_;
    for_each_moved(point, [&](std::size_t, double less) { cost -= less; });
    return cost;
  }
  void add(const SizePoint& point) {
    for_each_moved(point, [&](std::size_t i, double less) {
      work_[i] = work_of(point);
      cost_ -= less;
    });
  }

 private:
  static constexpr std::int64_t kEager = std::numeric_limits<std::int64_t>::max();

  template <typename Visit>
  void for_each_moved(const SizePoint& point, const Visit& visit) const {
    const std::int64_t work = work_of(point);
    const double replay_us = costs_.replay(work);
    for (std::size_t i = 0; i < demand_.size(); ++i) {
      if (work >= work_[i] || !serves_(point, demand_[i].sizes)) continue;
      const double now =
          work_[i] == kEager ? costs_.eager(work_of(demand_[i].sizes)) : costs_.replay(work_[i]);
      visit(i, demand_[i].weight * (now - replay_us));
    }
  }

  std::span<const PointDemand> demand_;
  const SizeCosts& costs_;
  const Serves& serves_;
  std::vector<std::int64_t> work_;
  double cost_ = 0;
};

// Returns the sizes of the heaviest demand, and what holds two of them.
std::vector<SizePoint> candidates(std::span<const PointDemand> demand) {
  constexpr std::size_t kMost = 32;  // there are as many as the square of it
  std::vector<const PointDemand*> heaviest;
  for (const PointDemand& one : demand)
    heaviest.push_back(&one);
  std::ranges::stable_sort(heaviest, std::ranges::greater(), &PointDemand::weight);
  heaviest.resize(std::min(heaviest.size(), kMost));
  std::vector<SizePoint> points;
  for (const PointDemand* const one : heaviest) {
    for (const PointDemand* const other : heaviest) {
      SizePoint& point = points.emplace_back(one->sizes);
      for (std::size_t axis = 0; axis < point.size(); ++axis)
        point[axis] = std::max(point[axis], other->sizes[axis]);
    }
  }
  std::ranges::sort(points);
  points.erase(std::ranges::unique(points).begin(), points.end());
  return points;
}

// Adds the candidate that gains most. Returns false if none gains.
bool add_best(std::span<const PointDemand> demand, const SizeCosts& costs, const Serves& serves,
              std::span<const SizePoint> among, std::vector<SizePoint>& chosen) {
  Coverage coverage(demand, costs, serves);
  for (const SizePoint& point : chosen)
    coverage.add(point);
  const SizePoint* best = nullptr;
  double least = coverage.cost();
  for (const SizePoint& point : among) {
    const double cost = coverage.cost_with(point);
    if (cost >= least) continue;
    least = cost;
    best = &point;
  }
  if (best != nullptr) chosen.push_back(*best);
  return best != nullptr;
}

std::vector<SizePoint> best_of_one_axis(std::span<const PointDemand> demand, const SizeCosts& costs,
                                        std::size_t max_points, const Serves& serves) {
  std::vector<SizeDemand> sizes;
  for (const PointDemand& one : demand)
    sizes.push_back({one.sizes[0], one.weight});
  std::vector<SizePoint> points;
  for (const std::int64_t size : best_sizes(sizes, costs, max_points, serves))
    points.push_back({size});
  return points;
}

}  // namespace

double cost_of(std::span<const PointDemand> demand, std::span<const SizePoint> recorded,
               const SizeCosts& costs, const Serves& serves) {
  Coverage coverage(demand, costs, serves);
  for (const SizePoint& point : recorded)
    coverage.add(point);
  return coverage.cost();
}

std::vector<SizePoint> best_points(std::span<const PointDemand> demand, const SizeCosts& costs,
                                   std::size_t max_points, const Serves& serves) {
  if (demand.empty()) return {};
  if (demand[0].sizes.size() == 1) return best_of_one_axis(demand, costs, max_points, serves);
  const std::vector<SizePoint> among = candidates(demand);
  std::vector<SizePoint> best;
  while (best.size() < max_points && add_best(demand, costs, serves, among, best)) {
  }
  double least = cost_of(demand, best, costs, serves);
  for (bool has_gained = true; std::exchange(has_gained, false);) {
    for (std::size_t i = 0; i < best.size(); ++i) {
      std::vector<SizePoint> other = best;
      other.erase(other.begin() + static_cast<std::ptrdiff_t>(i));
      while (other.size() < max_points && add_best(demand, costs, serves, among, other)) {
      }
      const double cost = cost_of(demand, other, costs, serves);
      if (cost >= least * (1 - 1e-9)) continue;
      least = cost;
      best = std::move(other);
      has_gained = true;
    }
  }
  std::ranges::sort(best);
  return best;
}

std::optional<PointChange> next_points(std::span<const PointDemand> demand,
                                       const std::vector<SizePoint>& recorded,
                                       const SizeCosts& costs, std::size_t max_points,
                                       const Serves& serves) {
  double weight = 0;
  for (const PointDemand& one : demand)
    weight += one.weight;
  const std::vector<SizePoint> best = best_points(demand, costs, max_points, serves);
  const double now = cost_of(demand, recorded, costs, serves);
  const double least_gain = recorded.size() < max_points ? kLeastGainOfRoom : kLeastGain;
  if (now - cost_of(demand, best, costs, serves) < least_gain * now) return std::nullopt;
  const auto cost_without = [&](std::vector<SizePoint> points, const SizePoint& less) {
    std::erase(points, less);
    return cost_of(demand, points, costs, serves);
  };
  // Each change brings the sizes nearer to the best ones, so they are reached, even if one alone
  // does not pay: the first size of two may be a large one, to which small calls are padded.
  std::optional<PointChange> change;
  double least = std::numeric_limits<double>::infinity();
  std::vector<SizePoint> more = recorded;
  for (const SizePoint& point : best) {
    if (std::ranges::find(recorded, point) != recorded.end()) continue;
    more.push_back(point);
    const double cost = cost_of(demand, more, costs, serves);
    more.pop_back();
    if (cost >= least) continue;
    least = cost;
    change = PointChange{point, {}, 0};
  }
  if (!change) return std::nullopt;
  more.push_back(change->record);
  if (recorded.size() >= max_points) {
    least = std::numeric_limits<double>::infinity();
    for (const SizePoint& point : recorded) {
      if (std::ranges::find(best, point) != best.end()) continue;
      const double cost = cost_without(more, point);
      if (cost >= least) continue;
      least = cost;
      change->evict = point;
    }
  }
  change->gain_us = (now - least) / weight;
  return change;
}

std::optional<SizeChange> next_sizes(std::span<const SizeDemand> demand, const SizeSet& recorded,
                                     const SizeCosts& costs, std::size_t max_sizes) {
  std::vector<PointDemand> points;
  for (const SizeDemand& one : demand)
    points.push_back({{one.size}, one.weight});
  std::vector<SizePoint> known;
  for (const std::int64_t size : recorded)
    known.push_back({size});
  const auto change = next_points(points, known, costs, max_sizes);
  if (!change) return std::nullopt;
  SizeChange same{change->record[0], {}, change->gain_us};
  if (change->evict) same.evict = (*change->evict)[0];
  return same;
}

IdleDeed what_to_do(const IdleMoment& moment) noexcept {
  if (moment.has_change && moment.is_short_of_memory && moment.free_bytes > 0) {
    return IdleDeed::kGiveBack;
  }
  if (moment.has_change && moment.may_record) return IdleDeed::kRecord;
  if (moment.may_verify) return IdleDeed::kVerify;
  if (moment.free_bytes > moment.used_bytes) return IdleDeed::kGiveBack;
  return IdleDeed::kNothing;
}

}  // namespace cgtree
