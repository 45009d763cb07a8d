// LearnerTest: a function with a learned axis, and its learner.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "extensions/ranks/group.h"
#include "extensions/sizes/precapture.h"
#include "extensions/sizes/size_learner.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {

inline constexpr auto kPlenty = std::chrono::microseconds(100'000'000);

// The options of a function of rows whose number "n" is learned.
inline CompileOptions learned_rows() {
  return {.inputs = {{.dynamic = {{0, "n"}}}},
          .axes = {{.name = "n", .policy = AxisPolicy::kLearned}},
          .outputs = {{.dynamic = {{0, "n"}}}}};
}

class LearnerTest : public TreeTest {
 protected:
  using Function = CompiledFunction<Tensor(Tensor)>;

  // In a group, sizes are used as costs, which makes the learner's decisions predictable.
  static ContextOptions in_group_of_one() {
    ContextOptions options;
    options.group = std::move(make_thread_groups(1)[0]);
    return options;
  }
  Function doubled(CompileOptions options = learned_rows()) {
    return compile(
        context(), "doubled", [](Tensor x) { return affine(x, 2, 0); }, std::move(options));
  }
  MakeInputs make_inputs() {
    return
        [this](const CallSizes& sizes) { return std::vector<Tensor>{random_tensor({sizes["n"]})}; };
  }
  Outcome call(const Function& f, std::int64_t size) {
    const std::vector<float> x = random_floats(size);
    EXPECT_EQ(values(f(tensor({size}, x))), affine_of(x, 2, 0));
    return f.last_outcome()->outcome;
  }
  // Learns until there is nothing to do. Returns the number of recordings.
  int settle(SizeLearner& learner) {
    int steps = 0;
    for (;;) {
      const LearnerStep step = learner.idle(kPlenty);
      EXPECT_EQ(step.why, "");
      if (step.kind == LearnerStep::Kind::kNothing) return steps;
      steps += step.kind == LearnerStep::Kind::kRecorded;
    }
  }
};

}  // namespace cgtree::testing
