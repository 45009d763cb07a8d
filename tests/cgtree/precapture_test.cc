// Precapture before calls come, and the sizes of calls that were made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cgtree/record/graph_bytes.h"
#include "extensions/sizes/precapture.h"
#include "extensions/sizes/suggest_buckets.h"
#include "extensions/watch/monitor.h"
#include "tests/support/test_kernels.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using Outcome = Precaptured::Outcome;

class PrecaptureTest : public TreeTest {
 protected:
  using Function = CompiledFunction<Tensor(Tensor)>;

  Function doubled(CompileOptions options = {}) {
    options.inputs = {{.dynamic = {{0, "n"}}}};
    if (options.axes.empty()) options.buckets = {{"n", {2, 4, 8}}};
    options.outputs = {{.dynamic = {{0, "n"}}}};
    return compile(
        context(), "doubled", [](Tensor x) { return affine(x, 2, 0); }, options);
  }
  MakeInputs make_inputs() {
    return
        [this](const CallSizes& sizes) { return std::vector<Tensor>{random_tensor({sizes["n"]})}; };
  }
  void call(const Function& f, std::int64_t size) {
    const std::vector<float> x = random_floats(size);
    EXPECT_EQ(values(f(tensor({size}, x))), affine_of(x, 2, 0));
  }
  static std::vector<std::int64_t> sizes_of(const PrecaptureReport& report) {
    std::vector<std::int64_t> sizes;
    for (const Precaptured& entry : report.entries)
      sizes.push_back(entry.sizes["n"]);
    return sizes;
  }
};
CGTREE_ON_ALL_DEVICES(PrecaptureTest);

TEST_P(PrecaptureTest, EveryBucketIsRecordedTheLargestFirst) {
  const Function f = doubled();

  const PrecaptureReport report = precapture(f, {}, make_inputs());

  EXPECT_THAT(sizes_of(report), ElementsAre(8, 4, 2));
  EXPECT_EQ(report.count(Outcome::kRecorded), 3u);
  EXPECT_EQ(report.bytes, stats().pool_reserved_bytes);
  EXPECT_EQ(stats().live_outputs, 0u);
  for (std::int64_t size = 1; size <= 8; ++size)
    call(f, size);
  EXPECT_EQ(f.stats().replays, 8u);
  EXPECT_EQ(f.stats().recordings, 6u);  // two places for each size
}

// Precaptured sizes are recorded again, since nothing else would record them.
TEST_P(PrecaptureTest, PrecapturedSizesAreRecordedAgainAfterReleaseMemory) {
  const Function f = doubled({.while_missing = WhileMissing::kRunEagerly});
  (void)precapture(f, {.sizes = {{"n", {8}}}}, make_inputs());
  for (int round = 0; round < 2; ++round) {
    (void)context().release_memory();
    for (const auto& [size, outcome] :
         {std::pair(7, cgtree::Outcome::kRecord), std::pair(6, cgtree::Outcome::kReplay),
          std::pair(3, cgtree::Outcome::kRunEagerly)}) {
      call(f, size);
      EXPECT_EQ(f.last_outcome()->outcome, outcome);
    }
  }
}

TEST_P(PrecaptureTest, InABreakItIsRefusedAndLeavesTheCallAsItIs) {
  std::optional<Function> f;
  int breaks = 0;
  f.emplace(compile(context(), "f", [&](Tensor x) {
    const Tensor y = affine(x, 2, 0);
    eager_break([&](const StepValues&) {
      ++breaks;
      EXPECT_THROW((void)precapture(*f, {.key = {{"n", {std::int64_t{1}}}}}, {}), ConcurrentUse);
    });
    return affine(y, 1, 1);
  }));
  for (int i = 0; i < 5; ++i) {
    const std::vector<float> x = random_floats(4);
    EXPECT_EQ(values((*f)(tensor({4}, x))), affine_of(x, 2, 1)) << i;
  }
  EXPECT_EQ(breaks, 5);
}

TEST_P(PrecaptureTest, AFunctionThatACallbackDestroysIsRefusedByNameAndRemoved) {
  for (const bool in_progress : {false, true}) {
    auto owner = std::make_shared<int>();
    const std::weak_ptr<int> watched = owner;
    std::optional<Function> f =
        compile(context(), "doomed", [owner](Tensor x) { return affine(x, 2, 0); },
                {.inputs = {{.dynamic = {{0, "n"}}}}, .buckets = {{"n", {2, 4, 8}}}});
    owner.reset();
    const MakeInputs make = make_inputs();
    const auto precapture = [&] {
      (void)cgtree::precapture(*f,
                               {.progress =
                                    [&](const Precaptured&) {
                                      if (in_progress) f.reset();
                                    }},
                               [&](const CallSizes& sizes) {
                                 if (!in_progress) f.reset();
                                 return make(sizes);
                               });
    };
    EXPECT_THAT(precapture, ::testing::ThrowsMessage<InvalidArgument>(::testing::AllOf(
                                HasSubstr("'doomed'"),
                                HasSubstr(in_progress ? "progress has" : "make_inputs has"))));
    EXPECT_TRUE(watched.expired());
    EXPECT_EQ(stats().recordings, in_progress ? 2u : 0u);  // in two places
    EXPECT_EQ(nlohmann::json::parse(snapshot_json(context()))["nodes"].size(), 0u);
  }
}

// Each call of a loop that holds its last results has a recording, at every size.
TEST_P(PrecaptureTest, ALoopThatHoldsItsOutputsReplaysAtEachCall) {
  for (const std::size_t held : {0, 1, 2}) {
    const Function f = doubled({.while_missing = WhileMissing::kRunEagerly});
    const PrecaptureReport report = precapture(f, {.held_outputs = held}, make_inputs());
    EXPECT_EQ(report.count(Outcome::kRecorded), 3u);
    EXPECT_EQ(f.stats().recordings, 3 * (held + 1));
    EXPECT_EQ(stats().live_outputs, 0u);

    std::vector<Tensor> last(held);
    std::vector<std::vector<float>> expected(held);
    for (std::size_t i = 0; i < 200; ++i) {
      const auto size = static_cast<std::int64_t>(1 + random_() % 8);
      const std::vector<float> x = random_floats(size);
      Tensor y = f(tensor({size}, x));
      EXPECT_EQ(values(y), affine_of(x, 2, 0));
      if (held == 0) continue;
      if (last[i % held].defined()) {
        EXPECT_EQ(values(last[i % held]), expected[i % held]);
      }
      last[i % held] = std::move(y);
      expected[i % held] = affine_of(x, 2, 0);
    }
    EXPECT_EQ(f.stats().replays, 200u);
    EXPECT_EQ(f.stats().skipped(), 0u);
  }
}

// The memory of a combination is not reduced by the recordings that it evicts.
TEST_P(PrecaptureTest, ACombinationThatEvictsAnotherCountsWhatItHasMade) {
  make_context({.max_recordings = 1, .at_limit = AtLimit::kEvict});
  const Function f = compile(context(), "f",
                             [](Tensor x) {
                               const Tensor y = affine(x, 1, 0);
                               for (std::int64_t i = 0; i < x.elements(); ++i)
                                 update(y, 1, 1);
                               return y;
                             },
                             {.inputs = {{.dynamic = {{0, "n"}}}},
                              .buckets = {{"n", {2, 4, 8, 16}}},
                              .outputs = {{.dynamic = {{0, "n"}}}}});
  const PrecaptureReport report = precapture(f, {.held_outputs = 0}, make_inputs());
  ASSERT_EQ(report.entries.size(), 4u);
  std::size_t sum = 0;
  for (const Precaptured& entry : report.entries) {
    const auto nodes = static_cast<std::size_t>(entry.sizes["n"]) + 1;
    EXPECT_GT(entry.graph_bytes, nodes * kGraphBytesPerNode) << to_string(entry.sizes);
    EXPECT_LT(entry.graph_bytes, 2 * kGraphBytesPerBranch) << to_string(entry.sizes);
    EXPECT_LT(entry.bytes, std::size_t{1} << 30) << to_string(entry.sizes);
    sum += entry.graph_bytes;
  }
  EXPECT_EQ(report.graph_bytes, sum);
  EXPECT_LT(report.bytes, std::size_t{1} << 30);
}

TEST_P(PrecaptureTest, ExistingRecordingsAreNotMadeAgain) {
  const Function f = doubled();
  call(f, 3);
  call(f, 3);

  const PrecaptureReport report = precapture(f, {.held_outputs = 0}, make_inputs());

  EXPECT_EQ(report.count(Outcome::kRecorded), 2u);
  EXPECT_EQ(report.entries[1].outcome, Outcome::kAlreadyThere);
  EXPECT_EQ(precapture(f, {.held_outputs = 0}, make_inputs()).count(Outcome::kAlreadyThere), 3u);
  EXPECT_EQ(precapture(f, {}, make_inputs()).count(Outcome::kRecorded), 3u);
  EXPECT_EQ(precapture(f, {}, make_inputs()).count(Outcome::kAlreadyThere), 3u);
}

TEST_P(PrecaptureTest, AServerThatMustNotRecordAfterwardsDoesNot) {
  for (const WhileMissing policy : {WhileMissing::kRunEagerly, WhileMissing::kNextLarger}) {
    const Function f = doubled({.while_missing = policy});
    (void)precapture(f, {.sizes = {{"n", {8, 2}}}}, make_inputs());
    for (std::int64_t size = 1; size <= 8; ++size)
      call(f, size);

    const bool is_padded = policy == WhileMissing::kNextLarger;
    EXPECT_EQ(f.stats().recordings, 4u);
    EXPECT_EQ(f.stats().replays, is_padded ? 8u : 6u);
    EXPECT_EQ(f.stats().skips[static_cast<int>(SkipReason::kNotRecorded)], is_padded ? 0u : 2u);
  }
}

// make_inputs may precapture the same function for its own calls.
TEST_P(PrecaptureTest, APrecaptureInsideAnotherDoesNotSwitchItOff) {
  const Function f = doubled({.while_missing = WhileMissing::kRunEagerly});
  std::vector<std::int64_t> inner;

  const PrecaptureReport report = precapture(f, {}, [&](const CallSizes& sizes) {
    if (inner.empty()) {
      inner = sizes_of(precapture(f, {.sizes = {{"n", {2}}}}, make_inputs()));
      EXPECT_GT(f.stats().recordings, 0u);
    }
    return std::vector<Tensor>{random_tensor({sizes["n"]})};
  });

  EXPECT_THAT(inner, ElementsAre(2));
  EXPECT_THAT(sizes_of(report), ElementsAre(8, 4, 2));
  EXPECT_EQ(report.count(Outcome::kLeftOut), 0u) << to_string(report);
  for (std::int64_t size = 1; size <= 8; ++size)
    call(f, size);
  EXPECT_EQ(f.stats().replays, 8u);
}

TEST_P(PrecaptureTest, SizesThatDoNotFitIntoTheTimeAreLeftOutWithAReason) {
  const Function f = doubled();
  const PrecaptureReport late =
      precapture(f, {.max_time = std::chrono::microseconds(0)}, make_inputs());
  EXPECT_EQ(late.count(Outcome::kLeftOut), 3u);
  EXPECT_THAT(late.entries[0].why, HasSubstr("max_time"));
  EXPECT_EQ(f.stats().calls, 0u);
  EXPECT_THAT(to_string(late), HasSubstr("n = 2: left out: max_time"));
}

TEST_P(PrecaptureTest, SizesThatCannotBeGraphedAreLeftOutWithAReason) {
  const Function f = doubled({.max_recordings = 3});

  const PrecaptureReport report = precapture(f, {}, make_inputs());

  EXPECT_EQ(report.count(Outcome::kRecorded), 1u);
  EXPECT_THAT(report.entries[1].why, HasSubstr("function_limit"));
}

TEST_P(PrecaptureTest, AnExceptionLeavesAllThatIsDone) {
  const Function f = doubled();
  const MakeInputs make = make_inputs();
  EXPECT_THROW(precapture(f, {},
                          [&](const CallSizes& sizes) {
                            if (sizes["n"] == 2) throw std::runtime_error("no more");
                            return make(sizes);
                          }),
               std::runtime_error);

  EXPECT_EQ(f.stats().recordings, 4u);
  call(f, 8);
  EXPECT_EQ(f.stats().replays, 1u);
}

TEST_P(PrecaptureTest, ProgressIsToldAfterEachCombination) {
  const auto f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); },
                         {.inputs = {{.dynamic = {{0, "rows"}, {1, "columns"}}}},
                          .buckets = {{"rows", {2, 4}}, {"columns", {3, 5}}}});
  std::vector<std::string> told;
  (void)precapture(
      f, {.progress = [&](const Precaptured& entry) { told.push_back(to_string(entry.sizes)); }},
      [&](const CallSizes& sizes) {
        return std::vector<Tensor>{random_tensor({sizes["rows"], sizes["columns"]})};
      });

  EXPECT_THAT(told, ElementsAre("rows = 4, columns = 5", "rows = 4, columns = 3",
                                "rows = 2, columns = 5", "rows = 2, columns = 3"));
}

TEST_P(PrecaptureTest, AnAxisWithoutSizesAndOneThatIsNotThereAreNamed) {
  const Function f = doubled({.axes = {{.name = "n"}}});
  try {
    (void)precapture(f, {}, make_inputs());
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("'doubled': axis 'n' has neither buckets nor a list"));
  }
  EXPECT_EQ(precapture(f, {.sizes = {{"n", {3}}}}, make_inputs()).count(Outcome::kRecorded), 1u);
  EXPECT_THROW((void)precapture(f, {.sizes = {{"m", {3}}}}, make_inputs()), InvalidArgument);
  EXPECT_THROW((void)f.histogram("m"), InvalidArgument);
}

TEST_P(PrecaptureTest, SizesOfCallsAreCountedAndBucketsSuggested) {
  const Function f = doubled();
  (void)precapture(f, {}, make_inputs());
  EXPECT_THAT(f.histogram("n"), IsEmpty());
  for (const std::int64_t size : {5, 1, 5, 3, 5, 9, 9, 0})
    call(f, size);

  EXPECT_THAT(f.histogram("n"),
              ElementsAre(Pair(0, 1), Pair(1, 1), Pair(3, 1), Pair(5, 3), Pair(9, 2)));
  EXPECT_THAT(suggest_buckets(f, "n", 2), ElementsAre(5, 9));
}

}  // namespace
}  // namespace cgtree::testing
