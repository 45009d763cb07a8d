// Eager inputs that the function writes: graphed, copied in by the root node and back by the tail
// node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "extensions/watch/monitor.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const CompileOptions kMutatesFirst{.inputs = {{.name = "state", .is_mutated = true}}};

class MutatedInputsTest : public TreeTest {
 protected:
  // Adds one to x, and returns twice that.
  CompiledFunction<Tensor(Tensor)> bump(CompileOptions options = kMutatesFirst) {
    return compile(
        context(), "bump",
        [](Tensor x) {
          update(x, 1, 1);
          return affine(x, 2, 0);
        },
        std::move(options));
  }
  // Every byte of a dense storage, also outside the view.
  std::vector<float> whole(const Tensor& view) {
    const auto elements = static_cast<std::int64_t>(view.storage()->bytes() / sizeof(float));
    return values(Tensor(view.storage(), 0, Shape{elements}, DType::kFloat32));
  }
};
CGTREE_ON_ALL_DEVICES(MutatedInputsTest);

// Rows 4 mutation_reinplaced and 7 mutation_on_inp: each call increments the state once, in any
// phase.
// Acceptance: trees 4, 7.
TEST_P(MutatedInputsTest, EachCallWritesOnceWhateverItIs) {
  CompiledFunction f = bump();
  const Tensor x = tensor({2}, std::vector<float>{1, 2});

  for (int call = 1; call <= 6; ++call) {
    const std::vector<float> expected = {1.0f + call, 2.0f + call};
    EXPECT_EQ(values(f(x)), affine_of(expected, 2, 0));
    EXPECT_EQ(values(x), expected);
  }

  EXPECT_EQ(f.stats().warm_ups, 1u);
  EXPECT_EQ(f.stats().recordings, 1u);
  EXPECT_EQ(f.stats().replays, 4u);
}

TEST_P(MutatedInputsTest, AnotherTensorIsWrittenAndTheOldOneIsNot) {
  CompiledFunction f = bump();
  Tensor before = random_tensor({5});
  for (int call = 0; call < 6; ++call) {
    const std::vector<float> x = random_floats(5);
    const Tensor next = tensor({5}, x);
    const std::vector<float> kept = values(before);
    (void)f(next);
    EXPECT_EQ(values(next), affine_of(x, 1, 1));
    EXPECT_EQ(values(before), kept);
    before = next;
  }
  EXPECT_EQ(stats().root_patches, 4u);
}

TEST_P(MutatedInputsTest, GapsBetweenElementsStayAsTheyAre) {
  CompiledFunction f = bump();
  for (int call = 0; call < 5; ++call) {
    const std::vector<float> x = random_floats(4 * 6);
    const Tensor table = tensor({4, 6}, x);
    const Tensor columns = table.slice(1, 1, 3).transpose(0, 1);
    (void)f(columns);
    std::vector<float> expected = x;
    for (int row = 0; row < 4; ++row) {
      for (int column = 1; column < 3; ++column)
        expected[row * 6 + column] += 1;
    }
    EXPECT_EQ(whole(columns), expected);
  }
  EXPECT_EQ(f.stats().replays, 3u);
}

TEST_P(MutatedInputsTest, AnOutputThatIsAViewOfItIsTheCallersTensor) {
  CompiledFunction f = compile(
      context(), "f",
      [](Tensor x) {
        update(x, 1, 1);
        return std::array{x, x.slice(0, 1, 3), affine(x, 1, 0)};
      },
      kMutatesFirst);
  for (int call = 0; call < 5; ++call) {
    const std::vector<float> x = random_floats(8);
    const Tensor all = tensor({8}, x);
    const Tensor given = all.slice(0, 2, 6);
    const auto [same, view, fresh] = f(given);
    EXPECT_EQ(same.storage(), all.storage());
    EXPECT_EQ(same.address(), given.address());
    EXPECT_EQ(view.storage(), all.storage());
    EXPECT_EQ(view.address(), given.address() + 4);
    EXPECT_EQ(values(view)[0], x[3] + 1);
    EXPECT_EQ(stats().live_outputs, 1u);
  }
}

// Row 9 mutation_cudagraph_managed_tensors: no skips while managed, none once fed a clone.
// Acceptance: trees 9.
TEST_P(MutatedInputsTest, ManagedAndEagerOnesTakeTurns) {
  CompiledFunction make = compile(context(), "make", [](Tensor x) { return affine(x, 2, 0); });
  CompiledFunction f = bump();
  for (int step = 0; step < 6; ++step) {
    context().mark_step();
    const std::vector<float> x = random_floats(3);
    const Tensor made = make(tensor({3}, x));
    EXPECT_EQ(values(f(made)), affine_of(affine_of(x, 2, 1), 2, 0));
    EXPECT_EQ(values(made), affine_of(x, 2, 1));
    const Tensor clone = tensor({3}, x);
    EXPECT_EQ(values(f(clone)), affine_of(affine_of(x, 1, 1), 2, 0));
    EXPECT_EQ(values(clone), affine_of(x, 1, 1));
  }
  EXPECT_EQ(f.stats().skipped(), 0u);
}

TEST_P(MutatedInputsTest, AFunctionThatOnlyWritesNeedsNoOutput) {
  CompiledFunction f = compile(
      context(), "f", [](Tensor x) { update(x, 2, 0); }, kMutatesFirst);
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(3);
    const Tensor given = tensor({3}, x);
    f(given);
    EXPECT_EQ(values(given), affine_of(x, 2, 0));
  }
}

TEST_P(MutatedInputsTest, AFunctionThatDoesNothingLeavesItAsItWas) {
  CompiledFunction f = compile(
      context(), "f", [](Tensor) {}, kMutatesFirst);
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(3);
    const Tensor given = tensor({3}, x);
    f(given);
    EXPECT_EQ(values(given), x);
  }
}

TEST_P(MutatedInputsTest, MoreThanOneNodeTakesAreCopiedBackByChainedOnes) {
  constexpr int kCount = 300;
  CompileOptions options;
  options.inputs.assign(kCount, {.is_mutated = true});
  CompiledFunction f = compile(
      context(), "f",
      [](std::span<const Tensor> x) {
        for (const Tensor& each : x)
          update(each, 1, 1);
      },
      options);
  for (int call = 0; call < 4; ++call) {
    std::vector<Tensor> inputs;
    for (int i = 0; i < kCount; ++i)
      inputs.push_back(tensor({1}, std::vector<float>{static_cast<float>(i + 1000 * call)}));
    f(inputs);
    for (int i = 0; i < kCount; ++i)
      ASSERT_EQ(values(inputs[i])[0], i + 1000 * call + 1);
  }
  EXPECT_EQ(f.stats().replays, 2u);
}

TEST_P(MutatedInputsTest, TheSnapshotSaysCopiedBack) {
  CompiledFunction f = bump();
  for (int call = 0; call < 2; ++call)
    (void)f(random_tensor({2}));

  const auto snapshot = nlohmann::json::parse(snapshot_json(context()));
  const auto& node = snapshot.at("nodes").at(0);
  EXPECT_EQ(node.at("inputs").at(0).at("treatment"), "copied_back");
  EXPECT_EQ(node.at("graph_nodes"), 4u);  // root, two kernels, tail
}

// As an engine that writes an input in place if it holds all references to it. In a capture the
// input is a copy, and such a write would be lost.
TEST_P(MutatedInputsTest, AStepThatWritesWhatItAloneHoldsTakesNoCopyForItsOwn) {
  const auto plus_one = [](const Tensor& x, std::uint32_t own) {
    if (x.storage()->references() > own) return affine(x, 1, 1);
    update(x, 1, 1);
    return x;
  };
  for (const std::uint32_t own : {1u, 2u, 3u}) {  // the caller and the call hold one each
    const CompiledFunction by_value =
        compile(context(), "by_value", [&](Tensor x) { return plus_one(x, own); });
    const CompiledFunction in_list = compile(
        context(), "in_list",
        [&](std::span<const Tensor> list) { return std::vector{plus_one(list[0], own - 1)}; });
    for (int call = 0; call < 5; ++call) {
      const std::vector<float> x = random_floats(4);
      const Tensor input = tensor({4}, x);
      EXPECT_EQ(values(by_value(input)), affine_of(x, 1, 1)) << own << ", call " << call;
      EXPECT_EQ(values(in_list(std::span(&input, 1))[0]), affine_of(x, 1, 1)) << own;
      EXPECT_EQ(values(input), x);
      context().mark_step();
    }
    EXPECT_EQ(by_value.stats().recordings, 1u);
    EXPECT_EQ(in_list.stats().replays, 3u);
  }
}

TEST_P(MutatedInputsTest, ExplainNotesALargeInputThatIsCopied) {
  CompiledFunction f = bump();
  const Tensor large = empty({1'000'000}, DType::kFloat32, device());

  const Explanation why = f.explain(large);

  ASSERT_EQ(why.notes.size(), 1u);
  EXPECT_THAT(to_string(why), HasSubstr("input 0 'state': 4000000 bytes are copied in and back"));
  EXPECT_TRUE(f.explain(random_tensor({2})).notes.empty());
}

TEST_P(MutatedInputsTest, ExplainNotesAnInputThatIsCopiedAndNeverMoves) {
  CompiledFunction f = bump();
  const Tensor kept = random_tensor({2}), other = random_tensor({2});
  for (int call = 0; call < 50; ++call)
    f(kept);
  EXPECT_TRUE(f.explain(kept).notes.empty());
  for (int call = 0; call < 60; ++call)
    f(kept);

  ASSERT_EQ(f.explain(kept).notes.size(), 1u);
  EXPECT_THAT(f.explain(kept).notes[0],
              AllOf(HasSubstr("input 0 'state': 8 bytes are copied in and back at each call"),
                    HasSubstr("have not moved in 108 replays: declare it static")));
  f(other);
  EXPECT_TRUE(f.explain(kept).notes.empty());
}

}  // namespace
}  // namespace cgtree::testing
