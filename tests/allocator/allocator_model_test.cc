// Random traces: no promise of the allocator is broken on any of them.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/allocator/modelled_allocator.h"

namespace rc {

template <>
struct Arbitrary<cgtree::AllocatorStep> {
  static Gen<cgtree::AllocatorStep> arbitrary() {
    using cgtree::Move;
    const auto move = gen::weightedElement<Move>({{6, Move::kAllocate},
                                                  {4, Move::kAllocateInPool},
                                                  {7, Move::kFree},
                                                  {2, Move::kFreeElsewhere},
                                                  {3, Move::kUse},
                                                  {3, Move::kFinishOne},
                                                  {1, Move::kFinish},
                                                  {2, Move::kBeginCapture},
                                                  {7, Move::kAllocateCaptured},
                                                  {2, Move::kRun},
                                                  {3, Move::kJoin},
                                                  {3, Move::kUseCaptured},
                                                  {1, Move::kEndCapture},
                                                  {1, Move::kTrim},
                                                  {1, Move::kSetBudget},
                                                  {1, Move::kFailNext},
                                                  {1, Move::kDropPool}});
    return gen::map(gen::pair(move, gen::arbitrary<std::uint32_t>()),
                    [](const std::pair<Move, std::uint32_t>& step) {
                      return cgtree::AllocatorStep{step.first, step.second};
                    });
  }
};

}  // namespace rc

namespace cgtree {
namespace {

// A failure prints the shortest trace that RapidCheck finds, and its seed.
RC_GTEST_PROP(AllocatorModelTest, KeepsItsPromisesOnAnyTrace, ()) {
  ModelledAllocator allocator;
  const auto steps = *rc::gen::scale(3.0, rc::gen::arbitrary<std::vector<AllocatorStep>>());
  for (const AllocatorStep& step : steps)
    allocator.take(step);
  allocator.finish();
}

TEST(AllocatorModelTest, KeepsItsPromisesOnALongTrace) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RecordProperty("seed", std::to_string(seed));
  std::mt19937 random(seed);
  ModelledAllocator allocator;
  for (int i = 0; i < 6000; ++i) {
    // Every move as often as every other, but for the rare ones that empty the state.
    auto move = static_cast<Move>(random() % 17);
    if (move >= Move::kEndCapture && random() % 8 != 0) move = static_cast<Move>(random() % 12);
    const AllocatorStep step{move, static_cast<std::uint32_t>(random())};
    try {
      allocator.take(step);
    } catch (const std::exception& error) {
      FAIL() << "step " << i << ", " << step << ": " << error.what();
    }
  }
  allocator.finish();
}

}  // namespace
}  // namespace cgtree
