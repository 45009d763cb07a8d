// Random programs: what calls through the tree return, against the same arithmetic on the host.
//
// A program is a sequence of: call a random function on random variables (of one of a few shapes,
// some eager, some outputs of earlier calls) and store the result in a variable; drop a variable;
// check all variables; end the step. Whatever the tree decides, every variable holds what eager
// execution gives.
#include <gtest/gtest.h>

#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

class DifferentialTest : public TreeTest {
 protected:
  struct Variable {
    Tensor tensor;
    std::vector<float> expected;
  };

  int pick(int count) { return std::uniform_int_distribution<int>(0, count - 1)(random_); }

  void check(const std::vector<Variable>& variables, int operation) {
    for (std::size_t i = 0; i < variables.size(); ++i) {
      if (!variables[i].tensor.defined()) continue;
      ASSERT_EQ(values(variables[i].tensor), variables[i].expected)
          << "variable " << i << ", operation " << operation << ", seed " << seed_;
    }
  }

  // Elements per variable; a variable keeps its size.
  static constexpr std::int64_t kSizes[] = {3, 200, 3, 200, 1500};
  static constexpr int kVariables = 5;
};
CGTREE_ON_ALL_DEVICES(DifferentialTest);

TEST_P(DifferentialTest, RandomProgramsGiveWhatEagerExecutionGives) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 0.5f, 1); });
  CompiledFunction g = compile(context(), "g", [](Tensor x) {
    return std::pair(affine(x, -1, 0), affine(affine(x, 0.25f, 2), 1, 1));
  });
  CompiledFunction h = compile(context(), "h", [](Tensor x, Tensor y) {
    return add(affine(x, 0.5f, 0), affine(y, 0.5f, 0));
  });
  std::vector<Variable> variables(kVariables);
  const auto fresh = [&](int i) {
    variables[i].expected = random_floats(kSizes[i]);
    variables[i].tensor = tensor({kSizes[i]}, variables[i].expected);
  };
  for (int i = 0; i < kVariables; ++i)
    fresh(i);

  const int operations = 1500;
  for (int operation = 0; operation < operations; ++operation) {
    const int i = pick(kVariables);
    Variable& x = variables[i];
    if (!x.tensor.defined()) fresh(i);
    // The other variable of the same size, or the same one.
    const int j = i < 4 ? (i + 2) % 4 : i;
    Variable& y = variables[j];
    if (!y.tensor.defined()) fresh(j);
    switch (pick(8)) {
      case 0:
      case 1:
        x = {f(x.tensor), affine_of(x.expected, 0.5f, 1)};
        break;
      case 2:
      case 3: {
        const auto [first, second] = g(x.tensor);
        const std::vector<float> source = x.expected;
        x = {first, affine_of(source, -1, 0)};
        if (j != i) y = {second, affine_of(affine_of(source, 0.25f, 2), 1, 1)};
        break;
      }
      case 4:
      case 5: {
        std::vector<float> sum = affine_of(x.expected, 0.5f, 0);
        const std::vector<float> other = affine_of(y.expected, 0.5f, 0);
        for (std::size_t k = 0; k < sum.size(); ++k)
          sum[k] += other[k];
        x = {h(x.tensor, y.tensor), sum};
        break;
      }
      case 6:
        x.tensor = Tensor();
        break;
      case 7:
        if (pick(6) != 0) break;
        context().mark_step();  // managed variables become stale: begin anew
        for (int k = 0; k < kVariables; ++k)
          fresh(k);
        break;
    }
    if (operation % 10 == 0) {
      check(variables, operation);
      manager()->validate();
    }
    if (HasFatalFailure()) return;
  }
  check(variables, operations);

  const ContextStats all = stats();
  RecordProperty("recordings", static_cast<int>(all.recordings));
  RecordProperty("replays", static_cast<int>(all.replays));
  EXPECT_GT(all.replays, all.recordings);
  EXPECT_EQ(all.failures, 0u);
}

}  // namespace
}  // namespace cgtree::testing
