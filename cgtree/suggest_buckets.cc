// Finds the cheapest buckets for the first sizes, allowing one bucket more in each round.
#include "cgtree/suggest_buckets.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

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

}  // namespace

std::vector<std::int64_t> suggest_buckets(std::span<const SizeCount> histogram,
                                          std::size_t max_buckets, const BucketCost& cost) {
  if (max_buckets == 0) throw InvalidArgument("suggest_buckets: at least one bucket is needed");
  const Sizes sizes = sizes_of(histogram, cost);
  const std::size_t n = sizes.count();
  if (n == 0) return {};

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

}  // namespace cgtree
