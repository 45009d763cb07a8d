// Monitors: reading a context on other threads adds no cost to its calls.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "extensions/watch/monitor.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

class MonitorTest : public TreeTest {
 protected:
  using F = CompiledFunction<Tensor(Tensor)>;

  // Each node that a snapshot refers to is described in it.
  static void expect_consistent(const std::string& text) {
    const nlohmann::json snapshot = nlohmann::json::parse(text);
    std::set<std::uint32_t> known = {0};
    for (const auto& node : snapshot["nodes"])
      known.insert(node["id"].get<std::uint32_t>());
    EXPECT_TRUE(known.contains(snapshot["current"]));
    for (const auto& node : snapshot["nodes"]) {
      EXPECT_TRUE(known.contains(node["parent"]));
      for (const std::uint32_t id : node["followed_by"])
        EXPECT_TRUE(known.contains(id));
    }
  }
};
CGTREE_ON_ALL_DEVICES(MonitorTest);

TEST_P(MonitorTest, CallsOfAllKindsGoOnWhileAnotherThreadReadsEverything) {
  make_context({.max_recordings = 5, .at_limit = AtLimit::kEvict});
  const F f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); });
  const F padded = compile(context(), "padded", [](Tensor x) { return affine(x, 3, 0); },
                           {.inputs = {{.dynamic = {{0, "n"}}}},
                            .buckets = {{"n", {2, 4, 8}}},
                            .outputs = {{.dynamic = {{0, "n"}}}}});
  std::atomic<bool> ends = false;
  std::atomic<int> rounds = 0;
  std::thread monitor([&, x = random_tensor({4})] {
    std::uint64_t calls = 0;
    for (; !ends; ++rounds) {
      const ContextStats all = context().stats();
      EXPECT_GE(all.calls, calls);
      calls = all.calls;
      EXPECT_LE(all.kept_recordings, 6u);
      EXPECT_LE(f.stats().replays, f.stats().calls);
      EXPECT_LE(padded.histogram("n").size(), 8u);
      (void)f.explain(x);
      (void)padded.explain(x);
      expect_consistent(snapshot_json(context()));
    }
  });

  std::size_t called = 0;
  for (int i = 0; i < 400 || rounds < 20; ++i) {
    const std::int64_t size = 1 + i / 10 % 8;
    const std::vector<float> x = random_floats(size);
    Tensor held;
    for (int again = 0; again < 3; ++again) {
      held = f(tensor({size}, x));
      EXPECT_EQ(values(held), affine_of(x, 2, 1));
    }
    EXPECT_EQ(values(padded(tensor({size}, x))), affine_of(x, 3, 0));
    called += 4;
    if (i % 7 == 0) context().mark_step();
    if (i % 20 == 0) {
      const F passing = compile(context(), "passing", [](Tensor y) { return affine(y, 1, 1); });
      for (int again = 0; again < 3; ++again)
        (void)passing(tensor({size}, x));
      called += 3;
    }
  }
  ends = true;
  monitor.join();
  EXPECT_EQ(stats().calls, called);
  EXPECT_EQ(stats().failures, 0u);
}

TEST_P(MonitorTest, ReadersDoNotWaitForACallInProgress) {
  std::promise<void> inside;
  std::promise<void> leave;
  bool blocks = true;
  const F f = compile(context(), "f", [&](Tensor x) {
    if (std::exchange(blocks, false)) {
      inside.set_value();
      leave.get_future().wait();
    }
    return affine(x, 2, 0);
  });
  const Tensor x = random_tensor({3});
  auto call = std::async(std::launch::async, [&] { return values(f(x)); });
  inside.get_future().wait();

  EXPECT_EQ(context().stats().calls, 0u);
  EXPECT_EQ(f.stats().kept_recordings, 0u);
  expect_consistent(snapshot_json(context()));
  auto explained = std::async(std::launch::async, [&] { return f.explain(x).outcome; });

  leave.set_value();
  EXPECT_EQ(call.get(), affine_of(values(x), 2, 0));
  EXPECT_EQ(explained.get(), Outcome::kRecord);
}

TEST_P(MonitorTest, AStepFunctionMayReadItsOwnContext) {
  const CompiledCore* self = nullptr;
  std::optional<Explanation> why;
  const F f = compile(context(), "f", [&](Tensor x) {
    EXPECT_EQ(context().stats().failures, 0u);
    EXPECT_LE(self->stats().replays, 1u);
    expect_consistent(snapshot_json(context()));
    why = self->explain(std::span<const Tensor>(&x, 1));
    return affine(x, 2, 0);
  });
  self = &f;
  const Tensor x = random_tensor({3});

  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(values(f(x)), affine_of(values(x), 2, 0));
  EXPECT_EQ(f.stats().replays, 1u);
  EXPECT_EQ(why->skip_reason, SkipReason::kNestedCall);
}

TEST_P(MonitorTest, AFunctionCountsTheRecordingsItKeepsAndItsSkipsByReason) {
  const F f =
      compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); }, {.max_recordings = 1});
  const F g = compile(context(), "g", [](Tensor x) { return affine(x, 3, 0); });
  for (const std::int64_t size : {2, 3}) {
    for (int call = 0; call < 3; ++call) {
      (void)f(random_tensor({size}));
      (void)g(random_tensor({size}));
    }
  }

  EXPECT_EQ(f.stats().kept_recordings, 1u);
  EXPECT_EQ(g.stats().kept_recordings, 2u);
  EXPECT_EQ(stats().kept_recordings, 3u);
  EXPECT_EQ(f.stats().skipped(SkipReason::kFunctionLimit), 2u);
  EXPECT_EQ(stats().skipped(SkipReason::kFunctionLimit), 2u);
}

}  // namespace
}  // namespace cgtree::testing
