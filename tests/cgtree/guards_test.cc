// Guards: a replay never repeats a decision that the host would now make differently.
#include "extensions/guards/guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cgtree/values/eager_break.h"
#include "extensions/flow/control_flow.h"
#include "extensions/ranks/group.h"
#include "extensions/sizes/precapture.h"
#include "extensions/verify/verify.h"
#include "extensions/watch/monitor.h"
#include "tests/support/inside.h"
#include "tests/support/rank_threads.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using F = CompiledFunction<Tensor(Tensor)>;

class GuardsTest : public TreeTest {
 protected:
  // A decision that the host may change between calls.
  using Decision = std::shared_ptr<int>;

  F scaled(const Decision& decision, CompileOptions options = {}) {
    return compile(
        context(), "scaled",
        [decision](Tensor x) {
          const int scale = decide("scale", [decision] { return *decision; });
          return affine(x, static_cast<float>(scale), 0);
        },
        std::move(options));
  }
  // Makes a call and checks its values. Returns the outcome.
  Outcome call(const F& f, float scale, float shift = 0) {
    const std::vector<float> x = random_floats(5);
    EXPECT_EQ(values(f(tensor({5}, x))), affine_of(x, scale, shift));
    return f.last_outcome()->outcome;
  }
  // Calls until the answer has a recording.
  void record(const F& f, const Decision& decision, int scale) {
    *decision = scale;
    while (call(f, static_cast<float>(scale)) != Outcome::kReplay) {
    }
  }
  Explanation why(const F& f) { return f.explain(random_tensor({5})); }

  const Decision decision_ = std::make_shared<int>(2);
};
CGTREE_ON_ALL_DEVICES(GuardsTest);

// Without a guard, replays repeat the decision of the capture.
TEST_P(GuardsTest, WithoutAGuardADecisionIsFrozenAndWithOneItIsNot) {
  F frozen = compile(context(), "frozen",
                     [&](Tensor x) { return affine(x, static_cast<float>(*decision_), 0); });
  F guarded = scaled(decision_);
  for (int i = 0; i < 3; ++i) {
    call(frozen, 2);
    call(guarded, 2);
  }
  *decision_ = 3;
  call(frozen, 2);
  EXPECT_EQ(call(guarded, 3), Outcome::kWarmUp);
  EXPECT_EQ(call(guarded, 3), Outcome::kRecord);
  EXPECT_EQ(call(guarded, 3), Outcome::kReplay);
}

TEST_P(GuardsTest, AnswersThatTakeTurnsReplayARecordingEach) {
  F f = scaled(decision_);
  for (int i = 0; i < 40; ++i) {
    *decision_ = i % 2 == 0 ? 2 : 5;
    const Outcome outcome = call(f, static_cast<float>(*decision_));
    EXPECT_EQ(outcome, i < 2 ? Outcome::kWarmUp : i < 4 ? Outcome::kRecord : Outcome::kReplay) << i;
  }
  EXPECT_EQ(f.stats().recordings, 2u);
  validate();
}

TEST_P(GuardsTest, AnswersInNoOrderReplayTheRecordingOfEach) {
  F f = scaled(decision_);
  for (const int scale : {1, 2, 3, 4, 5, 6})
    record(f, decision_, scale);
  for (int i = 0; i < 100; ++i) {
    *decision_ = 1 + static_cast<int>(random_() % 6);
    EXPECT_EQ(call(f, static_cast<float>(*decision_)), Outcome::kReplay) << i;
  }
  EXPECT_EQ(f.stats().recordings, 6u);
  EXPECT_EQ(f.stats().skipped(), 0u);
}

TEST_P(GuardsTest, TheExplanationNamesTheGuardAndBothAnswers) {
  F f = scaled(decision_);
  (void)call(f, 2);
  *decision_ = -7;  // not recorded yet
  EXPECT_THAT(to_string(why(f)),
              AllOf(HasSubstr("warm_up"), HasSubstr("guard 'scale' [2] recorded, [-7] given")));
  record(f, decision_, 2);
  *decision_ = -7;
  const Explanation other = why(f);
  EXPECT_EQ(other.outcome, Outcome::kWarmUp);
  ASSERT_EQ(other.mismatches.size(), 1u);
  EXPECT_EQ(other.mismatches[0].kind, Mismatch::Kind::kGuard);
  EXPECT_EQ(other.mismatches[0].input_name, "scale");
  EXPECT_THAT(to_string(other), HasSubstr("let 'scale' answer as before"));
  record(f, decision_, -7);
  const auto nodes = nlohmann::json::parse(snapshot_json(context()))["nodes"];
  const auto change = nodes.back()["cause"]["changes"][0];
  EXPECT_EQ(change["kind"], "guard");
  EXPECT_EQ(change["name"], "scale");
  EXPECT_EQ(change["given"], "-7");
  *decision_ = 2;
  EXPECT_EQ(why(f).outcome, Outcome::kReplay);
}

// A guard that only one of two branches asks does not apply to recordings of the other branch.
TEST_P(GuardsTest, AGuardMayBeAskedForTheAnswerOfAnother) {
  const auto inner = std::make_shared<int>(10);
  const auto asked = std::make_shared<int>(0);
  F f = compile(context(), "f", [=, decision = decision_](Tensor x) {
    const bool has_shift = decide("has_shift", [decision] { return *decision > 2; });
    if (!has_shift) return affine(x, 2, 0);
    const int shift = decide("shift", [inner, asked] {
      ++*asked;
      return *inner;
    });
    return affine(x, 2, static_cast<float>(shift));
  });
  for (int i = 0; i < 4; ++i)
    call(f, 2);
  EXPECT_EQ(*asked, 0);
  *decision_ = 3;
  for (int i = 0; i < 4; ++i)
    call(f, 2, 10);
  *decision_ = 2;
  const int before = *asked;
  EXPECT_EQ(call(f, 2), Outcome::kReplay);
  EXPECT_EQ(*asked, before);
  *decision_ = 3;
  *inner = 11;
  EXPECT_NE(call(f, 2, 11), Outcome::kReplay);
  *inner = 10;
  EXPECT_EQ(call(f, 2, 10), Outcome::kReplay);
}

TEST_P(GuardsTest, TwoGuardsOfOneNameAreBothKept) {
  const auto other = std::make_shared<int>(1);
  F f = compile(context(), "f", [other, decision = decision_](Tensor x) {
    float shift = 0;
    for (const Decision& one : {decision, other})
      shift += static_cast<float>(decide("layer", [one] { return *one; }));
    return affine(x, 1, shift);
  });
  for (int i = 0; i < 3; ++i)
    call(f, 1, 3);
  *other = 2;
  EXPECT_NE(call(f, 1, 4), Outcome::kReplay);
  *other = 1;
  *decision_ = 3;
  EXPECT_NE(call(f, 1, 4), Outcome::kReplay);
  *decision_ = 2;
  EXPECT_EQ(call(f, 1, 3), Outcome::kReplay);
}

enum class Mode : std::uint8_t { kSlow, kFast };

struct Plan {
  std::int32_t grid = 0;
  std::int32_t block = 0;
  std::uint64_t flags = 0;
};

TEST_P(GuardsTest, AnAnswerMayBeAnyValueOfSixteenBytes) {
  struct State {
    bool is_on = true;
    Mode mode = Mode::kFast;
    double factor = 0.5;
    Plan plan = {.grid = 1, .block = 2, .flags = 1};
  };
  const auto state = std::make_shared<State>();
  F f = compile(context(), "f", [state](Tensor x) {
    const bool is_on = decide("is_on", [state] { return state->is_on; });
    const Mode mode = decide("mode", [state] { return state->mode; });
    const double factor = watch_value(&state->factor, "factor");
    const Plan plan = decide("plan", [state] { return state->plan; });
    EXPECT_EQ(plan.block, 2);
    const float shift = (is_on ? 1.0F : 0.0F) + (mode == Mode::kFast ? 2.0F : 0.0F) +
                        4 * static_cast<float>(plan.flags);
    return affine(x, static_cast<float>(factor), shift);
  });
  for (int i = 0; i < 3; ++i)
    call(f, 0.5, 7);
  state->is_on = false;
  EXPECT_THAT(to_string(why(f)), HasSubstr("guard 'is_on' [1] recorded, [0] given"));
  EXPECT_EQ(call(f, 0.5, 6), Outcome::kWarmUp);
  state->is_on = true;
  state->mode = Mode::kSlow;
  EXPECT_EQ(call(f, 0.5, 5), Outcome::kWarmUp);
  state->mode = Mode::kFast;
  state->factor = 0.25;
  EXPECT_EQ(call(f, 0.25, 7), Outcome::kWarmUp);
  state->factor = 0.5;
  state->plan.flags = 2;
  EXPECT_EQ(call(f, 0.5, 11), Outcome::kWarmUp);
  state->plan.flags = 1;
  EXPECT_EQ(call(f, 0.5, 7), Outcome::kReplay);
}

// Each session has a recording with a guard that asks the session. One session is over; calls of
// the others, in any order, replay theirs, and new sessions are recorded.
TEST_P(GuardsTest, AGuardThatThrowsSpeaksForItsOwnRecordingAlone) {
  struct Session {
    Tensor cache;
    std::shared_ptr<bool> is_over = std::make_shared<bool>(false);
  };
  std::vector<Session> sessions;
  const Session* current = nullptr;
  const auto f =
      compile(context(), "f",
              [&](Tensor x, Tensor cache) {
                const auto scale = [is_over = current->is_over] {
                  if (*is_over) throw std::runtime_error("it is over");
                  return 2;
                };
                return add(affine(x, static_cast<float>(decide("scale", scale)), 0), cache);
              },
              {.inputs = {{}, {.is_static = true}}});
  const Tensor x = random_tensor({5});
  const auto call_of = [&](std::size_t i) {
    current = &sessions[i];
    return f(x, current->cache);
  };
  for (int i = 0; i < 6; ++i)
    sessions.push_back({random_tensor({5})});
  for (int round = 0; round < 4; ++round) {
    for (std::size_t i = 0; i < sessions.size(); ++i)
      (void)call_of(i);
  }
  *sessions[0].is_over = true;
  for (int round = 0; round < 40; ++round) {
    const std::size_t i = random_() % sessions.size();
    if (i == 0) {
      EXPECT_THAT([&] { (void)call_of(0); }, ThrowsMessage<std::runtime_error>("it is over"));
      continue;
    }
    EXPECT_NO_THROW((void)call_of(i));
    EXPECT_EQ(f.last_outcome()->outcome, Outcome::kReplay);
  }
  sessions.push_back({random_tensor({5})});
  for (const Outcome outcome : {Outcome::kWarmUp, Outcome::kRecord, Outcome::kReplay}) {
    EXPECT_NO_THROW((void)call_of(6));
    EXPECT_EQ(f.last_outcome()->outcome, outcome);
  }
  EXPECT_NO_THROW((void)f.explain(x, random_tensor({5})));
}

TEST_P(GuardsTest, ExceptionsOfGuardsReachTheCallerAndTheNextCallReplays) {
  const auto fails = std::make_shared<bool>(false);
  F f = compile(context(), "f", [fails, decision = decision_](Tensor x) {
    const int scale = decide("scale", [fails, decision] {
      if (*fails) throw std::runtime_error("no plan");
      return *decision;
    });
    return affine(x, static_cast<float>(scale), 0);
  });
  for (int i = 0; i < 3; ++i)
    call(f, 2);
  const std::size_t recordings = recording_count();
  for (int i = 0; i < 2; ++i) {
    *fails = true;
    EXPECT_THAT([&] { (void)f(random_tensor({5})); }, ThrowsMessage<std::runtime_error>("no plan"));
    EXPECT_EQ(f.last_outcome()->outcome, Outcome::kThrow);
    EXPECT_THROW((void)why(f), std::runtime_error);
    *fails = false;
    EXPECT_EQ(call(f, 2), Outcome::kReplay);
  }
  *fails = true;  // in a warm-up, and then in a capture
  EXPECT_THROW((void)f(random_tensor({6})), std::runtime_error);
  *fails = false;
  (void)f(random_tensor({6}));
  *fails = true;
  EXPECT_THROW((void)f(random_tensor({6})), std::runtime_error);
  *fails = false;
  EXPECT_EQ(f.stats().failures, 4u);
  EXPECT_EQ(f.stats().last_failure, "no plan");
  EXPECT_EQ(recording_count(), recordings);
  EXPECT_EQ(call(f, 2), Outcome::kReplay);
  validate();
}

TEST_P(GuardsTest, AGuardThatChangesAtEachCallEndsEagerAndComesBack) {
  F f = scaled(decision_, {.max_recordings = 16});
  int eager = 0;
  for (int i = 0; i < 300; ++i) {
    *decision_ = i;
    eager += call(f, static_cast<float>(i)) == Outcome::kRunEagerly;
  }
  EXPECT_GE(eager, 280);
  EXPECT_EQ(f.stats().skipped(SkipReason::kChangingGuard), static_cast<std::uint64_t>(eager));
  EXPECT_EQ(f.stats().recordings, 0u);
  EXPECT_THAT(to_string(why(f)),
              AllOf(HasSubstr("changing_guard"), HasSubstr("guard 'scale'"),
                    HasSubstr("tried again after"), HasSubstr("ask for what changes rarely")));
  int calls = 0;
  *decision_ = 1000;
  while (call(f, 1000) != Outcome::kReplay)
    ASSERT_LT(++calls, 400);
  *decision_ = 1001;
  (void)call(f, 1001);
  *decision_ = 1000;
  EXPECT_EQ(call(f, 1000), Outcome::kReplay);
}

// Each recording pays for itself, so no answer has to wait.
TEST_P(GuardsTest, AnAnswerThatStaysForAWhileIsRecordedHoweverManyThereAre) {
  F f = scaled(decision_);
  for (int scale = 0; scale < 30; ++scale) {
    *decision_ = scale;
    for (int i = 0; i < 20; ++i)
      (void)call(f, static_cast<float>(scale));
  }
  EXPECT_EQ(f.stats().recordings, 30u);
  EXPECT_EQ(f.stats().skipped(), 0u);
}

// To explain a recording, the guards of the recordings that it is compared with are asked.
TEST_P(GuardsTest, ANewKeyIsComparedWithSixteenRecordingsAtMost) {
  const auto asked = std::make_shared<int>(0);
  const auto f = compile(context(), "counted", [asked](Tensor x, Tensor) {
    (void)decide("one", [asked] { return ++*asked, 1; });
    return affine(x, 2, 0);
  });
  const auto record = [&](std::int64_t size) {
    *asked = 0;
    for (int i = 0; i < 2; ++i)
      (void)f(random_tensor({size}), random_tensor({size + 1}));
    return f.last_outcome()->outcome;
  };
  for (std::int64_t size = 1; size <= 40; ++size)
    ASSERT_EQ(record(size), Outcome::kRecord);
  EXPECT_GT(*asked, 16);
  EXPECT_LE(*asked, 16 + 8);
}

TEST_P(GuardsTest, RecordingsOfOtherAnswersCountAgainstTheLimit) {
  F f = scaled(decision_, {.max_recordings = 2, .at_limit = AtLimit::kEvict});
  for (const int scale : {1, 2, 3})
    record(f, decision_, scale);
  EXPECT_EQ(recording_count(), 2u);
  EXPECT_EQ(f.stats().evictions, 1u);
}

TEST_P(GuardsTest, AFrozenFunctionRunsAnotherAnswerEagerly) {
  F f = scaled(decision_);
  record(f, decision_, 2);
  f.freeze();
  *decision_ = 3;
  EXPECT_EQ(call(f, 3), Outcome::kRunEagerly);
  *decision_ = 2;
  EXPECT_EQ(call(f, 2), Outcome::kReplay);
}

// ---- Callers of guards ----

TEST_P(GuardsTest, OutsideOfAStepItIsCalledAndNoMore) {
  int calls = 0;
  EXPECT_EQ(decide("outside", [&calls] { return ++calls; }), 1);
  EXPECT_EQ(calls, 1);
}

TEST_P(GuardsTest, InANestedFunctionItGuardsTheOuterOne) {
  F inner = scaled(decision_);
  F outer = compile(context(), "outer", [&](Tensor x) { return affine(inner(x), 1, 1); });
  for (int i = 0; i < 4; ++i)
    call(outer, 2, 1);
  *decision_ = 4;
  EXPECT_THAT(to_string(why(outer)), HasSubstr("guard 'scale' [2] recorded, [4] given"));
  for (int i = 0; i < 4; ++i)
    call(outer, 4, 1);
  EXPECT_EQ(outer.stats().recordings, 2u);
}

// The function of a break runs in each replay, and decides again.
TEST_P(GuardsTest, InABreakItIsNoGuard) {
  std::vector<int> seen;
  F f = compile(context(), "f", [&seen, decision = decision_](Tensor x) {
    eager_break([&seen, decision](const StepValues&) {
      seen.push_back(decide("in_break", [decision] { return *decision; }));
    });
    return affine(x, 2, 1);
  });
  for (int i = 0; i < 5; ++i) {
    *decision_ = i;
    (void)call(f, 2, 1);
  }
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(f.stats().replays, 3u);
}

TEST_P(GuardsTest, InFrontOfABreakAndBehindItIsAGuard) {
  const auto behind = std::make_shared<int>(1);
  F f = compile(context(), "f", [behind, decision = decision_](Tensor x) {
    const int scale = decide("in_front", [decision] { return *decision; });
    Tensor y = affine(x, static_cast<float>(scale), 0);
    eager_break([](const StepValues&) {});
    return affine(y, 1, static_cast<float>(decide("behind", [behind] { return *behind; })));
  });
  for (int i = 0; i < 3; ++i)
    (void)call(f, 2, 1);
  *behind = 5;
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(call(f, 2, 5) == Outcome::kReplay, i == 2);
  *decision_ = 3;
  EXPECT_EQ(call(f, 3, 5), Outcome::kWarmUp);
}

TEST_P(GuardsTest, InABodyItGuardsTheRecording) {
  CompiledFunction f = compile(context(), "f", [decision = decision_](Tensor x, Tensor taken) {
    Tensor y = affine(x, 1, 0);
    branch(taken, [&] {
      const int scale = decide("in_body", [decision] { return *decision; });
      update(y, static_cast<float>(scale), 0);
    });
    return affine(y, 1, 1);
  });
  for (const int scale : {2, 3, 2, 3}) {
    *decision_ = scale;
    for (int i = 0; i < 5; ++i) {
      const bool is_taken = i % 2 == 0;
      const std::vector<float> x = random_floats(5);
      const std::vector<std::int32_t> taken = {is_taken ? 1 : 0};
      const Tensor flag = from_host<std::int32_t>(Shape(), taken, device());
      EXPECT_EQ(values(f(tensor({5}, x), flag)),
                affine_of(x, is_taken ? static_cast<float>(scale) : 1.0F, 1))
          << scale << " " << i;
    }
  }
  EXPECT_GE(f.stats().replays, 10u);
}

TEST_P(GuardsTest, APaddedCallAsksToo) {
  F f = scaled(decision_, {.inputs = {{.dynamic = {{0, "n"}}}},
                           .buckets = {{"n", {8}}},
                           .outputs = {{.dynamic = {{0, "n"}}}}});
  for (const int scale : {2, 3, 2, 3}) {
    *decision_ = scale;
    for (int i = 0; i < 4; ++i) {
      const std::vector<float> x = random_floats(3 + i);
      EXPECT_EQ(values(f(tensor({3 + i}, x))), affine_of(x, static_cast<float>(scale), 0));
    }
  }
  EXPECT_EQ(f.stats().recordings, 2u);
  EXPECT_EQ(f.stats().replays, 12u);
}

// The only recording has another answer, and no new one is made.
TEST_P(GuardsTest, ALargerRecordingOfAnotherAnswerDoesNotServeASmallerCall) {
  F f = scaled(decision_, {.inputs = {{.dynamic = {{0, "n"}}}},
                           .buckets = {{"n", {4, 8}}},
                           .while_missing = WhileMissing::kNextLarger,
                           .outputs = {{.dynamic = {{0, "n"}}}}});
  const PrecaptureReport report =
      precapture(f, {.sizes = {{{"n", {8}}}}},
                 [&](const CallSizes& sizes) { return std::vector{random_tensor({sizes["n"]})}; });
  EXPECT_EQ(report.count(Precaptured::Outcome::kRecorded), 1u);
  const std::vector<float> x = random_floats(3);
  EXPECT_EQ(values(f(tensor({3}, x))), affine_of(x, 2, 0));
  EXPECT_EQ(f.last_outcome()->outcome, Outcome::kReplay);
  *decision_ = 6;
  EXPECT_EQ(values(f(tensor({3}, x))), affine_of(x, 6, 0));
  EXPECT_EQ(f.last_outcome()->outcome, Outcome::kRunEagerly);
}

TEST_P(GuardsTest, PrecaptureRecordsTheAnswerOfNow) {
  F f = scaled(decision_, {.inputs = {{.dynamic = {{0, "n"}}}},
                           .buckets = {{"n", {4, 8}}},
                           .outputs = {{.dynamic = {{0, "n"}}}}});
  for (const int scale : {2, 3}) {
    *decision_ = scale;
    const PrecaptureReport report = precapture(f, {}, [&](const CallSizes& sizes) {
      return std::vector<Tensor>{random_tensor({sizes["n"]})};
    });
    EXPECT_EQ(report.count(Precaptured::Outcome::kRecorded), 2u) << scale;
    EXPECT_EQ(call(f, static_cast<float>(scale)), Outcome::kReplay);
  }
}

TEST_P(GuardsTest, AReboundInputAndItsSecondCaptureAskToo) {
  F f = scaled(decision_, {.inputs = {{.rebind = Rebind::kAlways}}});
  for (const int scale : {2, 3, 2, 3})
    record(f, decision_, scale);
  for (int i = 0; i < 10; ++i) {
    *decision_ = 2 + i % 2;
    EXPECT_EQ(call(f, static_cast<float>(*decision_)), Outcome::kReplay);
  }
  EXPECT_EQ(f.stats().recordings, 2u);
}

TEST_P(GuardsTest, VerifiedReplaysAskToo) {
  make_context({.extensions = {verify({.every = 2})}});
  F f = scaled(decision_);
  for (int i = 0; i < 24; ++i) {
    *decision_ = 2 + i / 2 % 2;
    call(f, static_cast<float>(*decision_));
  }
  EXPECT_EQ(f.stats().recordings, 2u);
  EXPECT_GE(f.stats().verified, 8u);
  EXPECT_EQ(f.stats().differed, 0u);
  validate();
}

TEST_P(GuardsTest, SharedExecutablesReplayTheAnswerOfEach) {
  F f = scaled(decision_, {.max_switch_nodes = 8});
  for (const int scale : {2, 3, 4})
    record(f, decision_, scale);
  for (int i = 0; i < 12; ++i) {
    *decision_ = 2 + static_cast<int>(random_() % 3);
    EXPECT_EQ(call(f, static_cast<float>(*decision_)), Outcome::kReplay);
  }
}

TEST_P(GuardsTest, OutputsThatAreHeldRecordTheSameAnswerAgain) {
  F f = scaled(decision_);
  std::vector<Tensor> held;
  std::vector<std::vector<float>> expected;
  for (int i = 0; i < 60; ++i) {
    *decision_ = 2 + i % 3;
    const std::vector<float> x = random_floats(5);
    held.push_back(f(tensor({5}, x)));
    expected.push_back(affine_of(x, static_cast<float>(*decision_), 0));
  }
  for (std::size_t i = 0; i < held.size(); ++i)
    EXPECT_EQ(values(held[i]), expected[i]) << i;
  validate();
}

TEST_P(GuardsTest, StepsWithAKeyAskBetweenBeginAndEnd) {
  Tensor data = tensor({5}, random_floats(5));
  Steps steps(context(), "steps");
  const Binding bindings[] = {{reinterpret_cast<const void*>(data.address()), data.bytes()}};
  int runs = 0;
  for (int i = 0; i < 40; ++i) {
    *decision_ = 1 + i / 2 % 2;
    const std::vector<float> x = random_floats(5);
    data.copy_from<float>(x);
    for (Step step = steps.begin({{"batch", i % 2}}, bindings); step.must_run(); step.end()) {
      const int shift = decide("shift", [decision = decision_] { return *decision; });
      update(data, 1, static_cast<float>(shift));
      ++runs;
    }
    context().synchronize();
    EXPECT_EQ(values(data), affine_of(x, 1, static_cast<float>(*decision_))) << i;
  }
  EXPECT_EQ(runs, 8);  // two keys, with two answers each
  EXPECT_EQ(steps.stats().replays, 32u);
}

// ---- Objects that guards own ----

TEST_P(GuardsTest, ObjectsOfAGuardEndWithItsRecordingsOutsideOfTheContext) {
  // Calls the context when it ends.
  struct Owner {
    explicit Owner(Context& c, int& e) : context(c), ended(e) {}
    ~Owner() {
      context.synchronize();
      (void)context.stats();
      ++ended;
    }
    Context& context;
    int& ended;
  };
  int ended = 0;
  {
    auto owner = std::make_shared<Owner>(context(), ended);
    std::weak_ptr<Owner> seen = owner;
    bool is_made = false;
    F f = compile(context(), "f", [&, decision = decision_](Tensor x) {
      const auto own = is_made ? seen.lock() : std::move(owner);
      is_made = true;
      const int scale = decide("scale", [own, decision] { return *decision; });
      return affine(x, static_cast<float>(scale), 0);
    });
    for (int i = 0; i < 3; ++i)
      call(f, 2);
    EXPECT_EQ(ended, 0);
  }
  EXPECT_EQ(ended, 1);
}

TEST_P(GuardsTest, ReleasedMemoryTakesTheGuardsWithItAndOtherAnswersAreStillWarmedUp) {
  auto state = std::make_shared<int>(2);
  const std::weak_ptr<int> old = state;
  int asked = 0;
  F f = compile(context(), "f", [&](Tensor x) {
    const int scale = decide("scale", [state, &asked] {
      ++asked;
      return *state;
    });
    return affine(x, static_cast<float>(scale), 0);
  });
  for (int i = 0; i < 3; ++i)
    call(f, 2);
  (void)f(random_tensor({6}));  // another key is warmed up, without being recorded
  (void)context().release_memory();
  state = std::make_shared<int>(2);
  EXPECT_TRUE(old.expired());
  asked = 0;
  EXPECT_EQ(call(f, 2), Outcome::kRecord);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(call(f, 2), Outcome::kReplay);
  for (const int scale : {3, 4}) {
    *state = scale;
    EXPECT_EQ(call(f, static_cast<float>(scale)), Outcome::kWarmUp);
    EXPECT_EQ(call(f, static_cast<float>(scale)), Outcome::kRecord);
    EXPECT_EQ(call(f, static_cast<float>(scale)), Outcome::kReplay);
  }
  (void)f(random_tensor({6}));
  EXPECT_EQ(f.last_outcome()->outcome, Outcome::kWarmUp);
}

TEST_P(GuardsTest, InACheckedContextAVariableOfTheStepIsFound) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer has variables outside of the stack, and finds this itself";
#endif
  make_context({.checked = true});
  F dangles = compile(context(), "dangles", [decision = decision_](Tensor x) {
    const int scale = *decision;
    return affine(x, static_cast<float>(decide("scale", [&scale] { return scale; })), 0);
  });
  EXPECT_THAT([&] { (void)dangles(random_tensor({5})); },
              ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("guard 'scale'"), HasSubstr("on the stack of the step"))));
  EXPECT_EQ(dangles.stats().failures, 1u);
  int outside = 2;  // outlives the function
  F lives = compile(context(), "lives", [&outside](Tensor x) {
    const int scale = watch_value(&outside, "outside");
    return affine(x, static_cast<float>(scale), 0);
  });
  for (const int scale : {2, 3, 2, 3}) {
    outside = scale;
    (void)call(lives, static_cast<float>(scale));
  }
  EXPECT_EQ(lives.stats().failures, 0u);
}

// Bytes that are not set would make one answer look like two.
static_assert(kIsAnswer<double> && kIsAnswer<void*> && kIsAnswer<unsigned char>);
static_assert(!kIsAnswer<long double>);

TEST_P(GuardsTest, AGuardNeedsAName) {
  F f = compile(context(), "f", [](Tensor x) {
    return affine(x, static_cast<float>(decide("", [] { return 2; })), 0);
  });
  EXPECT_THROW((void)f(random_tensor({5})), InvalidArgument);
}

// ---- Ranks ----

TEST_P(GuardsTest, RanksOfAGroupWhoseGuardsAnswerAlikeReplayTogether) {
  constexpr int kRanks = 2;
  auto groups = make_thread_groups(kRanks, std::chrono::milliseconds(20'000));
  run_on_ranks(kRanks, [&](int number) {
    const std::shared_ptr<Group> group = std::move(groups[static_cast<std::size_t>(number)]);
    Context ranked(device_of_rank(GetParam().device, number), {.group = group});
    const auto decision = std::make_shared<int>(0);
    F f = compile(ranked, "f", [decision](Tensor x) {
      const int scale = decide("scale", [decision] { return *decision; });
      return affine(x, static_cast<float>(scale), 0);
    });
    for (int i = 0; i < 200; ++i) {
      *decision = i < 60 ? i % 3 : i;  // from here on it changes at each call
      const std::vector<float> x(4, 3);
      const Tensor y = f(from_host<float>(Shape({4}), x, ranked.device()));
      EXPECT_EQ(y.to_vector<float>()[0], 3 * static_cast<float>(*decision));
    }
    EXPECT_EQ(f.stats().recordings, 3u);
    EXPECT_GE(f.stats().skipped(SkipReason::kChangingGuard), 120u);
    cgtree::testing::validate(ranked);
    (void)agree(*group, true);
  });
}

}  // namespace
}  // namespace cgtree::testing
