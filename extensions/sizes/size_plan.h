// SizePlanner: which sizes to record next, and which to give up for them, from the sizes of calls
// and their costs; SizeCosts, which knows costs from measurements; and best_sizes(), which searches
// one axis for all that plan sizes. Pure.
//
// Example: one third of the calls has 3 rows, the others have 8, and 8 is recorded. A replay for 8
// rows takes 80 us and one for 3 would take 30, so to record 3 saves 17 us a call: it is the next
// one, until the sizes that are recorded cost at most 0.25 % more than the best ones, or 2 % where
// another one would have to go.
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

// Returns whether calls of these sizes are padded to the point, where it is recorded. If so, calls
// of larger sizes that the point holds are, too.
using Serves = std::function<bool(const Sizes& point, const Sizes& sizes)>;
// Serves all that it can: no size is larger than the point's.
bool holds(const Sizes& point, const Sizes& sizes) noexcept;

// Returns the set of at most `max_sizes` sizes with which all calls together cost least, and of
// those a smallest one, ascending. A call is padded to the next of them and costs `padded` of that
// size; where there is none, or the next one does not serve it, the call costs `eager` of its own
// size. Without `eager` no call may: the last size is the largest of all. `padded` must not fall as
// sizes grow, or counts as the most that it was before.
//
// The result is exact, by dynamic programming in O(n * n * max_sizes) for n sizes.
Sizes best_sizes(const AxisDemand& demand, std::size_t max_sizes, const SizeCost& padded,
                 const SizeCost& eager = {}, const Serves& serves = {});

// Returns at most 128 of the sizes, which divide the calls into parts of about the same count:
// best_sizes() takes the square of them. Calls with other sizes count for the next larger one.
AxisDemand cut_down(const AxisDemand& demand);

// Returns the product of the sizes, by which times are known.
std::int64_t work_of(const Sizes& sizes) noexcept;

// A SizeCosts holds the time that a call takes by size, in microseconds. Between sizes that were
// measured it is linear, beyond them replays go on as between the last two, and eager calls take as
// many times longer than replays as at the nearest size. So it is tried what a far size saves: two
// that lie close together tell little of it. A larger size never costs less.
class SizeCosts {
 public:
  // Notes what was measured at a size. The least of all measurements counts: what disturbs one
  // makes it longer. An eager call counts as a quarter longer than a replay at least, because the
  // host, which a replay leaves free, has work for all of it.
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
  std::optional<Sizes> evict;  // has to go first
  double gain_us = 0;          // of a call, on average; below 0 if the next change pays
};

// A SizePlanner compares sets of recordings for a demand, whose sizes are positive. A call is
// padded to the recorded point with the least product of sizes of those that serve it.
// The costs must outlive it.
class SizePlanner {
 public:
  SizePlanner(const Demand& demand, const SizeCosts& costs, Serves serves = holds);

  // Returns the time of all calls with these recordings, in any order.
  double cost_of(std::span<const Sizes> recorded) const;
  // Returns at most `max_points` points with which the calls take little time, in ascending order.
  // Of one axis they are exact, of up to 128 sizes. Of several they are found by adding the point
  // that gains most until there are as many, and then by exchanging one for a better one as long
  // as that gains.
  std::vector<Sizes> best(std::size_t max_points) const;
  // Returns the change that gains most of those on the way to best(), or nothing if those gain less
  // than 2 %: so sizes whose demand is nearly the same do not take turns. While there is room for
  // one more, 0.25 % suffices. `max_points`: at least 1. A point is evicted only where as many are
  // recorded.
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
