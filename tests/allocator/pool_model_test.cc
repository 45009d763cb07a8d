// Random traces: a pool behaves as its model, and validates after every step.
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
    using cgtree::Verb;
    const auto verb = gen::weightedElement<Verb>({{16, Verb::kAllocate},
                                                  {11, Verb::kFree},
                                                  {1, Verb::kBadFree},
                                                  {4, Verb::kCheckpoint},
                                                  {1, Verb::kForget},
                                                  {2, Verb::kRestore},
                                                  {2, Verb::kRestoreDeclared},
                                                  {1, Verb::kRestoreMisdeclared},
                                                  {2, Verb::kRestoreLive},
                                                  {2, Verb::kTrim},
                                                  {2, Verb::kGiveBack},
                                                  {2, Verb::kFailNext},
                                                  {2, Verb::kReopen}});
    return gen::map(gen::pair(verb, gen::arbitrary<std::uint32_t>()),
                    [](const std::pair<Verb, std::uint32_t>& step) {
                      return cgtree::Step{step.first, step.second};
                    });
  }
};

}  // namespace rc

namespace cgtree {
namespace {

// A failure prints the shortest trace that RapidCheck finds, and its seed.
RC_GTEST_PROP(PoolModelTest, AgreesWithItsModelOnAnyTrace, ()) {
  ModelledPool pool(*rc::gen::element(Growth::kFast, Growth::kCompact, Growth::kInPlace));
  const auto steps = *rc::gen::scale(3.0, rc::gen::arbitrary<std::vector<Step>>());
  for (const Step& step : steps)
    pool.take(step);
}

Verb verb_from(unsigned dice) {
  const std::pair<unsigned, Verb> below[] = {
      {530, Verb::kAllocate},        {860, Verb::kFree},
      {870, Verb::kBadFree},         {890, Verb::kCheckpoint},
      {895, Verb::kForget},          {910, Verb::kRestore},
      {925, Verb::kRestoreDeclared}, {940, Verb::kRestoreMisdeclared},
      {950, Verb::kRestoreLive},     {960, Verb::kTrim},
      {975, Verb::kGiveBack},        {995, Verb::kFailNext},
  };
  for (const auto& [limit, verb] : below) {
    if (dice < limit) return verb;
  }
  return Verb::kReopen;
}

// CGTREE_POOL_STEPS (per way of growth) and CGTREE_POOL_SEED override what is usual.
unsigned long number_from(const char* variable, unsigned long otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::stoul(text);
}

class PoolLongTraceTest : public testing::TestWithParam<Growth> {};

// TestBlockStateAbsorption.test_resnet: a large pattern, here of many random steps.
TEST_P(PoolLongTraceTest, AgreesWithItsModelOnALongTrace) {
  const unsigned long steps = number_from("CGTREE_POOL_STEPS", 33'000);
  const unsigned long seed = number_from("CGTREE_POOL_SEED", std::random_device{}());
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RecordProperty("seed", std::to_string(seed));
  std::mt19937 random(static_cast<unsigned>(seed));
  ModelledPool pool(GetParam());
  for (unsigned long i = 0; i < steps; ++i) {
    const Verb verb = verb_from(static_cast<unsigned>(random() % 1000));
    const Step step{verb, static_cast<std::uint32_t>(random())};
    try {
      pool.take(step);
    } catch (const std::exception& error) {
      FAIL() << "step " << i << ", " << step << ": " << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryGrowth, PoolLongTraceTest,
                         testing::Values(Growth::kFast, Growth::kCompact, Growth::kInPlace));

}  // namespace
}  // namespace cgtree
