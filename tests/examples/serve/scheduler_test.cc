// The schedule: order, slots, blocks of the cache, and every token served.
#include "examples/serve/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace cgtree::serve {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;

// Ends a step with the last fed positions as tokens, which shows when each token was made.
void generate_positions(Scheduler& scheduler) {
  std::vector<std::int32_t> first, next;
  for (const Prompt& prompt : scheduler.prompts())
    first.push_back(static_cast<std::int32_t>(prompt.length) - 1);
  for (const Row& row : scheduler.rows())
    next.push_back(row.position);
  scheduler.end_step(first, next);
}

std::size_t active(const Scheduler& scheduler) {
  return scheduler.prompts().size() + scheduler.rows().size();
}

class SchedulerTest : public testing::Test {
 protected:
  // Each run has new requests; the seed is in the report.
  SchedulerTest() : seed_(std::random_device()()), trace_(seeded_requests(seed_, 60)) {
    RecordProperty("seed", std::to_string(seed_));
  }

  std::uint64_t seed_;
  std::vector<Request> trace_;
  SchedulerOptions options_{
      .max_batch = 5, .max_prompt = 16, .context = 96, .blocks = 14, .seed = seed_};
};

TEST_F(SchedulerTest, NeverUsesMoreThanMaxBatchDistinctSlots) {
  SCOPED_TRACE(seed_);
  Scheduler scheduler(trace_, options_);

  while (scheduler.begin_step()) {
    std::set<std::int32_t> slots;
    for (const Row& row : scheduler.rows())
      slots.insert(row.slot);
    for (const Prompt& prompt : scheduler.prompts())
      slots.insert(prompt.slot);
    ASSERT_EQ(slots.size(), active(scheduler));
    ASSERT_FALSE(slots.empty());
    ASSERT_GE(*slots.begin(), 0);
    ASSERT_LT(*slots.rbegin(), options_.max_batch);
    generate_positions(scheduler);
  }
}

TEST_F(SchedulerTest, AdmitsRequestsInOrderAndNeverBeforeTheyArrive) {
  SCOPED_TRACE(seed_);
  Scheduler scheduler(trace_, options_);
  std::int32_t latest = -1;

  while (scheduler.begin_step()) {
    std::set<std::int32_t> admitted;
    for (const Prompt& prompt : scheduler.prompts())
      admitted.insert(prompt.request);
    for (const std::int32_t request : admitted) {
      ASSERT_EQ(request, ++latest);
      ASSERT_LE(trace_[static_cast<std::size_t>(request)].arrival_ns, scheduler.now_ns());
    }
    generate_positions(scheduler);
  }
  EXPECT_EQ(latest, 59);
}

TEST_F(SchedulerTest, AStepTakesUpToDepthTokensOfEachRowAndAsLongAsTheLongest) {
  SCOPED_TRACE(seed_);
  constexpr std::int64_t kDepth = 4;
  Scheduler scheduler(trace_, options_);

  while (scheduler.begin_step()) {
    std::vector<std::int32_t> first, next;
    for (const Prompt& prompt : scheduler.prompts())
      first.push_back(static_cast<std::int32_t>(prompt.length) - 1);
    std::int64_t longest = 1;
    for (const Row& row : scheduler.rows()) {
      const std::int64_t made =
          std::ssize(scheduler.tokens()[static_cast<std::size_t>(row.request)]);
      ASSERT_EQ(row.left, scheduler.generated_tokens(row.request) - made);
      ASSERT_GE(row.left, 1);
      const std::int64_t count = std::min<std::int64_t>(row.left, 1 + row.position % kDepth);
      for (std::int64_t i = 0; i < kDepth; ++i)
        next.push_back(i < count ? row.position + static_cast<std::int32_t>(i) : -1);
      longest = std::max(longest, count);
    }
    const std::int64_t before = scheduler.now_ns();
    scheduler.end_step(first, next, kDepth);
    ASSERT_EQ(scheduler.now_ns(), before + longest * options_.step_ns);
  }
  // Each token equals the position that was fed for it.
  for (std::size_t r = 0; r < trace_.size(); ++r) {
    const std::vector<std::int32_t>& tokens = scheduler.tokens()[r];
    ASSERT_EQ(std::ssize(tokens), scheduler.generated_tokens(static_cast<std::int32_t>(r)));
    for (std::size_t i = 1; i < tokens.size(); ++i)
      ASSERT_EQ(tokens[i], tokens[i - 1] + 1);
  }
}

TEST_F(SchedulerTest, GivesEveryRequestAllItsTokens) {
  SCOPED_TRACE(seed_);
  Scheduler scheduler(trace_, options_);

  while (scheduler.begin_step())
    generate_positions(scheduler);

  std::int64_t total = 0;
  for (std::size_t i = 0; i < trace_.size(); ++i) {
    const std::int64_t prompt = std::min<std::int64_t>(trace_[i].context_tokens, 16);
    const std::int64_t expected = std::min(trace_[i].generated_tokens, 96 - prompt + 1);
    ASSERT_EQ(std::ssize(scheduler.tokens()[i]), expected);
    total += expected;
  }
  EXPECT_EQ(scheduler.generated(), total);
}

// Each block has at most one owner, which has enough blocks for its fed tokens.
TEST_F(SchedulerTest, BlocksHaveOneOwnerAndAreReused) {
  SCOPED_TRACE(seed_);
  Scheduler scheduler(trace_, options_);
  std::set<std::int32_t> used;
  bool has_waited = false;

  while (scheduler.begin_step()) {
    std::set<std::int32_t> owned;
    std::size_t blocks = 0;
    const auto add = [&](std::int32_t slot, std::int64_t tokens) {
      ASSERT_GE(std::ssize(scheduler.blocks(slot)) * 16, tokens);
      owned.insert(scheduler.blocks(slot).begin(), scheduler.blocks(slot).end());
      blocks += scheduler.blocks(slot).size();
    };
    for (const Row& row : scheduler.rows())
      add(row.slot, row.position + 1);
    for (const Prompt& prompt : scheduler.prompts())
      add(prompt.slot, prompt.length);
    ASSERT_EQ(owned.size(), blocks);
    ASSERT_EQ(std::ssize(owned) + scheduler.free_blocks(), 14);
    ASSERT_GE(*owned.begin(), 0);
    ASSERT_LT(*owned.rbegin(), 14);
    used.insert(owned.begin(), owned.end());
    has_waited = has_waited || scheduler.free_blocks() < 6;
    generate_positions(scheduler);
  }
  EXPECT_EQ(scheduler.free_blocks(), 14);
  EXPECT_TRUE(has_waited);
}

TEST(ScheduleTest, ARequestWaitsForBlocksAndLaterOnesWaitBehindIt) {
  // Blocks of 16 tokens: 2, 3 and 1 are needed, and there are 4.
  const std::vector<Request> trace = {{0, 16, 4}, {0, 16, 20}, {0, 1, 1}};
  Scheduler scheduler(trace, {.max_batch = 3, .context = 64, .blocks = 4});
  std::vector<std::size_t> admitted;

  while (scheduler.begin_step()) {
    admitted.push_back(scheduler.prompts().size());
    generate_positions(scheduler);
    if (admitted.size() == 5) break;
  }

  EXPECT_EQ(admitted, (std::vector<std::size_t>{1, 0, 0, 0, 2}));
}

TEST(ScheduleTest, GenerationEndsAtTheEndOfTheContext) {
  const std::vector<Request> trace = {{0, 10, 100}};
  Scheduler scheduler(trace, {.max_batch = 1, .max_prompt = 10, .context = 16, .blocks = 1});
  std::int32_t last = 0;

  while (scheduler.begin_step()) {
    for (const Row& row : scheduler.rows())
      last = row.position;
    generate_positions(scheduler);
  }

  EXPECT_EQ(last, 15);
  EXPECT_EQ(scheduler.tokens()[0].size(), 7u);
}

TEST(ScheduleTest, ReusesASlotInTheStepAfterItsRequestFinished) {
  const std::vector<Request> trace = {{0, 1, 2}, {0, 1, 1}};
  Scheduler scheduler(trace, {.max_batch = 1});
  std::vector<std::int32_t> requests;

  while (scheduler.begin_step()) {
    ASSERT_EQ(active(scheduler), 1u);
    for (const Prompt& prompt : scheduler.prompts()) {
      EXPECT_EQ(prompt.slot, 0);
      requests.push_back(prompt.request);
    }
    for (const Row& row : scheduler.rows()) {
      EXPECT_EQ(row.slot, 0);
      requests.push_back(row.request);
    }
    generate_positions(scheduler);
  }

  EXPECT_EQ(requests, (std::vector<std::int32_t>{0, 0, 1}));
}

TEST(ScheduleTest, ThePromptGivesTheFirstGeneratedToken) {
  const std::vector<Request> trace = {{0, 3, 2}};
  Scheduler scheduler(trace, {.max_batch = 1});

  while (scheduler.begin_step())
    generate_positions(scheduler);

  EXPECT_EQ(scheduler.tokens()[0], (std::vector<std::int32_t>{2, 3}));
}

TEST(ScheduleTest, FeedsBackWhatWasGenerated) {
  const std::vector<Request> trace = {{0, 1, 3}};
  Scheduler scheduler(trace, {.max_batch = 1});
  scheduler.begin_step();
  scheduler.end_step(std::vector<std::int32_t>{77}, {});

  scheduler.begin_step();

  EXPECT_EQ(scheduler.rows()[0].token, 77);
  EXPECT_EQ(scheduler.rows()[0].position, 1);
}

TEST(ScheduleTest, CutsLongPromptsAndFeedsOneTokenWhereThereIsNone) {
  const std::vector<Request> trace = {{0, 1000, 1}, {0, 0, 1}};
  Scheduler scheduler(trace, {.max_batch = 2, .max_prompt = 4});
  scheduler.begin_step();

  ASSERT_EQ(scheduler.prompts().size(), 2u);
  EXPECT_EQ(scheduler.prompts()[0].length, 4);
  EXPECT_EQ(scheduler.prompts()[1].length, 1);
}

TEST(ScheduleTest, TheClockJumpsToTheNextArrivalWhenNoSlotIsInUse) {
  const std::vector<Request> trace = {{0, 1, 1}, {500 * kMillisecond, 1, 1}};
  Scheduler scheduler(trace, {.max_batch = 2, .step_ns = 20 * kMillisecond});
  scheduler.begin_step();
  scheduler.end_step(std::vector<std::int32_t>{0}, {});

  scheduler.begin_step();

  EXPECT_EQ(scheduler.now_ns(), 500 * kMillisecond);
  EXPECT_EQ(scheduler.prompts()[0].request, 1);
}

TEST(ScheduleTest, ALateRequestJoinsTheRunningBatch) {
  const std::vector<Request> trace = {{0, 1, 9}, {30 * kMillisecond, 1, 1}};
  Scheduler scheduler(trace, {.max_batch = 2, .step_ns = 20 * kMillisecond});
  std::vector<std::size_t> sizes;

  for (int i = 0; i < 4; ++i) {
    scheduler.begin_step();
    sizes.push_back(active(scheduler));
    generate_positions(scheduler);
  }

  EXPECT_EQ(sizes, (std::vector<std::size_t>{1, 1, 2, 1}));  // at 0, 20, 40 and 60 ms
}

TEST(SeededRequestsTest, TheSameSeedGivesTheSameRequests) {
  EXPECT_EQ(seeded_requests(7, 50), seeded_requests(7, 50));
  EXPECT_NE(seeded_requests(7, 50), seeded_requests(8, 50));
  EXPECT_EQ(seeded_requests(7, 50).size(), 50u);
}

}  // namespace
}  // namespace cgtree::serve
