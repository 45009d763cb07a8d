// Plans say what recording really takes, and the best order is the best.
#include "allocator/pool/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "allocator/pool/pool.h"
#include "base/error.h"
#include "tests/allocator/fake_segment_source.h"

namespace cgtree {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::size_t kMiB = std::size_t{1} << 20;
using Order = std::vector<std::size_t>;

Order ascending(std::size_t count) {
  Order order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

// Allocates all, then frees what is no output.
AllocationTrace trace_of(std::vector<std::size_t> sizes, std::vector<std::size_t> outputs = {}) {
  AllocationTrace trace{"trace", {}, std::move(outputs)};
  for (std::size_t i = 0; i < sizes.size(); ++i)
    trace.steps.push_back({i, sizes[i]});
  return trace;
}

AllocationTrace random_trace(std::mt19937& random) {
  AllocationTrace trace{"random", {}, {}};
  std::vector<std::size_t> live;
  const std::size_t steps = 2 + random() % 20;
  for (std::size_t i = 0; i < steps; ++i) {
    if (!live.empty() && random() % 3 == 0) {
      const std::size_t victim = random() % live.size();
      trace.steps.push_back({live[victim], 0});
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
    } else {
      const std::size_t most[] = {2000, kMiB, 12 * kMiB, 40 * kMiB};
      trace.steps.push_back({100 + i, 1 + random() % most[random() % 4]});
      live.push_back(100 + i);
    }
  }
  for (const std::size_t allocation : live) {
    if (random() % 2 == 0) trace.outputs.push_back(allocation);
  }
  return trace;
}

std::vector<AllocationTrace> random_traces(std::mt19937& random, std::size_t count) {
  std::vector<AllocationTrace> traces;
  for (std::size_t i = 0; i < count; ++i)
    traces.push_back(random_trace(random));
  return traces;
}

PlanOptions random_options(std::mt19937& random) {
  return {random() % 2 == 0 ? OutputPlacement::kApart : OutputPlacement::kTogether,
          random() % 2 == 0 ? Growth::kFast : Growth::kCompact};
}

bool is_output(const AllocationTrace& trace, std::size_t allocation) {
  return std::count(trace.outputs.begin(), trace.outputs.end(), allocation) > 0;
}

// The same by hand: one pool, or two, that restore to their outputs after each recording. Counts
// segments at the source.
PlanPeak for_real(const std::vector<AllocationTrace>& traces, const Order& order,
                  const PlanOptions& options) {
  FakeSegmentSource source;
  Pool pools[] = {Pool(source, {.growth = options.growth}),
                  Pool(source, {.growth = options.growth})};
  const bool apart = options.outputs == OutputPlacement::kApart;
  std::vector<Range> kept[2];
  PlanPeak peak;
  for (const std::size_t index : order) {
    std::map<std::size_t, void*> blocks;
    for (const AllocationTrace::Step& step : traces[index].steps) {
      const bool is_kept = is_output(traces[index], step.allocation);
      Pool& pool = pools[is_kept && apart];
      if (step.bytes == 0) {
        pool.free(blocks.at(step.allocation));
        continue;
      }
      blocks[step.allocation] = pool.allocate(step.bytes);
      if (is_kept) {
        kept[apart].push_back({reinterpret_cast<std::uintptr_t>(blocks[step.allocation]),
                               (step.bytes + 511) / 512 * 512});
      }
      std::size_t reserved = 0, live = 0;
      for (const Range& segment : source.held())
        reserved += segment.bytes;
      for (const Pool& each : pools) {
        for (const Range& block : each.live())
          live += block.bytes;
      }
      peak = {std::max(peak.reserved, reserved), std::max(peak.live, live)};
    }
    for (int i : {0, 1})
      pools[i].restore_live(kept[i]);
  }
  for (Pool& pool : pools)
    pool.restore_live({});
  return peak;
}

class PlanTest : public testing::Test {
 protected:
  PlanTest() {
    RecordProperty("seed", std::to_string(seed_));
    trace_.emplace(__FILE__, __LINE__, testing::Message() << "seed " << seed_);
  }

  const unsigned seed_ = std::random_device{}();
  std::mt19937 random_{seed_};
  std::optional<testing::ScopedTrace> trace_;
};

TEST_F(PlanTest, SimulatesWhatRecordingForRealTakes) {
  for (int round = 0; round < 100; ++round) {
    const std::vector<AllocationTrace> traces = random_traces(random_, 1 + random_() % 6);
    const PlanOptions options = random_options(random_);
    Order order = ascending(traces.size());
    std::shuffle(order.begin(), order.end(), random_);

    EXPECT_EQ(simulate(traces, order, options), for_real(traces, order, options));
  }
}

TEST_F(PlanTest, BestOrderIsTheBestOfAllOrders) {
  for (int round = 0; round < 20; ++round) {
    const std::vector<AllocationTrace> traces = random_traces(random_, 1 + random_() % 5);
    const PlanOptions options = random_options(random_);
    std::size_t least = SIZE_MAX;
    Order order = ascending(traces.size());
    do {
      least = std::min(least, simulate(traces, order, options).reserved);
    } while (std::next_permutation(order.begin(), order.end()));

    const OrderPlan plan = best_order(traces, options);

    EXPECT_EQ(plan.peak.reserved, least);
    EXPECT_EQ(plan.peak, simulate(traces, plan.order, options));
    EXPECT_EQ(plan.method, PlanMethod::kExhaustive);
  }
}

TEST_F(PlanTest, BestOrderIsNeverWorseThanBySize) {
  for (int round = 0; round < 20; ++round) {
    const std::vector<AllocationTrace> traces = random_traces(random_, 9 + random_() % 9);
    const PlanOptions options = random_options(random_);
    Order order = ascending(traces.size());
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return simulate(traces, Order{a}, options).live < simulate(traces, Order{b}, options).live;
    });

    const std::size_t best = best_order(traces, options).peak.reserved;

    EXPECT_LE(best, simulate(traces, order, options).reserved);
    std::reverse(order.begin(), order.end());
    EXPECT_LE(best, simulate(traces, order, options).reserved);
  }
}

TEST_F(PlanTest, BestOrderHasEachTraceOnceAndItsPeak) {
  for (const std::size_t count : {kLargestExhaustivePlan, kLargestExhaustivePlan + 1}) {
    std::vector<AllocationTrace> traces;
    for (std::size_t i = 0; i < count; ++i)
      traces.push_back(trace_of({(12 + 2 * (random_() % 40)) * kMiB}));

    OrderPlan plan = best_order(traces);

    EXPECT_EQ(plan.peak, simulate(traces, plan.order));
    EXPECT_EQ(plan.method == PlanMethod::kExhaustive, count == kLargestExhaustivePlan);
    std::sort(plan.order.begin(), plan.order.end());
    EXPECT_EQ(plan.order, ascending(count));
  }
}

// The case that servers know: small batches first leave holes that large ones cannot use.
TEST_F(PlanTest, LargestFirstLetsTheSmallReuseItsMemory) {
  std::vector<AllocationTrace> traces;
  for (std::size_t batch = 1; batch <= 9; ++batch)
    traces.push_back(trace_of({batch * 40 * kMiB}));

  EXPECT_EQ(simulate(traces, ascending(9)).reserved, 45 * 40 * kMiB);
  const OrderPlan plan = best_order(traces);

  EXPECT_THAT(plan.order, ElementsAre(8, 7, 6, 5, 4, 3, 2, 1, 0));
  EXPECT_EQ(plan.method, PlanMethod::kLargestFirst);
  EXPECT_EQ(plan.peak.reserved, 9 * 40 * kMiB);
}

TEST_F(PlanTest, OutputsAddUpAndTheRestDoesNot) {
  const std::vector<AllocationTrace> traces = {trace_of({30 * kMiB, 60 * kMiB}, {0}),
                                               trace_of({60 * kMiB, 30 * kMiB}, {1})};

  EXPECT_EQ(simulate(traces, ascending(2)), (PlanPeak{120 * kMiB, 120 * kMiB}));
}

TEST_F(PlanTest, NothingNeedsNothing) {
  EXPECT_EQ(best_order({}).peak, PlanPeak());
  EXPECT_EQ(simulate({}, {}), PlanPeak());
}

TEST_F(PlanTest, RefusesOrdersThatCannotBe) {
  const std::vector<AllocationTrace> traces = {trace_of({1}), trace_of({1})};

  EXPECT_THROW(simulate(traces, Order{2}), InvalidArgument);
  EXPECT_THROW(simulate(traces, Order{1, 1}), InvalidArgument);
}

TEST_F(PlanTest, RefusesTracesThatCannotBe) {
  const auto refusal_of = [](const AllocationTrace& trace) {
    try {
      best_order({&trace, 1});
    } catch (const InvalidArgument& error) {
      return std::string(error.message());
    }
    return std::string("nothing was thrown");
  };

  EXPECT_EQ(refusal_of({"t", {{4, 1}, {4, 0}, {4, 0}}, {}}),
            "trace 't', step 2: allocation 4 is freed a second time");
  EXPECT_THAT(refusal_of({"t", {{4, 1}, {4, 1}}, {}}), HasSubstr("step 1: allocation 4 is alloc"));
  EXPECT_THAT(refusal_of({"t", {{4, 0}}, {}}), HasSubstr("freed, but never allocated"));
  EXPECT_THAT(refusal_of({"t", {{4, 1}, {4, 0}}, {4}}), HasSubstr("is freed, but is an output"));
  EXPECT_THAT(refusal_of({"t", {{4, 1}}, {5}}), HasSubstr("output 5 is never allocated"));
  EXPECT_THAT(refusal_of({"t", {{4, SIZE_MAX}}, {}}), HasSubstr("too large to round"));
}

}  // namespace
}  // namespace cgtree
