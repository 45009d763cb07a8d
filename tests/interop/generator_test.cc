// A generator outside step functions: handles, states, threads, and captures by others.
#include "interop/random/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <thread>
#include <vector>

#include "base/error.h"
#include "interop/device/graph.h"
#include "interop/device/stream.h"
#include "tests/support/philox_oracle.h"

namespace cgtree::testing {
namespace {

std::vector<std::uint32_t> words(const PhiloxRange& range, std::uint64_t blocks) {
  std::vector<std::uint32_t> all;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const PhiloxBlock block = range.block(i);
    all.insert(all.end(), std::begin(block.words), std::end(block.words));
  }
  return all;
}

TEST(GeneratorTest, ReservesItsSequenceFromTheBeginningOn) {
  const Generator generator(123);
  PhiloxOracle oracle(123);
  for (const std::uint64_t blocks : {1, 5, 0, 2}) {
    EXPECT_EQ(words(generator.reserve(blocks), blocks),
              oracle.words(static_cast<std::int64_t>(blocks)));
  }
  EXPECT_EQ(generator.state(), (GeneratorState{123, 8, nullptr}));
}

TEST(GeneratorTest, CopiesShareOnePositionAndOthersAreIndependent) {
  const Generator generator(1);
  const Generator copy = generator;
  const Generator other(1);
  (void)copy.reserve(3);

  EXPECT_EQ(generator.state().offset, 3u);
  EXPECT_EQ(other.state().offset, 0u);
}

TEST(GeneratorTest, SetSeedBeginsTheSequenceOfTheSeed) {
  const Generator generator(1);
  (void)generator.reserve(3);
  generator.set_seed(1);
  EXPECT_EQ(generator.state(), (GeneratorState{1, 0, nullptr}));
  generator.set_seed(0xfedc'ba98'7654'3210);
  EXPECT_EQ(generator.seed(), 0xfedc'ba98'7654'3210);
}

TEST(GeneratorTest, AStateThatIsSetDrawsTheSameAgain) {
  const Generator generator(5);
  (void)generator.reserve(7);
  const GeneratorState saved = generator.state();
  const std::vector<std::uint32_t> first = words(generator.reserve(4), 4);
  generator.set_seed(6);
  generator.set_state(saved);

  EXPECT_EQ(words(generator.reserve(4), 4), first);
}

TEST(GeneratorTest, RangesOfManyThreadsNeverOverlapAndLeaveNoGap) {
  constexpr int kThreads = 4;
  constexpr int kRanges = 40'000;
  const Generator generator(9);
  std::vector<std::vector<std::uint64_t>> firsts(kThreads);
  std::vector<std::thread> threads;
  std::latch start(kThreads);
  for (std::vector<std::uint64_t>& mine : firsts) {
    threads.emplace_back([&mine, &generator, &start] {
      start.arrive_and_wait();
      // Two blocks each; the words identify their block.
      for (int i = 0; i < kRanges; ++i) {
        const PhiloxBlock block = generator.reserve(2).block(0);
        mine.push_back(std::uint64_t{block.words[0]} << 32 | block.words[1]);
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();

  std::vector<std::uint64_t> drawn;
  for (const auto& mine : firsts)
    drawn.insert(drawn.end(), mine.begin(), mine.end());
  std::vector<std::uint64_t> expected;
  PhiloxOracle oracle(9);
  const std::vector<std::uint32_t> all = oracle.words(2 * kThreads * kRanges);
  for (std::size_t i = 0; i < all.size(); i += 8)
    expected.push_back(std::uint64_t{all[i]} << 32 | all[i + 1]);
  std::sort(drawn.begin(), drawn.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(drawn, expected);
}

TEST(GeneratorTest, SeedAndOffsetAreSetTogetherWhileOthersDraw) {
  // Seed 1 uses only the upper half of the sequence, seed 2 only the lower.
  const PhiloxPosition places[] = {{1, std::uint64_t{1} << 63}, {2, 0}};
  PhiloxSequence sequence(places[0]);
  std::thread reseeds([&] {
    for (int i = 0; i < 2'000'000; ++i)
      (void)sequence.set(places[i % 2]);
  });
  int mixed = 0;
  for (int i = 0; i < 2'000'000; ++i) {
    const PhiloxPosition first = sequence.take(1);
    mixed += (first.seed == 1) != (first.offset >= std::uint64_t{1} << 63);
  }
  reseeds.join();
  EXPECT_EQ(mixed, 0);
}

TEST(GeneratorTest, GivingBackStopsAtDrawsOfOthers) {
  PhiloxSequence sequence({3, 0});
  const PhiloxPosition first = sequence.take(4);
  sequence.give_back({3, 4}, first);
  EXPECT_EQ(sequence.position(), (PhiloxPosition{3, 0}));

  (void)sequence.take(4);
  (void)sequence.take(1);
  sequence.give_back({3, 4}, first);
  EXPECT_EQ(sequence.position(), (PhiloxPosition{3, 5}));
}

TEST(GeneratorTest, RefusesToBeFrozenInAForeignCapture) {
  const Generator generator(3);
  const Stream stream(Device::host());
  const StreamScope scope(stream);
  Graph graph;
  {
    Capture capture(stream, CaptureMode::kThreadLocal);
    EXPECT_THROW((void)generator.reserve(1), InvalidArgument);
    (void)capture.end(&graph);
  }
  EXPECT_EQ(generator.state().offset, 0u);
  EXPECT_NO_THROW((void)generator.reserve(1));
}

}  // namespace
}  // namespace cgtree::testing
