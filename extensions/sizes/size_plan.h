// next_sizes(): which size to record next, and which to give up for it, from what calls asked for
// and what replays cost; SizeCosts, which knows that from measurements; and what_to_do() in an idle
// moment. Pure.
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
#include <vector>

namespace cgtree {

// A SizeDemand says how often calls have a size. Older calls weigh less.
struct SizeDemand {
  std::int64_t size = 0;
  double weight = 0;
};

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

// A SizeSet is a set of sizes that are recorded, ascending. A call is padded to the next of them,
// and runs eagerly above the last.
using SizeSet = std::vector<std::int64_t>;

// Returns what all calls take with these recordings.
double cost_of(std::span<const SizeDemand> demand, const SizeSet& recorded, const SizeCosts& costs);

// Returns the set of at most `max_sizes` sizes with which the calls take least time, and of those a
// smallest one. Exact for up to 128 different sizes; of more, those are taken that divide the calls
// into parts of about the same count.
SizeSet best_sizes(std::span<const SizeDemand> demand, const SizeCosts& costs,
                   std::size_t max_sizes);

// The next ones are the same for several axes at once, and for calls that are not padded to each
// size that holds them. A SizePoint has one size of each axis, and a
// call is padded to the recorded point with the least product of sizes of those that hold it.
using SizePoint = std::vector<std::int64_t>;

// A PointDemand says how often calls have these sizes.
struct PointDemand {
  SizePoint sizes;
  double weight = 0;
};

// Returns whether a recording of the point can serve calls of these sizes: none is larger.
bool holds(const SizePoint& point, const SizePoint& sizes) noexcept;
// Whether calls of these sizes are padded to the point, which holds them, where it is recorded. If
// so, calls of larger sizes that the point holds are, too.
using Serves = std::function<bool(const SizePoint& point, const SizePoint& sizes)>;
// Returns the product of the sizes, by which times are known.
std::int64_t work_of(const SizePoint& sizes) noexcept;
// As above; a call that the next size does not serve runs eagerly.
SizeSet best_sizes(std::span<const SizeDemand> demand, const SizeCosts& costs,
                   std::size_t max_sizes, const Serves& serves);
// Returns what all calls take with these recordings, in any order.
double cost_of(std::span<const PointDemand> demand, std::span<const SizePoint> recorded,
               const SizeCosts& costs, const Serves& serves = holds);

// Returns at most `max_points` points with which the calls take little time, in ascending order. Of
// one axis they are best_sizes(). Of several they are found by adding the point that gains most
// until there are as many, and then by exchanging one for a better one as long as that gains.
std::vector<SizePoint> best_points(std::span<const PointDemand> demand, const SizeCosts& costs,
                                   std::size_t max_points, const Serves& serves = holds);

// A PointChange is one step from a set of recordings to a better one.
struct PointChange {
  SizePoint record;
  std::optional<SizePoint> evict;  // has to go first
  double gain_us = 0;              // of a call, on average; below 0 if the next change pays
};

// As next_sizes().
std::optional<PointChange> next_points(std::span<const PointDemand> demand,
                                       const std::vector<SizePoint>& recorded,
                                       const SizeCosts& costs, std::size_t max_points,
                                       const Serves& serves = holds);

// A SizeChange is one step from a set of recordings to a better one.
struct SizeChange {
  std::int64_t record = 0;
  std::optional<std::int64_t> evict;  // has to go first
  double gain_us = 0;                 // of a call, on average; below 0 if the next change pays
  friend bool operator==(const SizeChange&, const SizeChange&) = default;
};

// Returns the change that gains most of those on the way to best_sizes(), or nothing if those gain
// less than 2 %: so sizes whose demand is nearly the same do not take turns. While there is room
// for one more, 0.25 % suffices. `max_sizes`: at least 1. A size is evicted only where as many are
// recorded. `demand`: ascending sizes, each once, positive.
std::optional<SizeChange> next_sizes(std::span<const SizeDemand> demand, const SizeSet& recorded,
                                     const SizeCosts& costs, std::size_t max_sizes);

// What an idle moment is used for.
enum class IdleDeed : std::uint8_t { kNothing, kRecord, kVerify, kGiveBack };

// An IdleMoment is what there is to do.
struct IdleMoment {
  bool has_change = false;          // next_sizes() has one
  bool may_record = false;          // it has time and memory
  bool may_verify = false;          // a recording had no turn to be verified, and there is time
  std::size_t used_bytes = 0;       // of the pools, by recordings and outputs
  std::size_t free_bytes = 0;       // what may be given back of the rest
  bool is_short_of_memory = false;  // the pools hold as much as they may
};

// Returns the most useful thing: to record, which makes calls faster, or to give back what memory
// is short for it; else to verify; else to give back memory where more than half of it is free.
IdleDeed what_to_do(const IdleMoment& moment) noexcept;

}  // namespace cgtree
