// Data-parallel ranks whose batches differ pad to a size on which they agree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cgtree/cgtree.h"
#include "extensions/ranks/group.h"
#include "extensions/sizes/precapture.h"
#include "tests/support/devices.h"
#include "tests/support/rank_threads.h"
#include "tests/support/steps.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::Each;
using ::testing::Eq;

class AgreedSizesTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(GetParam()); }
};
CGTREE_ON_ALL_DEVICES(AgreedSizesTest);

// As docs/multi_gpu.md has it: inputs are slices of buffers for the largest batch, and each call is
// given as many rows as the fullest rank has.
TEST_P(AgreedSizesTest, RanksOfWhichSomeAreEmptyDoTheSame) {
  constexpr int kRanks = 3, kSteps = 60;
  constexpr std::int64_t kMost = 16;
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::vector<std::unique_ptr<Group>> groups = make_thread_groups(kRanks);
  std::vector<std::vector<std::optional<Outcome>>> outcomes(kRanks);
  std::vector<std::uint64_t> recordings(kRanks);
  run_on_ranks(kRanks, [&](int rank) {
    std::mt19937 random(seed + static_cast<unsigned>(rank));
    const std::shared_ptr<Group> group = std::move(groups[static_cast<std::size_t>(rank)]);
    ContextOptions options;
    options.group = group;
    Context context(device_of_rank(GetParam().device, rank), options);
    const auto decode = compile(context, "decode", [](Tensor x) { return affine(x, 2, 1); },
                                {.inputs = {{.dynamic = {{0, "batch"}}}},
                                 .buckets = {{"batch", {4, 8, kMost}}},
                                 .outputs = {{.dynamic = {{0, "batch"}}}}});
    const Tensor buffer = empty({kMost}, DType::kFloat32, context.device());
    for (int step = 0; step < kSteps; ++step) {
      const std::int64_t mine = random() % 2 == 0 ? 0 : static_cast<std::int64_t>(random() % 17);
      const std::int64_t batch = agree_size(*group, mine);
      if (batch == 0) continue;  // on all ranks
      std::vector<float> x(kMost), expected;
      for (std::int64_t i = 0; i < mine; ++i) {
        x[static_cast<std::size_t>(i)] = static_cast<float>(random() % 1000);
        expected.push_back(2 * x[static_cast<std::size_t>(i)] + 1);
      }
      context.mark_step();
      buffer.copy_from(std::span<const float>(x));
      const Tensor y = decode(buffer.slice(0, 0, batch));
      EXPECT_EQ(y.slice(0, 0, mine).to_vector<float>(), expected) << "rank " << rank;
      outcomes[static_cast<std::size_t>(rank)].push_back(decode.last_outcome()->outcome);
    }
    recordings[static_cast<std::size_t>(rank)] = decode.stats().recordings;
  });
  EXPECT_THAT(outcomes, Each(Eq(outcomes[0])));
  EXPECT_THAT(recordings, Each(Eq(recordings[0])));
  EXPECT_LE(recordings[0], 3u);
}

// All ranks learn at once of a failure or a refusal in one rank's precapture.
TEST_P(AgreedSizesTest, RanksAgreeOnWhatIsWanted) {
  using namespace std::chrono_literals;
  for (const bool throws : {true, false}) {
    std::vector<std::unique_ptr<Group>> groups = make_thread_groups(2, 30s);
    std::vector<std::string> said(2);
    std::vector<std::size_t> recorded(2);
    const auto begin = std::chrono::steady_clock::now();
    run_on_ranks(2, [&](int rank) {
      const auto r = static_cast<std::size_t>(rank);
      ContextOptions options;
      options.group = std::move(groups[r]);
      Context context(device_of_rank(GetParam().device, rank), options);
      const auto f = compile(context, "f", [](Tensor x) { return affine(x, 2, 0); },
                             {.inputs = {{.dynamic = {{0, "n"}}}},
                              .buckets = {{"n", {4, 8}}},
                              .outputs = {{.dynamic = {{0, "n"}}}}});
      const auto input = [&](std::int64_t size) {
        return from_host<float>({size}, std::vector<float>(static_cast<std::size_t>(size), 1),
                                context.device());
      };
      const auto wants = [&](const CallSizes& sizes) {
        if (rank == 0 && throws) throw std::runtime_error("boom");
        return rank == 0 || sizes["n"] == 8;  // the ranks return different choices
      };
      try {
        const PrecaptureReport report = precapture(
            f, {.wants = wants, .held_outputs = 0},
            [&](const CallSizes& sizes) { return std::vector<Tensor>{input(sizes["n"])}; });
        recorded[r] = report.count(Precaptured::Outcome::kRecorded);
      } catch (const std::exception& error) {
        said[r] = error.what();
      }
      for (int i = 0; i < 3; ++i)  // the group stays usable
        EXPECT_NO_THROW((void)f(input(4))) << rank;
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s) << said[1];  // less than the timeout
    for (const std::string& one : said)
      EXPECT_NE(one.empty(), throws) << one;
    EXPECT_THAT(recorded, Each(throws ? 0u : 1u));
  }
}

}  // namespace
}  // namespace cgtree::testing
