// Weighs patches against copies.
#include "extensions/rebind/rebind_choice.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace cgtree {
namespace {

double cost_of(std::span<const RebindCandidate> candidates, const std::vector<bool>& rebound,
               bool has_root, bool has_tail, const RebindCosts& costs) {
  std::set<std::uint32_t> patched;
  double cost = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const RebindCandidate& one = candidates[i];
    if (rebound[i]) {
      patched.insert(one.nodes.begin(), one.nodes.end());
      continue;
    }
    has_root = has_root || one.is_copied_in;
    has_tail = has_tail || one.is_copied_out;
    cost += static_cast<double>(one.bytes) * (one.is_copied_in + one.is_copied_out) / costs.bytes;
  }
  if (!patched.empty()) cost += costs.first_patch;
  return cost + static_cast<double>(patched.size()) * costs.patch +
         (has_root + has_tail) * costs.gather_node;
}

}  // namespace

// In the order of bytes per node, the rebound inputs are a prefix: the cheapest of n + 1 is taken.
std::vector<bool> choose_rebound(std::span<const RebindCandidate> candidates, bool has_root,
                                 bool has_tail, const RebindCosts& costs) {
  std::vector<std::size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t i, std::size_t j) {
    const RebindCandidate& a = candidates[i];
    const RebindCandidate& b = candidates[j];
    if (a.is_forced != b.is_forced) return a.is_forced;
    return static_cast<double>(a.bytes) * static_cast<double>(b.nodes.size()) >
           static_cast<double>(b.bytes) * static_cast<double>(a.nodes.size());
  });
  std::vector<bool> rebound(candidates.size(), false);
  std::size_t next = 0;
  for (; next < order.size() && candidates[order[next]].is_forced; ++next)
    rebound[order[next]] = true;
  std::vector<bool> best = rebound;
  double least = cost_of(candidates, rebound, has_root, has_tail, costs);
  for (; next < order.size(); ++next) {
    rebound[order[next]] = true;
    const double cost = cost_of(candidates, rebound, has_root, has_tail, costs);
    if (cost >= least) continue;
    least = cost;
    best = rebound;
  }
  return best;
}

}  // namespace cgtree
