// Random traces: no promise of the allocator is broken on any of them.
//
// CGTREE_ALLOCATOR_TRACES: the number of long traces. CGTREE_ALLOCATOR_SEED: the seed of the first.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/log.h"
#include "tests/allocator/modelled_allocator.h"

namespace rc {

template <>
struct Arbitrary<cgtree::AllocatorStep> {
  static Gen<cgtree::AllocatorStep> arbitrary() {
    using cgtree::Move;
    const auto often = gen::inRange(0, static_cast<int>(Move::kBeginCapture));
    const auto any = gen::inRange(0, cgtree::kMoves);
    const auto move =
        gen::oneOf(gen::weightedElement<int>({{8, static_cast<int>(Move::kAllocate)},
                                              {6, static_cast<int>(Move::kFree)},
                                              {2, static_cast<int>(Move::kBeginCapture)}}),
                   often, any);
    return gen::map(gen::pair(move, gen::arbitrary<std::uint32_t>()),
                    [](const std::pair<int, std::uint32_t>& step) {
                      return cgtree::AllocatorStep{static_cast<Move>(step.first), step.second};
                    });
  }
};

}  // namespace rc

namespace cgtree {
namespace {

using Trace = std::vector<AllocatorStep>;

class AllocatorModelTest : public testing::Test {
 protected:
  // The log would have a line for each stream that ends.
  void SetUp() override {
    set_log_sink([](LogLevel, const std::string&) {});
  }
  void TearDown() override { set_log_sink(nullptr); }
};

unsigned long number_from(const char* variable, unsigned long otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::stoul(text);
}

Trace draw(std::mt19937& random) {
  Trace trace(50 + random() % 400);
  const unsigned rarity = 2 + random() % 12;
  for (AllocatorStep& step : trace) {
    // All moves are equally frequent, except that moves with large effects are rare.
    auto move = static_cast<Move>(random() % kMoves);
    if (move >= Move::kBeginCapture && random() % rarity != 0) {
      move = static_cast<Move>(random() % static_cast<unsigned>(Move::kBeginCapture));
    }
    step = {move, static_cast<std::uint32_t>(random())};
  }
  return trace;
}

// Returns a description of the failure; empty without one.
std::string run(const Trace& trace, ThreadCaching caching) {
  ModelledAllocator allocator(caching);
  std::size_t i = 0;
  try {
    for (; i < trace.size(); ++i)
      allocator.take(trace[i]);
    allocator.finish();
  } catch (const std::exception& error) {
    std::ostringstream text;
    text << "step " << i << ": " << error.what();
    return text.str();
  }
  return "";
}

// Removes steps that the failure does not need.
Trace shrink(Trace trace, ThreadCaching caching) {
  for (std::size_t chunk = trace.size() / 2; chunk > 0; chunk /= 2) {
    for (std::size_t at = 0; at < trace.size();) {
      Trace without = trace;
      const auto from = without.begin() + static_cast<std::ptrdiff_t>(at);
      without.erase(from, from + static_cast<std::ptrdiff_t>(std::min(chunk, trace.size() - at)));
      if (run(without, caching).empty()) {
        at += chunk;
      } else {
        trace = std::move(without);
      }
    }
  }
  return trace;
}

// Prints the shortest failing trace that RapidCheck finds, and its seed.
RC_GTEST_FIXTURE_PROP(AllocatorModelTest, KeepsItsPromisesOnAnyTrace, ()) {
  ModelledAllocator allocator(*rc::gen::element(ThreadCaching::kNever, ThreadCaching::kAlways));
  const auto steps = *rc::gen::scale(3.0, rc::gen::arbitrary<Trace>());
  for (const AllocatorStep& step : steps)
    allocator.take(step);
  allocator.finish();
}

TEST_F(AllocatorModelTest, KeepsItsPromisesOnLongTraces) {
  const unsigned long traces = number_from("CGTREE_ALLOCATOR_TRACES", 60);
  const unsigned long first = number_from("CGTREE_ALLOCATOR_SEED", std::random_device{}());
  std::printf("CGTREE_ALLOCATOR_SEED=%lu\n", first);
  std::fflush(stdout);  // a failed internal check ends the process
  for (unsigned long seed = first; seed < first + traces; ++seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    const Trace trace = draw(random);
    const ThreadCaching caching = seed % 2 == 0 ? ThreadCaching::kNever : ThreadCaching::kAlways;
    const std::string what = run(trace, caching);
    if (what.empty()) continue;
    const Trace small = shrink(trace, caching);
    std::ostringstream text;
    for (const AllocatorStep& step : small)
      text << "  " << step << "\n";
    FAIL() << what << "\nCGTREE_ALLOCATOR_SEED=" << seed << ", shrunk: " << run(small, caching)
           << "\n"
           << text.str();
  }
}

}  // namespace
}  // namespace cgtree
