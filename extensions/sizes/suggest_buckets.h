// suggest_buckets(): the sizes to pad to that cost least for the sizes that calls had, of one axis
// or of several at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "extensions/sizes/size_plan.h"

namespace cgtree {

// Returns at most `max_buckets` sizes, ascending, the last one the largest of the histogram. Of all
// such lists it is one for which the sum of count * cost(the smallest bucket that holds the size)
// is least, and of those one of the shortest. `cost` must not fall as sizes grow; by default it is
// the size itself, for functions whose time is linear in it.
//
// The result is that of best_sizes(). Throws InvalidArgument for max_buckets == 0, a size that is
// not positive and a cost that falls.
Sizes suggest_buckets(const std::map<std::int64_t, std::uint64_t>& histogram,
                      std::size_t max_buckets, const SizeCost& cost = {});

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
std::vector<Sizes> suggest_buckets(const std::map<Sizes, std::uint64_t>& histogram,
                                   const BucketLimits& limits,
                                   std::span<const SizeCost> costs = {});

}  // namespace cgtree
