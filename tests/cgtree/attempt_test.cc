// Calls whose work the caller enqueues: the objects that they hold, their end, and the threads and
// scopes that may end them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "cgtree/steps.h"
#include "cgtree/values/eager_break.h"
#include "interop/device/graph_api.h"
#include "interop/device/kernel.h"
#include "tests/support/core_fixture.h"
#include "tests/support/inside.h"
#include "tests/support/test_kernels.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct Lengths {
  std::int64_t value = 0;
};

bool is_stale(const Tensor& tensor) {
  return tensor.storage()->state() == Storage::State::kStale;
}

// The work is sum += ones, and the code of the test.
class AttemptTest : public TreeTest {
 protected:
  static constexpr std::int64_t kCount = 16;

  void SetUp() override {
    TreeTest::SetUp();
    if (IsSkipped()) return;
    ones_ = tensor({kCount}, std::vector<float>(kCount, 1));
    sum_ = tensor({kCount}, std::vector<float>(kCount, 0));
  }
  void TearDown() override {
    ones_ = sum_ = Tensor();
    TreeTest::TearDown();
  }

  Steps make_steps() {
    return Steps(context(), "decode",
                 {.bindings = {{.name = "lengths", .host_bytes = sizeof(Lengths)},
                               {.name = "sum", .is_mutated = true}}});
  }
  std::vector<Binding> bindings() const { return {{&lengths_, sizeof(lengths_)}, sum_binding()}; }
  Binding sum_binding() const {
    return {reinterpret_cast<const void*>(sum_.address()), sum_.bytes()};
  }
  void enqueue() {
    const StreamRef stream = current_stream();
    const float one = 1;
    const void* const from = ones_.data<float>();
    void* const to = sum_.data<float>();
    check(stream.graphs().launch_kernel(stream.handle(), axpy_kernel(), dims_for(kCount),
                                        arguments_of(one, from, to, kCount)),
          "launch axpy");
    ++expected_;
  }
  // Makes one call without breaks. Returns its outcome.
  Outcome call(Steps& steps, const Key& key = {}) {
    Step step = steps.begin(key, bindings());
    expected_ += step.replayed();
    for (; step.must_run(); step.end())
      enqueue();
    return step.outcome();
  }
  void expect_sum() {
    context().synchronize();
    EXPECT_EQ(values(sum_), std::vector<float>(kCount, expected_));
  }

  Lengths lengths_;
  Tensor ones_, sum_;
  float expected_ = 0;
};
CGTREE_ON_ALL_DEVICES(AttemptTest);

TEST_P(AttemptTest, AllBreaksOfACallSeeTheStepBlockThatBeginHasRead) {
  Steps steps = make_steps();
  std::vector<std::int64_t> seen;
  for (int i = 0; i < 6; ++i) {
    lengths_.value = i;
    seen.clear();
    for (Step step = steps.begin({}, bindings()); step.must_run(); step.end()) {
      for (int part = 0; part < 3; ++part) {
        enqueue();
        eager_break([&](const StepValues& values) {
          seen.push_back(values.get<Lengths>(0).value);
          lengths_.value += 100;  // as an engine that prepares its next call
        });
      }
      enqueue();
    }
    EXPECT_EQ(seen, std::vector<std::int64_t>(3, i));
  }
  expected_ = 6 * 4;
  expect_sum();
  EXPECT_EQ(steps.stats().replays, 4u);
}

TEST_P(AttemptTest, ExplainInsideAStepIsRefusedAsBeginIsAndChangesNothing) {
  Steps steps = make_steps();
  const Lengths next{-1};
  const std::vector<Binding> fewer = {};
  const std::vector<Binding> others = {{&next, sizeof(next)}, sum_binding()};
  int breaks = 0;
  for (int i = 0; i < 5; ++i) {
    lengths_.value = i;
    for (Step step = steps.begin({}, bindings()); step.must_run(); step.end()) {
      enqueue();
      for (const auto& given : {fewer, others}) {
        eager_break([&, given](const StepValues& values) {
          ++breaks;
          EXPECT_THAT([&] { (void)steps.explain({}, given); },
                      ThrowsMessage<InvalidArgument>(HasSubstr("explain() of 'decode' while a step "
                                                               "is open")));
          EXPECT_THROW((void)steps.begin({}, given), InvalidArgument);
          EXPECT_EQ(values.get<Lengths>(0).value, i);
        });
      }
      EXPECT_THROW((void)steps.explain({}, fewer), InvalidArgument);
      enqueue();
    }
  }
  EXPECT_EQ(breaks, 10);
  EXPECT_EQ(steps.explain({}, bindings()).outcome, Outcome::kReplay);
  expected_ = 5 * 2;
  expect_sum();
}

// A caller that asks a step for its outcome keeps the step after its end.
TEST_P(AttemptTest, AStepThatHasEndedIsNoCallInProgress) {
  std::vector<Steps> all;
  for (int i = 0; i < 3; ++i)
    all.push_back(make_steps());
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  std::vector<Step> kept;
  std::size_t replays = 0;
  for (int i = 0; i < 60; ++i) {
    Steps& steps = all[random_() % all.size()];
    Step step = steps.begin({{"layer", static_cast<int>(random_() % 2)}}, bindings());
    for (; step.must_run(); step.end())
      enqueue();
    EXPECT_EQ(step.outcome(), steps.last_outcome()->outcome);
    replays += step.replayed();
    EXPECT_THROW(step.end(), InvalidArgument);
    kept.push_back(std::move(step));
    check_idle(context());
    if (random_() % 2 == 0) {
      EXPECT_EQ(values(f(ones_)), std::vector<float>(kCount, 2));
    }
    (void)steps.explain({}, bindings());
    if (random_() % 8 == 0) context().mark_step();
  }
  EXPECT_GT(replays, 0u);
  std::thread([&] { kept.clear(); }).join();  // ended steps belong to no thread
  expected_ = 60;
  expect_sum();
}

TEST_P(AttemptTest, AStepThatHasEndedMayOutliveItsStepsAndIsRefusedByName) {
  std::optional<Steps> steps = make_steps();
  Step step = steps->begin({}, bindings());
  for (; step.must_run(); step.end())
    enqueue();
  steps.reset();
  EXPECT_THAT([&] { step.end(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("end() of a step of 'decode'")));
  EXPECT_EQ(step.outcome(), Outcome::kWarmUp);
  expect_sum();
}

TEST_P(AttemptTest, AStepThatHasFailedIsNoCallInProgress) {
  Steps steps = make_steps();
  bool throws = false;
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  for (int i = 0; i < 2; ++i) {
    Step step = steps.begin({}, bindings());
    enqueue();
    eager_break([&throws](const StepValues&) {
      if (throws) throw std::runtime_error("the break");
    });
    throws = i == 1;
    if (i == 0) step.end();
    if (i == 1) {
      EXPECT_THROW(step.end(), std::runtime_error);
    }
    EXPECT_FALSE(step.must_run());
    EXPECT_EQ(values(f(ones_)), std::vector<float>(kCount, 2));
  }
  EXPECT_EQ(steps.stats().failures, 1u);
  expect_sum();
}

TEST_P(AttemptTest, ItIsNotEndedByAFunctionThatItsWorkCalls) {
  Steps steps = make_steps();
  std::optional<Step> step;
  const auto expect_refused = [&] {
    EXPECT_THAT([&] { step->end(); },
                ThrowsMessage<InvalidArgument>(HasSubstr("end() of a step of 'decode' inside")));
    EXPECT_TRUE(step->must_run());
  };
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    expect_refused();
    return affine(x, 2, 0);
  });
  int breaks = 0;
  for (int i = 0; i < 4; ++i) {
    for (step.emplace(steps.begin({}, bindings())); step->must_run(); step->end()) {
      enqueue();
      eager_break([&](const StepValues&) {
        ++breaks;
        if (!step) return;  // begin() replays
        if (step->must_run()) return expect_refused();
        EXPECT_THROW(step->end(), InvalidArgument);  // end() launches the capture
      });
      (void)f(ones_);
      enqueue();
    }
    step.reset();
    validate();
  }
  EXPECT_EQ(breaks, 4);
  EXPECT_EQ(steps.stats().replays, 2u);
  expected_ = 4 * 2;
  expect_sum();
}

TEST_P(AttemptTest, AStepThatIsDestroyedInItsOwnBreakIsLeftWhenTheBreakReturns) {
  for (const bool with_steps : {false, true}) {
    std::optional<Steps> steps = make_steps();
    std::optional<Step> step;
    step.emplace(steps->begin({}, bindings()));
    enqueue();
    eager_break([&](const StepValues& values) {
      step.reset();
      if (with_steps) steps.reset();
      EXPECT_EQ(values.get<Lengths>(0).value, lengths_.value);
      enqueue();  // inside the step, until the break has returned
      EXPECT_THROW(check_idle(context()), ConcurrentUse);
    });
    EXPECT_FALSE(current_stream_or_none());
    EXPECT_THROW(eager_break([](const StepValues&) {}), InvalidArgument);
    validate();
    if (steps) {
      EXPECT_EQ(steps->stats().failures, 1u);
      EXPECT_EQ(steps->last_outcome()->outcome, Outcome::kThrow);
      EXPECT_EQ(call(*steps), Outcome::kWarmUp);
    }
    expect_sum();
  }
}

TEST_P(AttemptTest, AStepThatIsDestroyedInAFunctionItCallsIsLeftWhenThatReturns) {
  Steps steps = make_steps();
  std::optional<Step> step;
  bool destroys = true;
  CompiledFunction inner = compile(context(), "inner", [&](Tensor x) {
    if (destroys) step.reset();
    return affine(x, 2, 0);
  });
  CompiledFunction outer = compile(context(), "outer", [&](Tensor x) {
    const Tensor y = inner(x);
    EXPECT_FALSE(is_stale(y));
    return affine(y, 1, 1);
  });
  for (const Outcome first : {Outcome::kWarmUp, Outcome::kRecord}) {
    step.emplace(steps.begin({}, bindings()));
    EXPECT_EQ(step->outcome(), first);
    {
      const Tensor y = outer(ones_);
      EXPECT_EQ(is_stale(y), first == Outcome::kRecord);  // the broken capture never runs
      if (!is_stale(y)) {
        EXPECT_EQ(values(y), std::vector<float>(kCount, 3));
      }
    }
    EXPECT_FALSE(current_stream_or_none());
    validate();
    destroys = false;
    EXPECT_EQ(call(steps), first);
    destroys = true;
  }
  EXPECT_EQ(steps.stats().failures, 2u);
  EXPECT_EQ(call(steps), Outcome::kReplay);
  expect_sum();
}

// The work is captured, and end() launches it although the break destroys the step; the call ends
// with end(), as usual.
TEST_P(AttemptTest, AStepThatIsDestroyedWhileItEndsHasEnded) {
  Steps steps = make_steps();
  std::optional<Step> step;
  int breaks = 0;
  for (int i = 0; i < 3; ++i) {
    step.emplace(steps.begin({}, bindings()));
    if (step->must_run()) {
      enqueue();
      eager_break([&, i](const StepValues&) {
        ++breaks;
        if (i == 1) step.reset();
      });
      enqueue();
      step->end();
    }
    EXPECT_EQ(step.has_value(), i != 1);
    EXPECT_EQ(steps.last_outcome()->outcome, i == 0   ? Outcome::kWarmUp
                                             : i == 1 ? Outcome::kRecord
                                                      : Outcome::kReplay);
    validate();
  }
  EXPECT_EQ(breaks, 3);
  expected_ = 3 * 2;
  expect_sum();
}

// begin() replays: no Step exists yet, while the break destroys the Steps and the context.
TEST_P(AttemptTest, StepsThatEndInABreakOfAReplayFinishTheCall) {
  for (const bool with_key : {false, true}) {
    for (const bool with_context : {false, true}) {
      std::optional<Context> own(std::in_place, device());
      std::weak_ptr<Engine> alive = own->share_engine();
      std::optional<Steps> steps(std::in_place, *own, "decode",
                                 StepsOptions{.bindings = {{.host_bytes = sizeof(Lengths)}}});
      const Stream stream(device(), StreamKind::kNonBlocking);
      bool ends = false;
      std::int64_t seen = 0;
      const Key key = with_key ? Key({{"n", 1}}) : Key();
      expected_ = 0;
      sum_.copy_from<float>(std::vector<float>(kCount, 0));
      for (int i = 0; i < 4; ++i) {
        lengths_.value = i;
        ends = i == 3;
        for (Step step = steps->begin(key, bindings(), stream); step.must_run(); step.end()) {
          enqueue();
          eager_break([&](const StepValues& values) {
            if (ends) steps.reset();
            if (ends && with_context) own.reset();
            seen = values.get<Lengths>(0).value;
          });
          enqueue();
        }
        EXPECT_EQ(seen, i);
      }
      EXPECT_FALSE(steps);
      EXPECT_EQ(alive.expired(), with_context);
      stream.synchronize();
      expected_ = 4 * 2;
      EXPECT_EQ(values(sum_), std::vector<float>(kCount, expected_));
    }
  }
}

TEST_P(AttemptTest, AStreamScopeThatEndsInsideAStepLeavesNoStreamBehind) {
  Steps steps = make_steps();
  const Stream own(device(), StreamKind::kNonBlocking);
  const Stream side(device(), StreamKind::kNonBlocking);
  for (const StreamRef given : {StreamRef(), own.ref()}) {
    for (int i = 0; i < 3; ++i) {
      std::optional<StreamScope> around(std::in_place, side);
      {
        Step step = steps.begin({}, bindings(), given);
        around.reset();
        expected_ += step.replayed();
        for (; step.must_run(); step.end()) {
          EXPECT_EQ(current_stream(), given ? given : side.ref());
          enqueue();
        }
      }
      EXPECT_FALSE(current_stream_or_none());
      side.synchronize();
      own.synchronize();
    }
  }
  std::optional<StreamScope> inside;
  {
    Step step = steps.begin({{"n", 1}}, bindings());
    inside.emplace(side);
    step.end();
  }
  EXPECT_EQ(current_stream(), side.ref());
  inside.reset();
  EXPECT_FALSE(current_stream_or_none());
  expect_sum();
}

}  // namespace
}  // namespace cgtree::testing
