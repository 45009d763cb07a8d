// The promises of the schedule: order, slots, and every token served.
#include "examples/serve/scheduler.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "examples/serve/buckets.h"
#include "examples/serve/seeded_trace.h"

namespace cgtree::serve {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;

// Answers every row with the position it was fed, so that tokens show when they were made.
std::vector<std::int32_t> positions_of(std::span<const Row> rows) {
  std::vector<std::int32_t> next;
  for (const Row& row : rows)
    next.push_back(row.position);
  return next;
}

class SchedulerTest : public testing::Test {
 protected:
  // A fresh trace each run, with its seed in the report.
  SchedulerTest() : seed_(std::random_device()()), trace_(seeded_trace(seed_, 60)) {
    RecordProperty("seed", std::to_string(seed_));
  }

  std::uint64_t seed_;
  std::vector<Request> trace_;
  SchedulerOptions options_{.max_batch = 5, .max_prompt = 16, .seed = seed_};
};

TEST_F(SchedulerTest, NeverUsesMoreThanMaxBatchDistinctSlots) {
  SCOPED_TRACE(seed_);
  Scheduler scheduler(trace_, options_);

  while (scheduler.begin_step()) {
    std::set<std::int32_t> slots;
    for (const Row& row : scheduler.rows())
      slots.insert(row.slot);
    ASSERT_EQ(slots.size(), scheduler.rows().size());
    ASSERT_GE(*slots.begin(), 0);
    ASSERT_LT(*slots.rbegin(), options_.max_batch);
    scheduler.end_step(positions_of(scheduler.rows()));
  }
}

TEST_F(SchedulerTest, AdmitsRequestsInOrderAndNeverBeforeTheyArrive) {
  SCOPED_TRACE(seed_);
  Scheduler scheduler(trace_, options_);
  std::int32_t latest = -1;

  while (scheduler.begin_step()) {
    std::set<std::int32_t> admitted;
    for (const Row& row : scheduler.rows()) {
      if (row.position == 0) admitted.insert(row.request);
    }
    for (const std::int32_t request : admitted) {
      ASSERT_EQ(request, ++latest);
      ASSERT_LE(trace_[static_cast<std::size_t>(request)].arrival_ns, scheduler.now_ns());
    }
    scheduler.end_step(positions_of(scheduler.rows()));
  }
  EXPECT_EQ(latest, 59);
}

TEST_F(SchedulerTest, GivesEveryRequestAllItsTokens) {
  SCOPED_TRACE(seed_);
  Scheduler scheduler(trace_, options_);

  while (scheduler.begin_step())
    scheduler.end_step(positions_of(scheduler.rows()));

  std::int64_t total = 0;
  for (std::size_t i = 0; i < trace_.size(); ++i) {
    ASSERT_EQ(std::ssize(scheduler.tokens()[i]), trace_[i].generated_tokens);
    total += trace_[i].generated_tokens;
  }
  EXPECT_EQ(scheduler.generated(), total);
}

TEST_F(SchedulerTest, CountsTheStepsItTakes) {
  SCOPED_TRACE(seed_);
  Scheduler scheduler(trace_, options_);
  std::int64_t steps = 0;

  for (; scheduler.begin_step(); ++steps)
    scheduler.end_step(positions_of(scheduler.rows()));

  EXPECT_EQ(count_steps(trace_, options_), steps);
}

TEST(ScheduleTest, ReusesASlotInTheStepAfterItsRequestFinished) {
  const std::vector<Request> trace = {{0, 1, 2}, {0, 1, 1}};
  Scheduler scheduler(trace, {.max_batch = 1});
  std::vector<std::int32_t> requests;

  while (scheduler.begin_step()) {
    ASSERT_EQ(scheduler.rows().size(), 1u);
    EXPECT_EQ(scheduler.rows()[0].slot, 0);
    requests.push_back(scheduler.rows()[0].request);
    scheduler.end_step(positions_of(scheduler.rows()));
  }

  EXPECT_EQ(requests, (std::vector<std::int32_t>{0, 0, 1}));
}

TEST(ScheduleTest, TheStepOfTheLastPromptTokenAnswersTheFirstGeneratedOne) {
  const std::vector<Request> trace = {{0, 3, 2}};
  Scheduler scheduler(trace, {.max_batch = 1});

  while (scheduler.begin_step())
    scheduler.end_step(positions_of(scheduler.rows()));

  EXPECT_EQ(scheduler.tokens()[0], (std::vector<std::int32_t>{2, 3}));
}

TEST(ScheduleTest, FeedsBackWhatWasGenerated) {
  const std::vector<Request> trace = {{0, 1, 3}};
  Scheduler scheduler(trace, {.max_batch = 1});
  scheduler.begin_step();
  scheduler.end_step(std::vector<std::int32_t>{77});

  scheduler.begin_step();

  EXPECT_EQ(scheduler.rows()[0].token, 77);
  EXPECT_EQ(scheduler.rows()[0].position, 1);
}

TEST(ScheduleTest, CutsLongPromptsAndFeedsOneTokenWhereThereIsNone) {
  const std::vector<Request> trace = {{0, 1000, 1}, {0, 0, 1}};

  EXPECT_EQ(count_steps(trace, {.max_batch = 1, .max_prompt = 4}), 4 + 1);
}

TEST(ScheduleTest, TheClockJumpsToTheNextArrivalWhenNobodyIsActive) {
  const std::vector<Request> trace = {{0, 1, 1}, {500 * kMillisecond, 1, 1}};
  Scheduler scheduler(trace, {.max_batch = 2, .step_ns = 20 * kMillisecond});
  scheduler.begin_step();
  scheduler.end_step(std::vector<std::int32_t>{0});

  scheduler.begin_step();

  EXPECT_EQ(scheduler.now_ns(), 500 * kMillisecond);
  EXPECT_EQ(scheduler.rows()[0].request, 1);
}

TEST(ScheduleTest, ALateRequestJoinsTheRunningBatch) {
  const std::vector<Request> trace = {{0, 1, 9}, {30 * kMillisecond, 1, 1}};
  Scheduler scheduler(trace, {.max_batch = 2, .step_ns = 20 * kMillisecond});
  std::vector<std::size_t> sizes;

  for (int i = 0; i < 4; ++i) {
    scheduler.begin_step();
    sizes.push_back(scheduler.rows().size());
    scheduler.end_step(positions_of(scheduler.rows()));
  }

  EXPECT_EQ(sizes, (std::vector<std::size_t>{1, 1, 2, 1}));  // at 0, 20, 40 and 60 ms
}

TEST(BucketsTest, ArePowersOfTwoAndTheLargestBatch) {
  EXPECT_EQ(make_buckets(1), (std::vector<int>{1}));
  EXPECT_EQ(make_buckets(8), (std::vector<int>{1, 2, 4, 8}));
  EXPECT_EQ(make_buckets(12), (std::vector<int>{1, 2, 4, 8, 12}));
}

TEST(BucketsTest, TheSmallestThatFitsIsChosen) {
  const std::vector<int> buckets = make_buckets(12);

  EXPECT_EQ(find_bucket(buckets, 1), 0u);
  EXPECT_EQ(find_bucket(buckets, 3), 2u);
  EXPECT_EQ(find_bucket(buckets, 8), 3u);
  EXPECT_EQ(find_bucket(buckets, 9), 4u);
}

}  // namespace
}  // namespace cgtree::serve
