// Random traces: a pool equals its model, and validates after every step.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "tests/allocator/modelled_pool.h"

namespace rc {

template <>
struct Arbitrary<cgtree::Step> {
  static Gen<cgtree::Step> arbitrary() {
    using cgtree::Action;
    const auto action = gen::weightedElement<Action>({{16, Action::kAllocate},
                                                      {11, Action::kFree},
                                                      {1, Action::kBadFree},
                                                      {4, Action::kCheckpoint},
                                                      {1, Action::kForget},
                                                      {2, Action::kRestore},
                                                      {2, Action::kRestoreDeclared},
                                                      {1, Action::kRestoreMisdeclared},
                                                      {2, Action::kRestoreLive},
                                                      {2, Action::kTrim},
                                                      {2, Action::kGiveBack},
                                                      {2, Action::kFailNext},
                                                      {2, Action::kReopen}});
    return gen::map(gen::pair(action, gen::arbitrary<std::uint32_t>()),
                    [](const std::pair<Action, std::uint32_t>& step) {
                      return cgtree::Step{step.first, step.second};
                    });
  }
};

}  // namespace rc

namespace cgtree {
namespace {

// Prints the shortest failing trace that RapidCheck finds, and its seed.
// Acceptance: checkpoints resnet.
RC_GTEST_PROP(PoolModelTest, AgreesWithItsModelOnAnyTrace, ()) {
  ModelledPool pool(*rc::gen::element(Growth::kFast, Growth::kInPlace));
  const auto steps = *rc::gen::scale(3.0, rc::gen::arbitrary<std::vector<Step>>());
  for (const Step& step : steps)
    pool.take(step);
}

Action action_from(unsigned dice) {
  const std::pair<unsigned, Action> below[] = {
      {530, Action::kAllocate},        {860, Action::kFree},
      {870, Action::kBadFree},         {890, Action::kCheckpoint},
      {895, Action::kForget},          {910, Action::kRestore},
      {925, Action::kRestoreDeclared}, {940, Action::kRestoreMisdeclared},
      {950, Action::kRestoreLive},     {960, Action::kTrim},
      {975, Action::kGiveBack},        {995, Action::kFailNext},
  };
  for (const auto& [limit, action] : below) {
    if (dice < limit) return action;
  }
  return Action::kReopen;
}

// CGTREE_POOL_STEPS (per way of growth) and CGTREE_POOL_SEED override the defaults.
unsigned long number_from(const char* variable, unsigned long otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::stoul(text);
}

class PoolLongTraceTest : public testing::TestWithParam<Growth> {};

// TestBlockStateAbsorption.test_resnet: a large pattern, here of many random steps.
// Acceptance: checkpoints resnet.
TEST_P(PoolLongTraceTest, AgreesWithItsModelOnALongTrace) {
  const unsigned long steps = number_from("CGTREE_POOL_STEPS", 33'000);
  const unsigned long seed = number_from("CGTREE_POOL_SEED", std::random_device{}());
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RecordProperty("seed", std::to_string(seed));
  std::mt19937 random(static_cast<unsigned>(seed));
  ModelledPool pool(GetParam());
  for (unsigned long i = 0; i < steps; ++i) {
    const Action action = action_from(static_cast<unsigned>(random() % 1000));
    const Step step{action, static_cast<std::uint32_t>(random())};
    try {
      pool.take(step);
    } catch (const std::exception& error) {
      FAIL() << "step " << i << ", " << step << ": " << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryGrowth, PoolLongTraceTest,
                         testing::Values(Growth::kFast, Growth::kInPlace));

}  // namespace
}  // namespace cgtree
