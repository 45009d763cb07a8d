// SizePlanner: which sizes to record next, and which to drop for them, from the sizes of calls and
// their costs; SizeCosts: costs from measurements; best_sizes(): the search on one axis that all
// planners of sizes use. Pure.
//
// Example: one third of the calls has 3 rows, the others have 8, and 8 is recorded. A replay for 8
// rows takes 80 us and a replay for 3 would take 30, so recording 3 saves 17 us a call: it comes
// next, until the recorded sizes cost at most 0.25 % more than the best ones, or 2 % if another
// size would have to be dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cgtree/values/axes.h"

namespace cgtree {

// Returns the cost of one call by its size.
using SizeCost = std::function<double(std::int64_t size)>;

// How often calls have the sizes of one axis, and the sizes of several axes: one Sizes for each
// combination, with one size of each axis. Older calls may weigh less.
using AxisDemand = std::map<std::int64_t, double>;
using Demand = std::map<Sizes, double>;

// Returns whether calls of these sizes are padded to the point, if it is recorded. If so, calls of
// larger sizes that the point holds are padded to it, too.
using Serves = std::function<bool(const Sizes& point, const Sizes& sizes)>;
// A Serves with the weakest condition: no size is larger than the point's.
bool holds(const Sizes& point, const Sizes& sizes) noexcept;

// Returns the set of at most `max_sizes` sizes with the least cost of all calls together, and among
// those a smallest one, ascending. A call is padded to the next of them and costs `padded` of that
// size; if there is none, or the next one does not serve it, the call costs `eager` of the call's
// size. Without `eager` all calls must be served: the last size is the largest of all. `padded`
// must not fall as sizes grow; a smaller value counts as the most before it.
//
// The result is exact, by dynamic programming in O(n * n * max_sizes) for n sizes.
Sizes best_sizes(const AxisDemand& demand, std::size_t max_sizes, const SizeCost& padded,
                 const SizeCost& eager = {}, const Serves& serves = {});

// Returns at most 128 of the sizes, which divide the calls into parts of about the same count:
// best_sizes() takes the square of them. Calls with other sizes count as the next larger size.
AxisDemand cut_down(const AxisDemand& demand);

// Returns the product of the sizes, the key of the known times.
std::int64_t work_of(const Sizes& sizes) noexcept;

// A SizeCosts holds the time that a call takes by size, in microseconds. Between measured sizes it
// is linear; beyond them replays continue the line of the last two, and the ratio of eager calls to
// replays is that of the nearest size. So the saving of a far size is tested by recording it: two
// sizes that lie close together say little about it. A larger size never costs less.
class SizeCosts {
 public:
  // Notes a measurement at a size. The least of all measurements counts, because disturbances only
  // add time. An eager call counts as at least a quarter longer than a replay, because it keeps the
  // host busy, which a replay leaves free.
  void add(std::int64_t size, double replay_us, double eager_us);
  // Returns whether add() was called.
  bool are_measured() const noexcept { return !replay_.empty(); }
  // A call that replays a recording of this size; the size itself before anything was measured.
  double replay(std::int64_t size) const { return at(replay_, size, 1); }
  // A call of this size that runs eagerly; twice the size before anything was measured.
  double eager(std::int64_t size) const;

 private:
  using Points = std::map<std::int64_t, double>;

  static double at(const Points& points, std::int64_t size, double otherwise);

  Points replay_, eager_;
};

// A SizeChange is one step from a set of recordings to a better one.
struct SizeChange {
  Sizes record;
  std::optional<Sizes> evict;  // must be dropped first
  double gain_us = 0;          // per call, on average; below 0 if the next change pays
};

// A SizePlanner compares sets of recordings for a demand, whose sizes are positive. A call is
// padded to the recorded point with the least product of sizes among those that serve it. The costs
// must outlive it.
class SizePlanner {
 public:
  SizePlanner(const Demand& demand, const SizeCosts& costs, Serves serves = holds);

  // Returns the time of all calls with these recordings, in any order.
  double cost_of(std::span<const Sizes> recorded) const;
  // Returns at most `max_points` points with which the calls take little time, in ascending order.
  // For one axis they are exact, up to 128 sizes. For several axes they are found by adding the
  // point that gains most until there are as many, and then by exchanging a point for a better one
  // as long as that gains.
  std::vector<Sizes> best(std::size_t max_points) const;
  // Returns the change that gains most on the way to best(), or nothing if the gain is less than 2
  // %: so sizes with nearly the same demand do not alternate. While there is room for another size,
  // 0.25 % suffices. `max_points`: at least 1. A point is evicted only if that many are recorded.
  std::optional<SizeChange> next(const std::vector<Sizes>& recorded, std::size_t max_points) const;

 private:
  class Coverage;

  std::vector<Sizes> best_of_one_axis(std::size_t max_points) const;
  std::vector<Sizes> candidates() const;
  void add_best(std::span<const Sizes> among, std::size_t max_points,
                std::vector<Sizes>& chosen) const;

  const std::vector<std::pair<Sizes, double>> demand_;
  const SizeCosts& costs_;
  const Serves serves_;
};

}  // namespace cgtree
