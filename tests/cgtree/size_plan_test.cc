// The choice of recorded sizes, against the best sizes in hindsight.
#include "extensions/sizes/size_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <vector>

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The demand of a single axis.
Demand demand_of(const AxisDemand& weights) {
  Demand demand;
  for (const auto& [size, weight] : weights)
    demand[{size}] = weight;
  return demand;
}
std::vector<Sizes> points_of(const Sizes& sizes) {
  std::vector<Sizes> points;
  for (const std::int64_t size : sizes)
    points.push_back({size});
  return points;
}
Sizes best_of(const Demand& demand, const SizeCosts& costs, std::size_t max_sizes) {
  Sizes sizes;
  for (const Sizes& point : SizePlanner(demand, costs).best(max_sizes))
    sizes.push_back(point[0]);
  return sizes;
}
std::optional<SizeChange> next_of(const Demand& demand, const Sizes& recorded,
                                  const SizeCosts& costs, std::size_t max_sizes) {
  return SizePlanner(demand, costs).next(points_of(recorded), max_sizes);
}
double cost_of(const Demand& demand, const Sizes& recorded, const SizeCosts& costs) {
  return SizePlanner(demand, costs).cost_of(points_of(recorded));
}

// A replay takes 10 us and 1 us for each row, an eager call 50 us more.
SizeCosts linear_costs() {
  SizeCosts costs;
  for (const std::int64_t size : {1, 100})
    costs.add(size, 10.0 + static_cast<double>(size), 60.0 + static_cast<double>(size));
  return costs;
}

TEST(SizePlanTest, TheFirstSizeIsTheLargestThatServesAll) {
  const Demand demand = demand_of({{3, 1}, {8, 2}});
  const auto change = next_of(demand, {}, linear_costs(), 4);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->record, Sizes{8});
  EXPECT_FALSE(change->evict);
}

TEST(SizePlanTest, TheSizeThatGainsMostIsNext) {
  const Demand demand = demand_of({{10, 1}, {40, 8}, {50, 1}, {100, 1}});
  const auto change = next_of(demand, {100}, linear_costs(), 3);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->record, Sizes{40});
  EXPECT_FALSE(change->evict);
  EXPECT_NEAR(change->gain_us, 9 * 60 / 11.0, 1e-9);  // calls with size 10 gain, too
}

TEST(SizePlanTest, ASizeThatIsNoneOfTheBestGoesWhenThereIsNoRoom) {
  const Demand demand = demand_of({{30, 10}, {100, 10}});
  const auto change = next_of(demand, {70, 100}, linear_costs(), 2);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->record, Sizes{30});
  EXPECT_EQ(change->evict, Sizes{70});
  EXPECT_FALSE(next_of(demand, {30, 100}, linear_costs(), 2));
}

// A single size would make calls no faster: small calls lose as much as large ones gain.
TEST(SizePlanTest, TheBestSizesAreReachedThroughWorseOnes) {
  AxisDemand weights;
  for (std::int64_t size = 1; size <= 100; ++size)
    weights[size] = 1;
  const Demand demand = demand_of(weights);
  const SizeCosts unmeasured;
  Sizes recorded;
  while (const auto change = next_of(demand, recorded, unmeasured, 2)) {
    EXPECT_FALSE(change->evict);
    recorded.push_back(change->record[0]);
    ASSERT_LE(recorded.size(), 2u);
  }
  std::ranges::sort(recorded);
  EXPECT_EQ(recorded, best_of(demand, unmeasured, 2));
}

// 68 instead of 70 saves 1 %.
TEST(SizePlanTest, NoSizeGoesForLessThanTwoPercent) {
  const Demand demand = demand_of({{68, 100}, {100, 100}});
  EXPECT_FALSE(next_of(demand, {70, 100}, linear_costs(), 2));
  const auto change = next_of(demand, {70, 100}, linear_costs(), 3);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->record, Sizes{68});
  EXPECT_FALSE(change->evict);
}

TEST(SizePlanTest, NothingIsRecordedForLessThanAQuarterOfAPercent) {
  const Demand demand = demand_of({{999, 100}, {1000, 100}});
  EXPECT_FALSE(next_of(demand, {1000}, linear_costs(), 8));
  EXPECT_FALSE(next_of({}, {100}, linear_costs(), 8));
  EXPECT_FALSE(next_of({}, {}, linear_costs(), 8));
}

TEST(SizePlanTest, ALargeSizeThatComesSeldomIsNotRecorded) {
  const Demand demand = demand_of({{4, 10}, {8, 10}, {9, 10}, {64, 0.1}});
  EXPECT_THAT(best_of(demand, linear_costs(), 1), ElementsAre(9));
  EXPECT_THAT(best_of(demand, linear_costs(), 4), ElementsAre(4, 8, 9, 64));
  const auto change = next_of(demand, {64}, linear_costs(), 1);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->record, Sizes{9});
  EXPECT_EQ(change->evict, Sizes{64});
}

TEST(SizePlanTest, AReplayThatTakesAsLongForEachSizeNeedsOneRecording) {
  SizeCosts flat;
  for (const std::int64_t size : {1, 100})
    flat.add(size, 20, 100);
  const Demand demand = demand_of({{1, 5}, {50, 5}, {100, 5}});
  EXPECT_THAT(best_of(demand, flat, 8), ElementsAre(100));
  EXPECT_FALSE(next_of(demand, {100}, flat, 8));
}

TEST(SizeCostsTest, TimesAreLinearBetweenWhatWasMeasured) {
  SizeCosts costs;
  EXPECT_EQ(costs.replay(7), 7);
  EXPECT_EQ(costs.eager(7), 14);
  costs.add(10, 30, 90);
  EXPECT_EQ(costs.replay(20), 60);
  costs.add(30, 50, 110);
  EXPECT_EQ(costs.replay(20), 40);
  EXPECT_EQ(costs.replay(40), 60);
  EXPECT_EQ(costs.replay(0), 20);
  costs.add(30, 70, 100);  // the minimum of each counts separately
  EXPECT_EQ(costs.replay(30), 50);
  EXPECT_EQ(costs.eager(30), 100);
}

// The eager call was measured as faster than the replay, but the host has to do all of its work.
TEST(SizePlanTest, AnEagerCallCountsAsAQuarterLongerThanAReplayAtLeast) {
  SizeCosts costs;
  costs.add(8, 40, 30);

  EXPECT_EQ(costs.eager(8), 50);
  EXPECT_EQ(best_of(demand_of({{8, 1}}), costs, 4), Sizes({8}));
}

// The larger of two sizes was measured as the faster one, or as the one that saves less.
TEST(SizeCostsTest, NoiseOfSmallSizesDoesNotMakeLargeOnesWorthless) {
  for (const auto& [replay_us, eager_us] : {std::pair(11.9, 29.0), std::pair(12.5, 30.1)}) {
    SizeCosts costs;
    costs.add(10, 12, 30);
    costs.add(20, replay_us, eager_us);
    EXPECT_GE(costs.replay(1'000'000), replay_us);
    EXPECT_GT(costs.eager(1'000'000), 2 * costs.replay(1'000'000));
    const Demand demand = demand_of({{10, 1}, {20, 1}, {1'000'000, 1}});
    const auto change = next_of(demand, {10, 20}, costs, 4);
    ASSERT_TRUE(change);
    EXPECT_EQ(change->record, Sizes{1'000'000});
  }
}

TEST(SizeCostsTest, AMeasurementThatFallsMakesNoLargerSizeCheaper) {
  SizeCosts costs;
  costs.add(10, 30, 90);
  costs.add(20, 25, 90);
  costs.add(40, 60, 90);
  const Demand demand = demand_of({{10, 1}, {20, 1}, {40, 1}});
  EXPECT_THAT(best_of(demand, costs, 3), ElementsAre(20, 40));
}

// Compared with every set. Eager calls have any cost, also below that of replays.
TEST(SizePlanTest, NoSetIsBetterThanTheBest) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const auto draw = [&](int most) { return 1 + static_cast<int>(random() % most); };
  for (int round = 0; round < 300; ++round) {
    SizeCosts costs;
    AxisDemand weights;
    double replay_us = 0;
    for (std::int64_t size = 0, left = draw(8); left > 0; --left) {
      size += draw(30);
      replay_us += draw(20);
      costs.add(size, replay_us, draw(200));
      weights[size] = draw(40);
    }
    const Demand demand = demand_of(weights);
    const auto max_sizes = static_cast<std::size_t>(draw(9));
    double least = cost_of(demand, {}, costs);
    for (unsigned set = 1; set < 1U << demand.size(); ++set) {
      Sizes sizes;
      std::size_t i = 0;
      for (const auto& [size, weight] : weights)
        if ((set >> i++ & 1) != 0) sizes.push_back(size);
      if (sizes.size() <= max_sizes) least = std::min(least, cost_of(demand, sizes, costs));
    }
    const Sizes best = best_of(demand, costs, max_sizes);
    ASSERT_LE(best.size(), max_sizes);
    ASSERT_NEAR(cost_of(demand, best, costs), least, 1e-9 * least) << "round " << round;
  }
}

// Each call is padded to the smallest product that holds both sizes.
TEST(SizePlanTest, PointsOfTwoAxesAreChosenTogether) {
  const SizeCosts unmeasured;
  const SizePlanner planner(Demand{{{2, 100}, 10}, {{100, 2}, 10}}, unmeasured);
  const std::vector<Sizes> apart = {{2, 100}, {100, 2}};
  EXPECT_EQ(planner.best(4), apart);
  EXPECT_EQ(planner.cost_of(apart), 20 * 200);
  EXPECT_EQ(planner.best(1).size(), 1u);
  const SizePlanner near(Demand{{{10, 9}, 10}, {{9, 10}, 10}}, unmeasured);
  EXPECT_EQ(near.best(1), (std::vector<Sizes>{{10, 10}}));
  const auto change = near.next({{10, 10}, {50, 50}}, 2);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->evict, (Sizes{50, 50}));
}

// Compared with every set of points of the grid.
TEST(SizePlanTest, PointsOfTwoAxesAreHardlyWorseThanTheBest) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const auto draw = [&](int most) { return 1 + static_cast<int>(random() % most); };
  const SizeCosts costs = linear_costs();
  double sum = 0, worst = 1;
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    Demand demand;
    for (int left = draw(5); left > 0; --left)
      demand[{draw(8), draw(8)}] = draw(20);
    const SizePlanner planner(demand, costs);
    std::vector<Sizes> grid;
    for (const auto& [point, weight] : demand) {
      for (const auto& [other, unused] : demand)
        grid.push_back({point[0], other[1]});
    }
    std::ranges::sort(grid);
    grid.erase(std::ranges::unique(grid).begin(), grid.end());
    const std::size_t max_points = static_cast<std::size_t>(draw(3));
    double least = planner.cost_of({});
    const auto search = [&](const auto& self, std::vector<Sizes>& chosen,
                            std::size_t from) -> void {
      least = std::min(least, planner.cost_of(chosen));
      if (chosen.size() == max_points) return;
      for (std::size_t i = from; i < grid.size(); ++i) {
        chosen.push_back(grid[i]);
        self(self, chosen, i + 1);
        chosen.pop_back();
      }
    };
    std::vector<Sizes> none;
    search(search, none, 0);
    const std::vector<Sizes> best = planner.best(max_points);
    ASSERT_LE(best.size(), max_points);
    const double ratio = planner.cost_of(best) / least;
    ASSERT_GE(ratio, 1 - 1e-9);
    sum += ratio;
    worst = std::max(worst, ratio);
  }
  EXPECT_LT(sum / kRounds, 1.005);
  // 1.24 was the worst of 40,000 rounds.
  EXPECT_LT(worst, 1.5);
}

// A load of random sizes around a median, as lengths of prompts and batches are.
class Load {
 public:
  Load(double median, double spread) : sizes_(std::log(median), spread) {}
  std::int64_t draw(std::mt19937_64& random) {
    return std::clamp<std::int64_t>(std::llround(sizes_(random)), 1, 512);
  }

 private:
  std::lognormal_distribution<double> sizes_;
};

double cost_per_call(const Demand& demand, const Sizes& sizes, const SizeCosts& costs) {
  double weight = 0;
  for (const auto& [size, calls] : demand)
    weight += calls;
  return cost_of(demand, sizes, costs) / weight;
}

// After 500 calls of a new load, the sizes cost little more than the best ones for that load,
// whatever the previous load; and while the load stays, few sizes change.
TEST(SizePlanTest, SizesFollowALoadThatChanges) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const SizeCosts costs = linear_costs();
  constexpr std::size_t kMaxSizes = 16;
  double ratios = 0;
  for (int round = 0; round < 5; ++round) {
    std::uniform_real_distribution<double> median(4, 200), spread(0.2, 0.8);
    AxisDemand weights;
    Sizes recorded;
    for (int phase = 0; phase < 3; ++phase) {
      Load load(median(random), spread(random));
      AxisDemand asked;
      double paid = 0;
      int late_changes = 0;
      for (int call = 0; call < 2000; ++call) {
        const std::int64_t size = load.draw(random);
        for (auto& [known, weight] : weights)
          weight *= std::exp2(-1.0 / 128);
        weights[size] += 1;
        if (call >= 500) {
          asked[size] += 1;
          paid += cost_of(demand_of({{size, 1}}), recorded, costs);
        }
        if (call % 16 != 0) continue;
        const auto change = next_of(demand_of(weights), recorded, costs, kMaxSizes);
        if (!change) continue;
        late_changes += call >= 1000;
        if (change->evict) std::erase(recorded, (*change->evict)[0]);
        recorded.push_back(change->record[0]);
        ASSERT_LE(recorded.size(), kMaxSizes);
      }
      const Demand all = demand_of(asked);
      const double best = cost_per_call(all, best_of(all, costs, kMaxSizes), costs);
      EXPECT_LT(paid / 1500, 1.1 * best) << "round " << round << ", phase " << phase;
      EXPECT_LT(late_changes, 20);
      ratios += paid / 1500 / best;
    }
  }
  EXPECT_LT(ratios / 15, 1.05);
}

}  // namespace
}  // namespace cgtree::testing
