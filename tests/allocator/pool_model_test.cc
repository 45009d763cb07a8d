// Random traces: a pool behaves as its model, and validates after every step.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <random>
#include <vector>

#include "tests/allocator/modelled_pool.h"

namespace rc {

template <>
struct Arbitrary<cgtree::Step> {
  static Gen<cgtree::Step> arbitrary() {
    using cgtree::Verb;
    const auto verb = gen::weightedElement<Verb>({{8, Verb::kAllocate},
                                                  {6, Verb::kFree},
                                                  {2, Verb::kCheckpoint},
                                                  {2, Verb::kRestore},
                                                  {1, Verb::kRestoreLive},
                                                  {1, Verb::kTrim},
                                                  {1, Verb::kFailNext}});
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
  ModelledPool pool;
  const auto steps = *rc::gen::scale(3.0, rc::gen::arbitrary<std::vector<Step>>());
  for (const Step& step : steps)
    pool.take(step);
}

// TestBlockStateAbsorption.test_resnet: a large pattern, here of 10,000 random steps.
TEST(PoolModelTest, AgreesWithItsModelOnALongTrace) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RecordProperty("seed", std::to_string(seed));
  std::mt19937 random(seed);
  ModelledPool pool;
  for (int i = 0; i < 10000; ++i) {
    const unsigned dice = random() % 100;
    const Verb verb = dice < 55   ? Verb::kAllocate
                      : dice < 90 ? Verb::kFree
                      : dice < 92 ? Verb::kCheckpoint
                      : dice < 96 ? Verb::kRestore
                      : dice < 97 ? Verb::kRestoreLive
                      : dice < 98 ? Verb::kTrim
                                  : Verb::kFailNext;
    const Step step{verb, static_cast<std::uint32_t>(random())};
    try {
      pool.take(step);
    } catch (const std::logic_error& error) {
      FAIL() << "step " << i << ", " << step << ": " << error.what();
    }
  }
}

}  // namespace
}  // namespace cgtree
