// suggest_buckets(): the sizes to pad to with the least cost for the sizes that calls had, for one
// axis or for several at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "extensions/sizes/size_plan.h"

namespace cgtree {

// Returns at most `max_buckets` sizes, ascending, the last one the largest of the histogram. Among
// all such lists it is one for which the sum of count * cost(the smallest bucket that holds the
// size) is least, and among those one of the shortest. `cost` must not fall as sizes grow; by
// default it is the size itself, for functions whose time is linear in it.
//
// The result is that of best_sizes(). Throws InvalidArgument for max_buckets == 0, a size that is
// not positive and a cost that falls.
Sizes suggest_buckets(const std::map<std::int64_t, std::uint64_t>& histogram,
                      std::size_t max_buckets, const SizeCost& cost = {});

// A BucketLimits limits the combinations of one bucket of each axis. All of them count, including
// those that no call has had: precapture() records them all.
struct BucketLimits {
  std::size_t max_combinations = 128;  // at most kMostCombinations
  // If `bytes` is given: for all combinations together.
  std::size_t max_bytes = SIZE_MAX;
  // Returns the bytes of a recording with these sizes.
  std::function<double(std::span<const std::int64_t> sizes)> bytes = {};

  // The upper bound of max_combinations: the search considers every way to share them out among the
  // axes.
  static constexpr std::size_t kMostCombinations = 65536;
};

// Returns a list of sizes for each axis, as suggest_buckets() does for one axis, within the limits.
// The cost of a call is the product of the `costs` of its buckets, one for each axis; a missing or
// empty function means the size itself. All entries of the histogram have the same number of sizes,
// all positive.
//
// With one axis the result is that of suggest_buckets(). With several axes it is the best list
// found by giving one axis after the other its cheapest list while the others keep theirs, for each
// way to share the combinations out among the axes. In most cases this is the least cost, and it is
// seldom much more. An axis with more than 128 sizes is first cut down to 128 of them. Throws
// InvalidArgument as above, and if the largest sizes alone take more than `max_bytes`.
std::vector<Sizes> suggest_buckets(const std::map<Sizes, std::uint64_t>& histogram,
                                   const BucketLimits& limits,
                                   std::span<const SizeCost> costs = {});

}  // namespace cgtree
