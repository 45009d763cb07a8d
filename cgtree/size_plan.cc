// Chooses sizes to record by the exact search of suggest_buckets(), and goes there step by step.
#include "cgtree/size_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "cgtree/suggest_buckets.h"

namespace cgtree {
namespace {

constexpr double kLeastGain = 0.02;
constexpr int kMostLeftOut = 6;     // of the largest sizes, for calls that run eagerly
constexpr double kMostAbove = 0.1;  // the share of such calls

void note_least(std::map<std::int64_t, double>& points, std::int64_t size, double us) {
  const auto [found, is_new] = points.try_emplace(size, us);
  if (!is_new) found->second = std::min(found->second, us);
}

}  // namespace

void SizeCosts::add(std::int64_t size, double replay_us, double eager_us) {
  note_least(replay_, size, replay_us);
  note_least(eager_, size, eager_us);
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
  const double slope =
      (right->second - left->second) / static_cast<double>(right->first - left->first);
  const double us = left->second + slope * static_cast<double>(size - left->first);
  return std::max(us, 0.0);
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

// The search takes the largest of its sizes for one that must be recorded, so it is asked again
// without the last few, as long as few calls have them.
SizeSet best_sizes(std::span<const SizeDemand> demand, const SizeCosts& costs,
                   std::size_t max_sizes) {
  constexpr double kUnit = 1024;  // counts are integers
  std::vector<SizeCount> all;
  for (const SizeDemand& one : demand) {
    const auto count = static_cast<std::uint64_t>(std::llround(one.weight * kUnit));
    if (count > 0) all.push_back({one.size, count});
  }
  std::vector<SizeCount> counts = cut_down(all);  // the search takes the square of their number
  std::map<std::int64_t, double> price;
  double highest = 0, calls = 0;
  for (const SizeCount& one : counts) {
    highest = std::max(highest, costs.replay(one.size));
    price[one.size] = highest;
    calls += static_cast<double>(one.count);
  }
  SizeSet best;
  double least = std::numeric_limits<double>::infinity(), above = 0;
  for (int left_out = 0; !counts.empty() && left_out < kMostLeftOut; ++left_out) {
    if (above > kMostAbove * calls) break;
    SizeSet sizes =
        suggest_buckets(counts, max_sizes, [&](std::int64_t size) { return price.at(size); });
    const double cost = cost_of(demand, sizes, costs);
    if (cost < least) {
      least = cost;
      best = std::move(sizes);
    }
    above += static_cast<double>(counts.back().count);
    counts.pop_back();
  }
  return best;
}

std::optional<SizeChange> next_sizes(std::span<const SizeDemand> demand, const SizeSet& recorded,
                                     const SizeCosts& costs, std::size_t max_sizes) {
  double weight = 0;
  for (const SizeDemand& one : demand)
    weight += one.weight;
  const SizeSet best = best_sizes(demand, costs, max_sizes);
  const double now = cost_of(demand, recorded, costs);
  if (now - cost_of(demand, best, costs) < kLeastGain * now) return std::nullopt;
  const auto with = [](SizeSet sizes, std::int64_t more) {
    sizes.insert(std::lower_bound(sizes.begin(), sizes.end(), more), more);
    return sizes;
  };
  const auto without = [](SizeSet sizes, std::int64_t less) {
    std::erase(sizes, less);
    return sizes;
  };
  // Each change brings the sizes nearer to the best ones, so they are reached, even if one alone
  // does not pay: the first size of two may be a large one, to which small calls are padded.
  std::optional<SizeChange> change;
  double least = std::numeric_limits<double>::infinity();
  for (const std::int64_t size : best) {
    if (std::ranges::binary_search(recorded, size)) continue;
    const double cost = cost_of(demand, with(recorded, size), costs);
    if (cost >= least) continue;
    least = cost;
    change = SizeChange{size, {}, 0};
  }
  if (!change) return std::nullopt;
  const SizeSet more = with(recorded, change->record);
  if (recorded.size() >= max_sizes) {
    least = std::numeric_limits<double>::infinity();
    for (const std::int64_t size : recorded) {
      if (std::ranges::binary_search(best, size)) continue;
      const double cost = cost_of(demand, without(more, size), costs);
      if (cost >= least) continue;
      least = cost;
      change->evict = size;
    }
  }
  change->gain_us = (now - least) / weight;
  return change;
}

}  // namespace cgtree
