// Finds the best sizes by dynamic programming, and approaches them step by step.
#include "extensions/sizes/size_plan.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <utility>

namespace cgtree {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLeastGain = 0.02;
constexpr double kLeastGainOfRoom = 0.0025;
constexpr double kLeastEager = 1.25;  // times a replay

// An AxisTable holds the sizes of one axis, ascending, and sums over their calls.
struct AxisTable {
  AxisTable(const AxisDemand& demand, const SizeCost& padded, const SizeCost& eager,
            const Serves& serves);

  // Returns the cost of the calls with sizes [begin, end) if size end - 1 is the next larger
  // recorded size.
  double cost_of(std::size_t begin, std::size_t end) const {
    const std::size_t from = served_from[end - 1];
    if (from <= begin) return (calls[end] - calls[begin]) * price[end - 1];
    return above[begin] - above[from] + (calls[end] - calls[from]) * price[end - 1];
  }

  Sizes sizes;
  std::vector<double> price;             // of a call padded to this size
  std::vector<double> calls;             // with a smaller size; all of them at the end
  std::vector<double> above;             // the cost of all calls from this size on, run eagerly
  std::vector<std::size_t> served_from;  // the smallest size that this size serves
};

AxisTable::AxisTable(const AxisDemand& demand, const SizeCost& padded, const SizeCost& eager,
                     const Serves& serves)
    : calls{0}, above(demand.size() + 1), served_from(demand.size()) {
  for (const auto& [size, weight] : demand) {
    sizes.push_back(size);
    price.push_back(std::max(price.empty() ? -kInfinity : price.back(), padded(size)));
    calls.push_back(calls.back() + weight);
  }
  for (std::size_t i = sizes.size(); i-- > 0;)
    above[i] = eager ? above[i + 1] + demand.at(sizes[i]) * eager(sizes[i]) : kInfinity;
  for (std::size_t i = 0; serves && i < sizes.size(); ++i) {
    served_from[i] = i;
    while (served_from[i] > 0 && serves({sizes[i]}, {sizes[served_from[i] - 1]}))
      --served_from[i];
  }
}

void note_least(std::map<std::int64_t, double>& points, std::int64_t size, double us) {
  const auto [found, is_new] = points.try_emplace(size, us);
  if (!is_new) found->second = std::min(found->second, us);
}

}  // namespace

bool holds(const Sizes& point, const Sizes& sizes) noexcept {
  return std::ranges::equal(point, sizes, std::ranges::greater_equal());
}

// least[e] is the least cost of calls with the first e sizes, the largest of which is recorded,
// with as many more as there were rounds before.
Sizes best_sizes(const AxisDemand& demand, std::size_t max_sizes, const SizeCost& padded,
                 const SizeCost& eager, const Serves& serves) {
  const AxisTable table(demand, padded, eager, serves);
  const std::size_t n = table.sizes.size();
  std::vector<double> least(n + 1, kInfinity);
  least[0] = 0;
  double best = table.above[0];
  std::size_t rounds = 0, end = 0;
  std::vector<std::vector<std::size_t>> before;  // by round and end: where the last range begins
  while (before.size() < std::min(n, max_sizes)) {
    const std::size_t fewest = before.size();  // this many sizes are recorded below the last one
    std::vector<double> next(n + 1, kInfinity);
    std::vector<std::size_t>& begins = before.emplace_back(n + 1);
    for (std::size_t e = fewest + 1; e <= n; ++e) {
      for (std::size_t b = fewest; b < e; ++b) {
        const double cost = least[b] + table.cost_of(b, e);
        if (cost >= next[e]) continue;
        next[e] = cost;
        begins[e] = b;
      }
      if (next[e] + table.above[e] >= best) continue;
      best = next[e] + table.above[e];
      rounds = before.size();
      end = e;
    }
    least = std::move(next);
  }
  Sizes sizes;
  for (; rounds > 0; end = before[--rounds][end])
    sizes.push_back(table.sizes[end - 1]);
  std::ranges::reverse(sizes);
  return sizes;
}

AxisDemand cut_down(const AxisDemand& demand) {
  constexpr std::size_t kMost = 128;
  if (demand.size() <= kMost) return demand;
  double all = 0;
  for (const auto& [size, weight] : demand)
    all += weight;
  AxisDemand kept;
  double sum = 0;
  for (const auto& [size, weight] : demand) {
    sum += weight;
    if (size != demand.rbegin()->first && sum <= all / (kMost - 1)) continue;
    kept[size] = std::exchange(sum, 0);
  }
  return kept;
}

std::int64_t work_of(const Sizes& sizes) noexcept {
  std::int64_t work = 1;
  for (const std::int64_t size : sizes)
    if (__builtin_mul_overflow(work, size, &work)) return std::numeric_limits<std::int64_t>::max();
  return work;
}

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
  // Two neighbouring sizes, measured with noise, may fall; far beyond them no call is free.
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

// A Coverage holds the cost of calls with a growing set of recordings.
class SizePlanner::Coverage {
 public:
  Coverage(const SizePlanner& planner, std::span<const Sizes> recorded)
      : planner_(planner), work_(planner.demand_.size(), kEager) {
    for (const auto& [sizes, weight] : planner.demand_)
      cost_ += weight * planner.costs_.eager(work_of(sizes));
    for (const Sizes& point : recorded)
      add(point);
  }

  double cost() const noexcept { return cost_; }
  // Returns the cost with one more point.
  double cost_with(const Sizes& point) const {
    double cost = cost_;
    for_each_moved(point, [&](std::size_t, double less) { cost -= less; });
    return cost;
  }

 private:
  static constexpr std::int64_t kEager = std::numeric_limits<std::int64_t>::max();

  void add(const Sizes& point) {
    for_each_moved(point, [&](std::size_t i, double less) {
      work_[i] = work_of(point);
      cost_ -= less;
    });
  }
  template <typename Visit>
  void for_each_moved(const Sizes& point, const Visit& visit) const {
    const std::int64_t work = work_of(point);
    const double replay_us = planner_.costs_.replay(work);
    for (std::size_t i = 0; i < work_.size(); ++i) {
      const auto& [sizes, weight] = planner_.demand_[i];
      if (work >= work_[i] || !planner_.serves_(point, sizes)) continue;
      const double now_us = work_[i] == kEager ? planner_.costs_.eager(work_of(sizes))
                                               : planner_.costs_.replay(work_[i]);
      visit(i, weight * (now_us - replay_us));
    }
  }

  const SizePlanner& planner_;
  std::vector<std::int64_t> work_;  // by demand: of the replay, or kEager
  double cost_ = 0;
};

SizePlanner::SizePlanner(const Demand& demand, const SizeCosts& costs, Serves serves)
    : demand_(demand.begin(), demand.end()), costs_(costs), serves_(std::move(serves)) {
}

double SizePlanner::cost_of(std::span<const Sizes> recorded) const {
  return Coverage(*this, recorded).cost();
}

std::vector<Sizes> SizePlanner::best_of_one_axis(std::size_t max_points) const {
  AxisDemand demand;
  for (const auto& [sizes, weight] : demand_)
    demand.emplace(sizes[0], weight);
  std::vector<Sizes> points;
  for (const std::int64_t size : best_sizes(
           cut_down(demand), max_points, [this](std::int64_t size) { return costs_.replay(size); },
           [this](std::int64_t size) { return costs_.eager(size); }, serves_))
    points.push_back({size});
  return points;
}

// Returns the sizes of the heaviest demand, and points that hold two of them.
std::vector<Sizes> SizePlanner::candidates() const {
  constexpr std::size_t kMost = 32;  // the result may have the square of it
  std::vector<std::pair<Sizes, double>> heaviest = demand_;
  std::ranges::stable_sort(heaviest, std::ranges::greater(), &std::pair<Sizes, double>::second);
  heaviest.resize(std::min(heaviest.size(), kMost));
  std::vector<Sizes> points;
  for (const auto& [sizes, weight] : heaviest) {
    for (const auto& [others, unused] : heaviest)
      std::ranges::transform(sizes, others, std::back_inserter(points.emplace_back()),
                             std::ranges::max);
  }
  std::ranges::sort(points);
  points.erase(std::ranges::unique(points).begin(), points.end());
  return points;
}

// Adds the candidates that gain most, one by one.
void SizePlanner::add_best(std::span<const Sizes> among, std::size_t max_points,
                           std::vector<Sizes>& chosen) const {
  while (chosen.size() < max_points) {
    const Coverage coverage(*this, chosen);
    double least = coverage.cost();
    const Sizes* best = nullptr;
    for (const Sizes& point : among) {
      const double cost = coverage.cost_with(point);
      if (cost < least) best = &point;
      least = std::min(least, cost);
    }
    if (best == nullptr) return;
    chosen.push_back(*best);
  }
}

std::vector<Sizes> SizePlanner::best(std::size_t max_points) const {
  if (demand_.empty()) return {};
  if (demand_[0].first.size() == 1) return best_of_one_axis(max_points);
  const std::vector<Sizes> among = candidates();
  std::vector<Sizes> best;
  add_best(among, max_points, best);
  double least = cost_of(best);
  for (bool has_gained = true; std::exchange(has_gained, false);) {
    for (std::size_t i = 0; i < best.size(); ++i) {
      std::vector<Sizes> other = best;
      other.erase(other.begin() + static_cast<std::ptrdiff_t>(i));
      add_best(among, max_points, other);
      const double cost = cost_of(other);
      if (cost >= least * (1 - 1e-9)) continue;
      least = cost;
      best = std::move(other);
      has_gained = true;
    }
  }
  std::ranges::sort(best);
  return best;
}

// Each change brings the sizes nearer to the best ones, so they are reached even if a single change
// does not pay: the first of two sizes may be a large one, to which small calls are padded.
std::optional<SizeChange> SizePlanner::next(const std::vector<Sizes>& recorded,
                                            std::size_t max_points) const {
  const std::vector<Sizes> best = this->best(max_points);
  const double now = cost_of(recorded);
  const double least_gain = recorded.size() < max_points ? kLeastGainOfRoom : kLeastGain;
  if (now - cost_of(best) < least_gain * now) return std::nullopt;
  std::optional<SizeChange> change;
  double least = kInfinity;
  std::vector<Sizes> more = recorded;
  for (const Sizes& point : best) {
    if (std::ranges::find(recorded, point) != recorded.end()) continue;
    more.push_back(point);
    const double cost = cost_of(more);
    more.pop_back();
    if (cost >= least) continue;
    least = cost;
    change = SizeChange{point, {}, 0};
  }
  if (!change) return std::nullopt;
  more.push_back(change->record);
  if (recorded.size() >= max_points) {
    least = kInfinity;
    for (const Sizes& point : recorded) {
      if (std::ranges::find(best, point) != best.end()) continue;
      std::vector<Sizes> others = more;
      std::erase(others, point);
      const double cost = cost_of(others);
      if (cost >= least) continue;
      least = cost;
      change->evict = point;
    }
  }
  double weight = 0;
  for (const auto& [sizes, calls] : demand_)
    weight += calls;
  change->gain_us = (now - least) / weight;
  return change;
}

}  // namespace cgtree
