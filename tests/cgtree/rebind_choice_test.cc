// The choice between patching nodes and copying.
#include "extensions/rebind/rebind_choice.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

namespace cgtree {
namespace {

RebindCandidate of(std::size_t bytes, std::uint32_t nodes, std::uint32_t first_node = 0) {
  RebindCandidate candidate{.bytes = bytes};
  candidate.nodes.resize(nodes);
  std::iota(candidate.nodes.begin(), candidate.nodes.end(), first_node);
  return candidate;
}

bool choose_one(const RebindCandidate& candidate, bool has_root = false) {
  return choose_rebound(std::span(&candidate, 1), has_root, false)[0];
}

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Measurements of copy_bench on an H200.
TEST(RebindChoiceTest, OneInputIsReboundWhereThatWasMeasuredToBeCheaper) {
  EXPECT_TRUE(choose_one(of(4096, 1)));
  EXPECT_FALSE(choose_one(of(4096, 16)));
  EXPECT_TRUE(choose_one(of(kMiB, 4)));
  EXPECT_FALSE(choose_one(of(kMiB, 16)));
  EXPECT_TRUE(choose_one(of(16 * kMiB, 16)));
  EXPECT_TRUE(choose_one(of(256 * kMiB, 16)));
}

TEST(RebindChoiceTest, BesideOtherCopiesASmallCopyCostsNothing) {
  EXPECT_TRUE(choose_one(of(4096, 1), /*has_root=*/false));
  EXPECT_FALSE(choose_one(of(4096, 1), /*has_root=*/true));
}

TEST(RebindChoiceTest, AForcedInputIsReboundWhateverItCosts) {
  RebindCandidate candidate = of(4, 1000);
  candidate.is_forced = true;
  EXPECT_TRUE(choose_one(candidate));
}

TEST(RebindChoiceTest, NodesThatUseTwoInputsArePatchedOnce) {
  // Neither is worth eight patches, both together are.
  const std::vector<RebindCandidate> apart = {of(2 * kMiB, 8, 0), of(2 * kMiB, 8, 8)};
  const std::vector<RebindCandidate> same = {of(2 * kMiB, 8, 0), of(2 * kMiB, 8, 0)};
  EXPECT_EQ(choose_rebound(apart, false, false), (std::vector<bool>{false, false}));
  EXPECT_EQ(choose_rebound(same, false, false), (std::vector<bool>{true, true}));
}

TEST(RebindChoiceTest, InputsWithMoreBytesPerNodeAreReboundAndOthersAreNot) {
  const std::vector<RebindCandidate> inputs = {of(4096, 16, 0), of(64 * kMiB, 1, 16),
                                               of(kMiB, 16, 17)};
  EXPECT_EQ(choose_rebound(inputs, false, false), (std::vector<bool>{false, true, false}));
}

TEST(RebindChoiceTest, IsNeverWorseThanCopyingAllOrRebindingAll) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const RebindCosts costs;
  for (int round = 0; round < 500; ++round) {
    std::vector<RebindCandidate> inputs;
    const std::size_t count = 1 + random() % 6;
    std::size_t nodes = 0;
    double bytes = 0;
    for (std::size_t i = 0; i < count; ++i) {
      inputs.push_back(of(std::size_t{1} << random() % 28, 1 + random() % 20,
                          static_cast<std::uint32_t>(nodes)));
      nodes += inputs.back().nodes.size();
      bytes += static_cast<double>(inputs.back().bytes);
    }
    const std::vector<bool> chosen = choose_rebound(inputs, false, false);
    double cost = 0;
    std::size_t patched = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (chosen[i]) patched += inputs[i].nodes.size();
      if (!chosen[i]) cost += static_cast<double>(inputs[i].bytes) / costs.bytes;
    }
    const bool has_copy = std::ranges::find(chosen, false) != chosen.end();
    cost += static_cast<double>(patched) * costs.patch + (patched > 0 ? costs.first_patch : 0) +
            (has_copy ? costs.gather_node : 0);
    EXPECT_LE(cost, bytes / costs.bytes + costs.gather_node + 1e-9);
    EXPECT_LE(cost, static_cast<double>(nodes) * costs.patch + costs.first_patch + 1e-9);
  }
}

}  // namespace
}  // namespace cgtree
