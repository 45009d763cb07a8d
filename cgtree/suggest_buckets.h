// suggest_buckets(): the sizes to pad to that cost least for the sizes that calls had.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace cgtree {

// A SizeCount says how often calls had a size.
struct SizeCount {
  std::int64_t size = 0;
  std::uint64_t count = 0;

  friend bool operator==(const SizeCount&, const SizeCount&) = default;
};

// Returns what one call costs that is padded to this size.
using BucketCost = std::function<double(std::int64_t size)>;

// Returns at most `max_buckets` sizes, ascending, the last one the largest of the histogram. Of all
// such lists it is one for which the sum of count * cost(the smallest bucket that holds the size)
// is least, and of those one of the shortest. `cost` must not fall as sizes grow; by default it is
// the size itself, for functions whose time is linear in it. The histogram may be in any order, and
// may name a size twice.
//
// The result is exact, by dynamic programming in O(n * n * max_buckets) for n sizes. Throws
// InvalidArgument for max_buckets == 0, a size that is not positive and a cost that falls.
std::vector<std::int64_t> suggest_buckets(std::span<const SizeCount> histogram,
                                          std::size_t max_buckets, const BucketCost& cost = {});

}  // namespace cgtree
