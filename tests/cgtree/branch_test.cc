// The tree: order of functions, branches on data, and shared recordings.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "extensions/watch/monitor.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

class BranchTest : public TreeTest {
 protected:
  // Node ids by function, and parents, from the snapshot: "f1<0 g2<1" means node 2 of g under 1.
  std::string tree() {
    std::string text;
    const auto snapshot = nlohmann::json::parse(snapshot_json(context()));
    for (const auto& node : snapshot["nodes"]) {
      text += fmt::format("{}{}{}<{}", text.empty() ? "" : " ", node["function"].get<std::string>(),
                          node["id"].get<int>(), node["parent"].get<int>());
    }
    return text;
  }
};
CGTREE_ON_ALL_DEVICES(BranchTest);

// 1 -> 2 -> 4 and 1 -> 3 -> 4: the branch depends on data.
TEST_P(BranchTest, ABranchOnDataRecordsEachSideAndReplaysBoth) {
  CompiledFunction one = compile(context(), "one", [](Tensor x) { return affine(x, 2, 0); });
  CompiledFunction two = compile(context(), "two", [](Tensor x) { return affine(x, 1, 10); });
  CompiledFunction three = compile(context(), "three", [](Tensor x) { return affine(x, 1, -10); });
  CompiledFunction four = compile(context(), "four", [](Tensor x) { return affine(x, 3, 1); });

  for (int step = 0; step < 24; ++step) {
    context().mark_step();
    const std::vector<float> x = random_floats(6);
    const Tensor a = one(tensor({6}, x));
    const bool left = values(a)[0] > 0;
    const Tensor b = left ? two(a) : three(a);
    const Tensor c = four(b);
    EXPECT_EQ(values(c), affine_of(affine_of(affine_of(x, 2, 0), 1, left ? 10 : -10), 3, 1));
    EXPECT_EQ(values(b), affine_of(affine_of(x, 2, 0), 1, left ? 10 : -10));
  }

  EXPECT_EQ(one.stats().recordings, 1u);
  EXPECT_EQ(two.stats().recordings, 1u);
  EXPECT_EQ(three.stats().recordings, 1u);
  // The input may have the same address under `two` and `three`: then one recording serves both.
  EXPECT_LE(four.stats().recordings, 2u);
}

// Row 16 function_compiled_multiple_times: A, B, B' in a chain: one root with two descendants.
// Acceptance: trees 16, 75.
TEST_P(BranchTest, AFunctionCalledTwiceInAChainHasTwoRecordings) {
  CompiledFunction a = compile(context(), "a", [](Tensor x) { return affine(x, 2, 0); });
  CompiledFunction b = compile(context(), "b", [](Tensor x) { return affine(x, 1, 1); });

  for (int step = 0; step < 6; ++step) {
    context().mark_step();
    const std::vector<float> x = random_floats(4);
    const Tensor first = a(tensor({4}, x));
    const Tensor second = b(first);
    const Tensor third = b(second);
    EXPECT_EQ(values(third), affine_of(x, 2, 2));
    EXPECT_EQ(values(second), affine_of(x, 2, 1));
  }

  EXPECT_EQ(a.stats().recordings, 1u);
  EXPECT_LE(b.stats().recordings, 2u);
}

// Row 17 end_recording_early: a step boundary between A -> B and C starts a second tree.
// Acceptance: trees 17, 75.
TEST_P(BranchTest, AStepBoundaryBeginsAnotherTree) {
  CompiledFunction a = compile(context(), "a", [](Tensor x) { return affine(x, 2, 0); });
  CompiledFunction b = compile(context(), "b", [](Tensor x) { return affine(x, 1, 1); });
  CompiledFunction c = compile(context(), "c", [](Tensor x) { return affine(x, 5, 0); });

  for (int step = 0; step < 3; ++step) {
    context().mark_step();
    (void)b(a(random_tensor({4})));
    context().mark_step();
    (void)c(random_tensor({4}));
  }

  EXPECT_EQ(tree(), "a1<0 b2<1 c3<0");
}

// Promise 5: a recording may be replayed in any pool state in which its footprint is free.
TEST_P(BranchTest, ARecordingIsSharedByEveryPlaceWhereItsFootprintIsFree) {
  CompiledFunction a = compile(context(), "a", [](Tensor x) { return affine(x, 2, 0); });
  CompiledFunction b = compile(context(), "b", [](Tensor x) { return affine(x, 1, 1); });
  const auto step = [&](bool also_a) {
    context().mark_step();
    const std::vector<float> x = random_floats(4);
    Tensor held;
    if (also_a) held = a(tensor({4}, x));
    EXPECT_EQ(values(b(tensor({4}, x))), affine_of(x, 1, 1));
    if (also_a) {
      EXPECT_EQ(values(held), affine_of(x, 2, 0));
    }
  };
  for (int i = 0; i < 3; ++i)
    step(true);  // b after a
  const std::uint64_t before = b.stats().recordings;

  for (int i = 0; i < 3; ++i)
    step(false);  // b alone

  EXPECT_EQ(b.stats().recordings, before);
}

// Row 31 graph_partition_gc: a function works after the other one is destroyed.
TEST_P(BranchTest, AStepFunctionNeedNotBeCopyable) {
  CompiledFunction f = compile(
      context(), "f",
      [scale = std::make_unique<float>(2)](Tensor x) mutable { return affine(x, *scale, 0); });
  CompiledFunction g =
      compile(context(), "g", [shift = std::make_unique<float>(1)](std::span<const Tensor> x) {
        return affine(x[0], 1, *shift);
      });
  const Tensor x = random_tensor({4});
  for (int call = 0; call < 3; ++call) {
    EXPECT_EQ(values(f(x)), affine_of(values(x), 2, 0));
    EXPECT_EQ(values(g(std::vector<Tensor>{x})), affine_of(values(x), 1, 1));
  }
}

// Acceptance: trees 31.
TEST_P(BranchTest, DroppingAFunctionDropsItsRecordingsOnly) {
  CompiledFunction a = compile(context(), "a", [](Tensor x) { return affine(x, 2, 0); });
  {
    CompiledFunction b = compile(context(), "b", [](Tensor x) { return affine(x, 1, 1); });
    for (int step = 0; step < 3; ++step) {
      context().mark_step();
      (void)a(b(a(random_tensor({4}))));
    }
    EXPECT_GE(recording_count(), 3u);
  }

  for (int step = 0; step < 3; ++step) {
    context().mark_step();
    const std::vector<float> x = random_floats(4);
    EXPECT_EQ(values(a(tensor({4}, x))), affine_of(x, 2, 0));
  }
  EXPECT_LE(recording_count(), 2u);
  validate();
}

TEST_P(BranchTest, TheSnapshotDescribesNodesInputsAndPools) {
  CompiledFunction f = compile(context(), "f", [](Tensor x, Tensor w) { return add(x, w); },
                               {.inputs = {{}, {.is_static = true}}});
  const Tensor weights = random_tensor({4});
  for (int call = 0; call < 3; ++call)
    (void)f(random_tensor({4}), weights);

  const auto snapshot = nlohmann::json::parse(snapshot_json(context()));
  ASSERT_EQ(snapshot["nodes"].size(), 1u);
  const auto& node = snapshot["nodes"][0];
  EXPECT_EQ(node["inputs"][0]["treatment"], "copied");
  EXPECT_EQ(node["inputs"][1]["treatment"], "static");
  EXPECT_EQ(node["inputs"][1]["address"], weights.address());
  EXPECT_EQ(node["replays"], 1);
  EXPECT_EQ(node["graph_nodes"], 2);
  EXPECT_EQ(snapshot["functions"][0]["recordings"], 1);
  EXPECT_GT(snapshot["pools"]["output"]["reserved_bytes"]["current"], 0);
}

}  // namespace
}  // namespace cgtree::testing
