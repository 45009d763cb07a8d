// Finds the best sizes by dynamic programming, and goes there step by step.
#include "cgtree/size_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "cgtree/suggest_buckets.h"

namespace cgtree {
namespace {

constexpr double kLeastGain = 0.02;

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

// Dynamic programming: least[e] is the least cost of calls with the first e sizes, the largest of
// which is recorded; those above it run eagerly.
SizeSet best_sizes(std::span<const SizeDemand> demand, const SizeCosts& costs,
                   std::size_t max_sizes) {
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
        const double cost = least[b] + (calls[e] - calls[b]) * price[e - 1];
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
