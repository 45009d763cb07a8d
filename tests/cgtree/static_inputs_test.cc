// Static inputs that move, are misaligned or share memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "extensions/watch/monitor.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;
using Strings = std::vector<std::string>;

class StaticInputsTest : public TreeTest {
 protected:
  using F = CompiledFunction<Tensor(Tensor, Tensor)>;

  // x + w, where w is static.
  F adder(CompileOptions options = {}) {
    options.inputs = {{}, {.name = "weights", .is_static = true}};
    return compile(
        context(), "adder", [](Tensor x, Tensor w) { return add(x, w); }, options);
  }
  void call(const F& f, const Tensor& w) {
    const std::vector<float> x = random_floats(w.elements()), shift = values(w);
    std::vector<float> expected = x;
    for (std::size_t i = 0; i < x.size(); ++i)
      expected[i] += shift[i];
    EXPECT_EQ(values(f(tensor(Shape(w.shape().dims()), x), w)), expected);
  }
  // The treatments of the nodes' second inputs, in order.
  Strings treatments() {
    Strings found;
    const auto snapshot = nlohmann::json::parse(snapshot_json(context()));
    for (const auto& node : snapshot["nodes"])
      found.push_back(node["inputs"][1]["treatment"]);
    return found;
  }
  // Makes a tensor at an address that no later tensor of the test has.
  Tensor kept_tensor(const std::vector<float>& values) {
    return kept_.emplace_back(tensor({4}, values));
  }
  // Four floats, `offset` bytes behind a multiple of 512.
  Tensor at_offset(std::size_t offset) {
    const Tensor whole = random_tensor({8});
    return Tensor(whole.storage(), offset, Shape{4}, DType::kFloat32);
  }

 private:
  std::vector<Tensor> kept_;
};
CGTREE_ON_ALL_DEVICES(StaticInputsTest);

// Acceptance: random churn.
TEST_P(StaticInputsTest, AnInputThatMovesTooOftenIsCopiedAndNeverRecordedAgain) {
  const F f = adder({.on_static_change = OnStaticChange::kDemote, .max_static_changes = 2});
  std::vector<Tensor> weights;
  for (int i = 0; i < 8; ++i)
    weights.push_back(random_tensor({4}));

  for (const Tensor& w : weights) {
    call(f, w);
    call(f, w);
  }
  for (const Tensor& w : weights)
    call(f, w);

  EXPECT_EQ(treatments(), (Strings{"static", "static", "static", "copied"}));
  EXPECT_EQ(f.stats().recordings, 4u);
  EXPECT_EQ(f.stats().replays, 24u - 1 - 4);
}

// A new shape is recorded anyway, and does not count as a move.
TEST_P(StaticInputsTest, ARecordingForAnotherShapeCountsForNoMove) {
  const F f = adder({.on_static_change = OnStaticChange::kDemote, .max_static_changes = 1});
  for (const std::int64_t size : {4, 8, 12}) {
    const Tensor w = random_tensor({size});
    for (int n = 0; n < 3; ++n)
      call(f, w);
  }

  EXPECT_EQ(treatments(), (Strings{"static", "static", "static"}));
}

// Row 84 for a mutated input: after its demotion it is copied back.
TEST_P(StaticInputsTest, AMutatedInputIsCopiedBackOnceItIsDemoted) {
  CompiledFunction f = compile(context(), "bump",
                               [](Tensor state) {
                                 update(state, 1, 1);
                                 return affine(state, 2, 0);
                               },
                               {.inputs = {{.is_static = true, .is_mutated = true}},
                                .on_static_change = OnStaticChange::kDemote,
                                .max_static_changes = 1});
  for (int i = 0; i < 5; ++i) {
    const std::vector<float> before = random_floats(4);
    const Tensor state = kept_tensor(before);
    for (int call = 1; call <= 3; ++call) {
      const std::vector<float> y = values(f(state));
      std::vector<float> expected = before;
      for (float& value : expected)
        for (int n = 0; n < call; ++n)
          value = 1 * value + 1;
      EXPECT_EQ(values(state), expected);
      EXPECT_EQ(y, affine_of(expected, 2, 0));
    }
  }
  EXPECT_EQ(f.stats().recordings, 3u);
}

// An aliased input that moves at each call: a copy would separate it from its alias.
// Acceptance: random aliased_churn.
TEST_P(StaticInputsTest, ADemotedInputThatSharesMemoryRunsEagerly) {
  CompiledFunction f =
      compile(context(), "f",
              [](Tensor state, Tensor view) {
                update(state, 1, 1);
                return affine(view, 2, 0);
              },
              {.inputs = {{.is_static = true, .is_mutated = true}, {.is_static = true}},
               .on_static_change = OnStaticChange::kDemote,
               .max_static_changes = 1});
  for (int i = 0; i < 4; ++i) {
    const std::vector<float> before = random_floats(4);
    const Tensor state = kept_tensor(before);
    std::vector<float> expected = before;
    for (int call = 0; call < 2; ++call) {
      for (float& value : expected)
        value = 1 * value + 1;
      EXPECT_EQ(values(f(state, state)), affine_of(expected, 2, 0));
    }
  }
  EXPECT_EQ(f.stats().recordings, 2u);
  EXPECT_GT(f.stats().skips[static_cast<int>(SkipReason::kOverlappingInputs)], 0u);
}

// Rows 25 to 27 unaligned_static_input and 44 unaligned_static_parameter.
// Acceptance: trees 25, 26, 44.
TEST_P(StaticInputsTest, AMisalignedOneIsCopiedAtFirstSightAndAlignedOnesAreNot) {
  const F f = adder();
  const Tensor aligned = at_offset(0), misaligned = at_offset(4);
  for (int round = 0; round < 4; ++round) {
    call(f, misaligned);
    call(f, aligned);
    call(f, at_offset(8));
  }

  EXPECT_EQ(treatments(), (Strings{"static", "copied"}));
  EXPECT_EQ(f.stats().replays, 12u - 1 - 2);
}

TEST_P(StaticInputsTest, AnAlignmentThatIsNoneIsRefused) {
  for (const std::size_t alignment : {std::size_t{0}, std::size_t{3}}) {
    try {
      (void)compile(context(), "f", [](Tensor x) { return affine(x, 1, 0); },
                    {.inputs = {{.name = "w", .is_static = true, .alignment = alignment}}});
      FAIL() << "nothing was thrown";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(std::string(error.message()), HasSubstr("input 0 'w' of 'f'"));
    }
  }
}

}  // namespace
}  // namespace cgtree::testing
