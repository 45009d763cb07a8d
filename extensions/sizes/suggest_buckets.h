// suggest_buckets(): the sizes to pad to that cost least for the sizes that calls had, of one axis
// or of several at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cgtree/values/axes.h"

namespace cgtree {

// Returns the cost of one call that is padded to this size.
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

// The most sizes of an axis that are searched together with those of others.
inline constexpr std::size_t kMostSizesTogether = 128;

// Returns at most kMostSizesTogether of the sizes, which are ascending: those that divide the calls
// into parts of about the same count. Calls with others count for the next larger size.
std::vector<SizeCount> cut_down(std::span<const SizeCount> counts);

// A BucketLimits limits the combinations of buckets, one of each axis. All of them count, also
// those that no call has had: precapture() records them all.
struct BucketLimits {
  std::size_t max_combinations = 128;  // at most kMostCombinations
  // If `bytes` is given: of all combinations together.
  std::size_t max_bytes = SIZE_MAX;
  // Returns the bytes of a recording with these sizes.
  std::function<double(std::span<const std::int64_t> sizes)> bytes = {};

  // The cap of max_combinations, whatever is asked for: the search looks at every way to share them
  // out among the axes.
  static constexpr std::size_t kMostCombinations = 65536;
};

// Returns a list of sizes for each axis, as suggest_buckets() does for one, within the limits. A
// call costs the product of what `costs` say of its buckets, one for each axis; where one is
// missing or empty, it is the size itself. All entries of the histogram have as many sizes, all
// positive.
//
// With one axis the result is that of suggest_buckets(). With several it is the best of what is
// found by giving one axis after the other its cheapest list while the others keep theirs, for each
// way to share the combinations out among the axes. That is the least cost in most cases, and
// seldom much more. An axis with more than 128 sizes is first cut down to 128 of them. Throws
// InvalidArgument as above, and if the largest sizes alone take more than `max_bytes`.
std::vector<std::vector<std::int64_t>> suggest_buckets(std::span<const SizesCount> histogram,
                                                       const BucketLimits& limits,
                                                       std::span<const BucketCost> costs = {});

}  // namespace cgtree
