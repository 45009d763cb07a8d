// The place where a replay hangs: planted hangs are named, and replays with marks equal those
// without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "cgtree/memory/context_memory.h"
#include "extensions/flow/control_flow.h"
#include "extensions/progress/mark_plan.h"
#include "extensions/scopes/scope.h"
#include "extensions/watch/metrics.h"
#include "extensions/watch/monitor.h"
#include "extensions/watch/watch.h"
#include "interop/device/device_api.h"
#include "interop/device/kernel.h"
#include "interop/random/random.h"
#include "tests/support/captured_log.h"
#include "tests/support/gate.h"
#include "tests/support/inside.h"
#include "tests/support/random_steps.h"
#include "tests/support/test_kernels.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using namespace std::chrono_literals;

// A flag in pinned memory that makes spin_kernel() spin or end. The destructor ends it.
class SpinFlag {
 public:
  explicit SpinFlag(DeviceAPI& api) : api_(api) {
    void* data = nullptr;
    check(api.alloc_pinned(sizeof(std::uint32_t), &data), "allocate pinned memory");
    flag_ = static_cast<std::uint32_t*>(data);
    let_end();
  }
  ~SpinFlag() {
    let_end();
    (void)api_.synchronize_device(0);
    (void)api_.free_pinned(flag_);
  }
  SpinFlag(const SpinFlag&) = delete;
  SpinFlag& operator=(const SpinFlag&) = delete;

  void let_spin() { std::atomic_ref(*flag_).store(0); }
  void let_end() { std::atomic_ref(*flag_).store(1); }
  void launch() const {
    const StreamRef stream = current_stream();
    check(stream.graphs().launch_kernel(stream.handle(), spin_kernel(), LaunchDims{},
                                        arguments_of(flag_)),
          "launch a kernel that spins");
  }

 private:
  DeviceAPI& api_;
  std::uint32_t* flag_ = nullptr;
};

// Waits until the predicate holds; a test fails, and does not hang, if it never does.
void wait_until(const std::function<bool()>& holds) {
  for (int i = 0; i < 30'000; ++i) {
    if (holds()) return;
    std::this_thread::sleep_for(1ms);
  }
  ADD_FAILURE() << "it has not come in half a minute";
}

std::vector<std::string> scopes_of(const std::vector<ReplayMark>& marks, bool is_reached) {
  std::vector<std::string> scopes;
  for (const ReplayMark& mark : marks)
    if (mark.is_reached == is_reached) scopes.push_back(mark.scope);
  return scopes;
}

std::shared_ptr<ProgressWatch> watch_without_limit(std::size_t every = 1) {
  return std::make_shared<ProgressWatch>(
      ProgressOptions{.every_nth_replay = every, .time_limit = 0ms});
}

class ProgressWatchTest : public TreeTest {
 protected:
  // Warms up and records, with outputs held as in later calls.
  template <typename F>
  Tensor prepare(F& f, const Tensor& x) {
    Tensor held;
    for (int call = 0; call < 5; ++call)
      held = f(x);
    context().synchronize();
    return held;
  }
  // Returns the progress of the last replay, which may be in flight.
  static ReplayProgress last(const ProgressWatch& watch) {
    return watch.report().at(0).replays.back();
  }
};

// The marked graphs are patched like the others: with copied inputs that move, held outputs, and an
// input that is copied back.
TEST_P(ProgressWatchTest, ReplaysWithMarksDoWhatOthersDo) {
  watch_progress(context(), watch_without_limit(2));
  const auto f = compile(context(), "f",
                         [](Tensor x, Tensor state) {
                           Tensor y;
                           {
                             const Scope scope("first");
                             y = affine(x, 2, 1);
                           }
                           const Scope scope("second");
                           update(state, 1, 1);
                           return add(y, state);
                         },
                         {.inputs = {{}, {.is_mutated = true}}});
  std::vector<float> state = random_floats(3);
  std::vector<Tensor> inputs;
  for (int call = 0; call < 20; ++call) {
    const std::vector<float> x = random_floats(3);
    inputs.push_back(tensor({3}, x));
    Tensor state_now = tensor({3}, state);
    const Tensor out = f(inputs.back(), state_now);
    std::vector<float> expected = affine_of(x, 2, 1);
    for (std::size_t i = 0; i < 3; ++i)
      expected[i] += state[i] += 1;
    EXPECT_EQ(values(out), expected) << call;
    EXPECT_EQ(values(state_now), state) << call;
  }
  EXPECT_GE(f.stats().replays, 16u);
  EXPECT_EQ(f.stats().failures, 0u);
}

// Each executable graph keeps its last addresses: an input address that changes and stays for two
// calls must be patched into both graphs.
TEST_P(ProgressWatchTest, BothExecutableGraphsLearnWhereInputsAre) {
  watch_progress(context(), watch_without_limit(2));
  const auto f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); });
  const std::vector<std::vector<float>> x = {random_floats(3), random_floats(3)};
  const std::vector<Tensor> inputs = {tensor({3}, x[0]), tensor({3}, x[1])};
  for (std::size_t call = 0; call < 24; ++call) {
    const std::size_t i = call / 2 % 2;
    EXPECT_EQ(values(f(inputs[i])), affine_of(x[i], 2, 1)) << call;
  }
  EXPECT_GE(f.stats().replays, 20u);
}

// A switch between the executable graphs does not count as a patch: with and without marks, and
// after the watch.
TEST_P(ProgressWatchTest, ReplaysCountAsPatchedIfInputsHaveMovedSinceTheLast) {
  const auto f = compile(context(), "f",
                         [](Tensor x, Tensor state) {
                           update(state, 1, 1);
                           return add(x, state);
                         },
                         {.inputs = {{}, {.is_mutated = true}}});
  const std::vector<float> x = random_floats(3);
  const std::vector<Tensor> inputs = {tensor({3}, x), tensor({3}, x)};
  std::vector<std::vector<float>> states = {random_floats(3), random_floats(3)};
  const std::vector<Tensor> state_tensors = {tensor({3}, states[0]), tensor({3}, states[1])};
  std::mt19937 random(static_cast<unsigned>(seed_));
  std::uint64_t moves = 0;
  std::array<std::size_t, 2> before = {};
  for (int call = 0; call < 80; ++call) {
    if (call % 10 == 5) watch_progress(context(), watch_without_limit(1 + random() % 3));
    if (call % 20 == 19) watch_progress(context(), nullptr);
    std::array<std::size_t, 2> now = before;
    if (call > 2 && random() % 3 == 0) now = {random() % 2, random() % 2};
    moves += now != before;
    before = now;
    std::vector<float> expected = x;
    for (std::size_t i = 0; i < 3; ++i)
      expected[i] += states[now[1]][i] += 1;
    EXPECT_EQ(values(f(inputs[now[0]], state_tensors[now[1]])), expected) << call;
    EXPECT_EQ(values(state_tensors[now[1]]), states[now[1]]) << call;
    EXPECT_EQ(stats().root_patches, moves) << call;
  }
  EXPECT_GE(f.stats().replays, 70u);
  EXPECT_EQ(f.stats().recordings, 1u);
}

TEST_P(ProgressWatchTest, AReplayThatHasEndedHasReachedAllItsMarks) {
  const auto watch = watch_without_limit();
  watch_progress(context(), watch);
  auto f = compile(context(), "f", [](Tensor x) {
    Tensor y;
    for (const char* name : {"a", "b", "c"}) {
      const Scope scope(name);
      y = affine(x, 2, 0);
    }
    return y;
  });
  prepare(f, random_tensor({3}));

  const ReplayProgress replay = last(*watch);
  EXPECT_TRUE(replay.has_begun);
  EXPECT_TRUE(replay.has_ended);
  EXPECT_EQ(replay.function, "f");
  EXPECT_GT(replay.node, 0u);
  EXPECT_THAT(scopes_of(replay.marks, true), ElementsAre("", "a", "b", "c"));
  EXPECT_THAT(to_string(watch->report()), HasSubstr("all replays have ended, the last was replay"));
}

TEST_P(ProgressWatchTest, EachGraphOfARecordingWithBreaksHasMarks) {
  const auto watch = watch_without_limit();
  watch_progress(context(), watch);
  int breaks = 0;
  const auto f = compile(context(), "f", [&](Tensor x) {
    Tensor y;
    {
      const Scope scope("in front");
      y = affine(x, 2, 0);
    }
    eager_break([&](const StepValues&) { ++breaks; });
    const Scope scope("behind");
    return affine(y, 3, 0);
  });
  for (int call = 0; call < 8; ++call) {
    const std::vector<float> x = random_floats(3);
    EXPECT_EQ(values(f(tensor({3}, x))), affine_of(affine_of(x, 2, 0), 3, 0)) << call;
  }
  EXPECT_GE(f.stats().replays, 5u);
  EXPECT_THAT(scopes_of(last(*watch).marks, true), ElementsAre("", "in front", "behind"));
}

// The marks in memory are those of the previous replay.
TEST_P(ProgressWatchTest, NoMarkIsReachedWhileABreakRunsThatComesFirst) {
  const auto watch = watch_without_limit();
  watch_progress(context(), watch);
  int looks = 0;
  auto f = compile(context(), "f",
                   [&](Tensor x) {
                     eager_break([&](const StepValues&) {
                       current_stream().synchronize();
                       if (watch->report().at(0).replays.empty()) return;
                       const ReplayProgress replay = last(*watch);
                       if (replay.has_ended || replay.marks.empty()) return;
                       EXPECT_TRUE(replay.has_begun);
                       EXPECT_THAT(scopes_of(replay.marks, true), IsEmpty());
                       ++looks;
                     });
                     const Scope scope("behind");
                     return affine(x, 2, 0);
                   },
                   {.inputs = {{.is_static = true}}});
  const Tensor x = random_tensor({3});
  for (int call = 0; call < 8; ++call)
    (void)f(x);
  context().synchronize();
  EXPECT_GE(looks, 5);
  EXPECT_THAT(scopes_of(last(*watch).marks, true), ElementsAre("behind"));
}

TEST_P(ProgressWatchTest, OnlyEveryNthReplayLeavesMarksAndTheOthersSayWhy) {
  const auto watch = watch_without_limit(3);
  watch_progress(context(), watch);
  auto f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  const Tensor x = random_tensor({3});
  for (int call = 0; call < 2; ++call)
    (void)f(x);
  for (std::uint64_t replay = 1; replay <= 7; ++replay) {
    (void)f(x);
    context().synchronize();
    EXPECT_EQ(last(*watch).number, replay);
    EXPECT_EQ(last(*watch).marks.empty(), replay % 3 != 0) << replay;
    EXPECT_EQ(last(*watch).why_unmarked.empty(), replay % 3 == 0) << replay;
  }
}

TEST_P(ProgressWatchTest, AWatchThatEndedCostsReplaysNothing) {
  EXPECT_FALSE(watches_replays(context()));
  const auto watch = watch_without_limit();
  watch_progress(context(), watch);
  EXPECT_TRUE(watches_replays(context()));
  auto f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  prepare(f, random_tensor({3}));
  EXPECT_EQ(watch->report().size(), 1u);

  watch_progress(context(), nullptr);

  EXPECT_FALSE(watches_replays(context()));
  EXPECT_THAT(watch->report(), IsEmpty());
  const std::vector<float> x = random_floats(3);
  EXPECT_EQ(values(f(tensor({3}, x))), affine_of(x, 2, 0));
  watch_progress(context(), watch_without_limit());  // reuses the marks that it has
  EXPECT_EQ(values(f(tensor({3}, x))), affine_of(x, 2, 0));
}

// The other capture forbids queries and instantiation on all threads; making marks, and events with
// times, must not break it.
TEST_P(ProgressWatchTest, AnotherThreadMayCaptureWhileMarksAreMade) {
  make_context({.extensions = {watch({.time_every_nth_replay = 1})}});
  auto f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  const std::vector<float> values_of_x = random_floats(3);
  const Tensor x = tensor({3}, values_of_x);
  Tensor held;
  for (int call = 0; call < 2; ++call)
    held = f(x);
  held = Tensor();
  context().synchronize();
  const auto watch = watch_without_limit();
  watch_progress(context(), watch);
  GraphAPI& graphs = GetParam().graphs();
  const Stream captured(device(), StreamKind::kNonBlocking);
  std::promise<void> has_begun, may_end;
  Code code = Code::kUnknown;
  std::thread other([&] {
    EXPECT_EQ(graphs.begin_capture(captured.ref().handle(), CaptureMode::kGlobal), Code::kSuccess);
    has_begun.set_value();
    may_end.get_future().wait();
    GraphHandle graph = GraphHandle::kNull;
    code = graphs.end_capture(captured.ref().handle(), &graph);
    if (ok(code)) code = graphs.destroy_graph(graph);
  });
  has_begun.get_future().wait();
  held = f(x);
  may_end.set_value();
  other.join();

  EXPECT_EQ(code, Code::kSuccess);
  EXPECT_EQ(f.stats().replays, 1u);
  EXPECT_EQ(values(held), affine_of(values_of_x, 2, 0));
  EXPECT_FALSE(last(*watch).marks.empty()) << last(*watch).why_unmarked;
}

TEST_P(ProgressWatchTest, RecordingsThatShareAGraphLeaveNoMarksAndSayWhy) {
  const auto watch = watch_without_limit();
  watch_progress(context(), watch);
  auto f =
      compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); }, {.max_switch_nodes = 4});
  prepare(f, random_tensor({3}));
  EXPECT_THAT(last(*watch).marks, IsEmpty());
  EXPECT_THAT(last(*watch).why_unmarked, HasSubstr("max_switch_nodes"));
  EXPECT_TRUE(last(*watch).has_ended);
}

// CUDA allows only one instance at a time of a graph with conditional nodes.
TEST_P(ProgressWatchTest, RecordingsThatBranchLeaveNoMarksAndSayWhy) {
  const auto watch = watch_without_limit();
  watch_progress(context(), watch);
  auto f = compile(context(), "f", [](Tensor x, Tensor taken) {
    Tensor y = affine(x, 2, 0);
    branch(taken, [&] { update(y, 3, 1); });
    return y;
  });
  for (std::int32_t call = 0; call < 6; ++call) {
    const std::int32_t taken = call % 2;
    const std::vector<float> x = random_floats(3);
    const std::vector<float> y = affine_of(x, 2, 0);
    const Tensor flag = from_host(Shape(), std::span(&taken, 1), device());
    EXPECT_EQ(values(f(tensor({3}, x), flag)), taken != 0 ? affine_of(y, 3, 1) : y) << call;
  }
  context().synchronize();
  EXPECT_GT(f.stats().replays, 0u);
  EXPECT_THAT(last(*watch).marks, IsEmpty());
  EXPECT_THAT(last(*watch).why_unmarked, HasSubstr("conditional nodes"));
}

TEST_P(ProgressWatchTest, RecordingsMayGoWhileTheyAreWatched) {
  make_context({.max_recordings = 1, .at_limit = AtLimit::kEvict});
  const auto watch = watch_without_limit();
  watch_progress(context(), watch);
  const auto f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  for (int round = 0; round < 3; ++round) {
    for (const std::int64_t count : {2, 5}) {
      for (int call = 0; call < 4; ++call) {
        const std::vector<float> x = random_floats(count);
        EXPECT_EQ(values(f(tensor({count}, x))), affine_of(x, 2, 0));
      }
    }
  }
  EXPECT_GT(f.stats().evictions, 0u);
  EXPECT_GT(context().release_memory(), 0u);
  context().synchronize();
  EXPECT_THAT(to_string(watch->report()), HasSubstr("all replays have ended"));
}

TEST_P(ProgressWatchTest, SecondGraphsCountTowardsTheLimitAndYieldToRecordings) {
  const auto double_it = [](Tensor x) { return affine(x, 2, 0); };
  const Tensor x = random_tensor({3});
  const auto settle = [&](auto& function) {
    for (int call = 0; call < 5; ++call)
      (void)function(x);
    context().synchronize();
  };
  std::size_t bytes = 0;  // of the recording
  {
    auto f = compile(context(), "f", double_it);
    settle(f);
    bytes = context().stats().graph_bytes;
    ASSERT_GT(bytes, 0u);
  }
  make_context({.max_graph_bytes = 2 * bytes});
  const auto watch = watch_without_limit();
  watch_progress(context(), watch);
  auto f = compile(context(), "f", double_it);
  settle(f);
  EXPECT_THAT(last(*watch).marks, Not(IsEmpty())) << last(*watch).why_unmarked;
  EXPECT_EQ(context().stats().graph_bytes, 2 * bytes);
  {
    auto g = compile(context(), "g", double_it);
    settle(g);
    EXPECT_EQ(g.stats().recordings, 1u);
    EXPECT_EQ(context().stats().graph_bytes, 2 * bytes);
    EXPECT_THAT(last(*watch).why_unmarked, HasSubstr("max_graph_bytes"));
    settle(f);
    EXPECT_THAT(last(*watch).why_unmarked, HasSubstr("max_graph_bytes"));
  }
  settle(f);
  EXPECT_THAT(last(*watch).marks, Not(IsEmpty())) << last(*watch).why_unmarked;
  EXPECT_EQ(f.stats().recordings, 1u);
  watch_progress(context(), nullptr);
  EXPECT_EQ(context().stats().graph_bytes, bytes);
  const std::vector<float> values_of_x = random_floats(3);
  EXPECT_EQ(values(f(tensor({3}, values_of_x))), affine_of(values_of_x, 2, 0));
}

// Branches that join, and a break: each stretch is timed, and added to its scope.
TEST_P(ProgressWatchTest, ReplaysThatLeaveMarksAreTimedByTheirScopes) {
  const auto watch = std::make_shared<ProgressWatch>(
      ProgressOptions{.every_nth_replay = 2, .time_limit = 0ms, .times_scopes = true});
  watch_progress(context(), watch);
  static constexpr auto kBreak = 20ms;
  const Stream side(device());
  const auto f = compile(context(), "f", [&](Tensor x) {
    Tensor y;
    {
      const Scope scope("twice");
      y = affine(x, 2, 0);
    }
    Tensor z;
    {
      const Scope scope("side");
      side.ref().wait_for(current_stream());
      const StreamScope on_side(side);
      z = affine(y, 2, 1);
    }
    Tensor w;  // y stays alive until the other stream has read it
    {
      const Scope scope("main");
      w = affine(y, 3, 0);
    }
    current_stream().wait_for(side);
    eager_break([](const StepValues&) { std::this_thread::sleep_for(kBreak); });
    Tensor sum;
    {
      const Scope scope("twice");
      sum = add(w, z);
    }
    const Scope scope("late");
    return affine(sum, 2, 0);
  });
  constexpr std::uint64_t kReplays = 9;
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t call = 0; call < 2 + kReplays; ++call) {
    const std::vector<float> x = random_floats(3);
    std::vector<float> expected = affine_of(affine_of(x, 2, 0), 3, 0);
    const std::vector<float> z = affine_of(affine_of(x, 2, 0), 2, 1);
    for (std::size_t i = 0; i < z.size(); ++i)
      expected[i] += z[i];
    EXPECT_EQ(values(f(tensor({3}, x))), affine_of(expected, 2, 0)) << call;
    context().synchronize();
  }
  EXPECT_EQ(f.stats().replays, kReplays);
  watch_progress(context(), nullptr);  // measured times stay available

  const ContextMetrics metrics = metrics_of(context());
  const std::map<std::string, ScopeTimes>& times = metrics.functions.at(0).scope_times;
  for (const char* scope : {"twice", "side", "main", "late"}) {
    ASSERT_TRUE(times.contains(scope)) << scope;
    EXPECT_EQ(times.at(scope).count, kReplays / 2) << scope;
    EXPECT_GT(times.at(scope).device.count(), 0) << scope;
    EXPECT_LT(times.at(scope).device, std::chrono::steady_clock::now() - start) << scope;
  }
  EXPECT_LT(times.at("late").device, kReplays / 2 * kBreak);  // excludes the break
  EXPECT_THAT(metrics_text(context()),
              HasSubstr("cgtree_scope_device_seconds_count{context=\"" + metrics.context +
                        "\",function=\"f\",scope=\"side\"} 4\n"));
}

TEST_P(ProgressWatchTest, WithoutThatOptionScopesHaveNoTimes) {
  watch_progress(context(), watch_without_limit());
  auto f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  prepare(f, random_tensor({3}));
  watch_progress(context(), nullptr);
  EXPECT_THAT(metrics_of(context()).functions.at(0).scope_times, IsEmpty());
}

// Watches with and without times use the same second graph.
TEST_P(ProgressWatchTest, OnlyWatchesThatAskForThemTakeTimes) {
  auto f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  const Tensor x = random_tensor({3});
  const auto timed = [&] {
    const ContextMetrics metrics = metrics_of(context());
    std::uint64_t count = 0;
    for (const auto& [scope, times] : metrics.functions.at(0).scope_times)
      count += times.count;
    return count;
  };
  watch_progress(context(), std::make_shared<ProgressWatch>(
                                ProgressOptions{.time_limit = 0ms, .times_scopes = true}));
  prepare(f, x);
  context().synchronize();
  watch_progress(context(), watch_without_limit());
  const std::uint64_t before = timed();
  EXPECT_GT(before, 0u);
  prepare(f, x);
  EXPECT_EQ(timed(), before);
  watch_progress(context(), std::make_shared<ProgressWatch>(
                                ProgressOptions{.time_limit = 0ms, .times_scopes = true}));
  prepare(f, x);
  context().synchronize();
  watch_progress(context(), nullptr);
  EXPECT_GT(timed(), before);
}

TEST_P(ProgressWatchTest, AWatchMayOutliveItsContext) {
  const auto watch = watch_without_limit();
  watch_progress(context(), watch);
  {
    auto f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
    prepare(f, random_tensor({3}));
  }
  make_context({});
  EXPECT_THAT(watch->report(), IsEmpty());
}

CGTREE_ON_ALL_DEVICES(ProgressWatchTest);

// Planted hangs, on devices whose launches return before the work ends.
class HangTest : public ProgressWatchTest {
 protected:
  // Returns 2 x after the flag's kernel has ended.
  static auto doubling_behind(SpinFlag& flag) {
    return [&flag](Tensor x) {
      flag.launch();
      return affine(x, 2, 0);
    };
  }
};

TEST_P(HangTest, AKernelThatSpinsIsNamedWithItsScope) {
  SpinFlag flag(*GetParam().api);
  const auto watch = watch_without_limit();
  watch_progress(context(), watch);
  auto f = compile(context(), "decode", [&](Tensor x) {
    Tensor y;
    {
      const Scope scope("layer 0");
      y = affine(x, 2, 0);
    }
    {
      const Scope scope("layer 1");
      flag.launch();
      y = affine(y, 2, 0);
    }
    const Scope scope("layer 2");
    return affine(y, 2, 0);
  });
  const std::vector<float> values_of_x = random_floats(3);
  const Tensor x = tensor({3}, values_of_x);  // freed later: a free waits for the device
  Tensor held = prepare(f, x);

  flag.let_spin();
  held = f(x);
  wait_until([&] {
    const ReplayProgress replay = last(*watch);
    return replay.has_begun && !scopes_of(replay.marks, true).empty() &&
           scopes_of(replay.marks, true).back() == "layer 0";
  });

  const ReplayProgress replay = last(*watch);
  EXPECT_FALSE(replay.has_ended);
  EXPECT_THAT(scopes_of(replay.marks, false), ElementsAre("layer 1", "layer 2"));
  const std::string text = to_string(watch->report());
  EXPECT_THAT(text, AllOf(HasSubstr("of 'decode' (recording"), HasSubstr("has not ended"),
                          HasSubstr("reached      mark 2 of 4, behind 'layer 0'"),
                          HasSubstr("not reached  mark 3 of 4, behind 'layer 1': kernels ")));
  EXPECT_THAT(text, HasSubstr("spin"));

  flag.let_end();
  EXPECT_EQ(values(held), affine_of(values_of_x, 8, 0));
  EXPECT_TRUE(last(*watch).has_ended);
}

// The next launch overwrites its marks, which then mix two launches.
TEST_P(HangTest, AReplayThatHasNotEndedWhenTheNextIsLaunchedIsNotTimedByScopes) {
  const auto watch =
      std::make_shared<ProgressWatch>(ProgressOptions{.time_limit = 0ms, .times_scopes = true});
  watch_progress(context(), watch);
  auto f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  const Tensor x = random_tensor({3});
  Tensor held = prepare(f, x);
  const auto timed = [&] {
    const ContextMetrics metrics = metrics_of(context());
    std::uint64_t count = 0;
    for (const auto& [scope, times] : metrics.functions.at(0).scope_times)
      count += times.count;
    return count;
  };
  const std::uint64_t before = timed();
  const std::uint64_t recordings = f.stats().kept_recordings;
  {
    const Stream side(device());
    const Gate gate(side);
    context().stream().wait_for(side);
    for (int call = 0; call < 20; ++call)
      held = f(x);
    EXPECT_TRUE(gate.is_closed());
  }
  context().synchronize();
  watch_progress(context(), nullptr);
  EXPECT_GT(timed(), before);
  EXPECT_LE(timed(), before + 2 * recordings);  // the last one before the gate, and the last one
}

TEST_P(HangTest, AStreamThatWaitsForAnEventThatDoesNotComeIsSaid) {
  const auto watch = watch_without_limit();
  watch_progress(context(), watch);
  auto f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  const Tensor x = random_tensor({3});
  Tensor held = prepare(f, x);
  {
    const Stream side(device());
    const Gate gate(side);
    context().stream().wait_for(side);
    held = f(x);
    held = f(x);

    const std::string text = to_string(watch->report());
    EXPECT_TRUE(gate.is_closed());
    EXPECT_THAT(text, AllOf(HasSubstr("has not begun"), HasSubstr("1 behind it")));
  }
  context().synchronize();
  EXPECT_TRUE(last(*watch).has_ended);
}

// A kernel before all work clears the marks of the previous launch; the first graph is empty.
TEST_P(HangTest, MarksBehindABreakThatComesFirstAreThoseOfTheLastLaunch) {
  SpinFlag flag(*GetParam().api);
  const auto watch = watch_without_limit();
  watch_progress(context(), watch);
  auto f = compile(context(), "f",
                   [&](Tensor x) {
                     eager_break([](const StepValues&) {});
                     Tensor y;
                     {
                       const Scope scope("a");
                       y = affine(x, 2, 0);
                     }
                     const Scope scope("b");
                     flag.launch();
                     return affine(y, 2, 0);
                   },
                   {.inputs = {{.is_static = true}}});
  const std::vector<float> values_of_x = random_floats(3);
  const Tensor x = tensor({3}, values_of_x);
  Tensor held = prepare(f, x);
  EXPECT_THAT(scopes_of(last(*watch).marks, true), ElementsAre("a", "b"))
      << last(*watch).why_unmarked;

  flag.let_spin();
  held = f(x);
  wait_until([&] {
    const ReplayProgress replay = last(*watch);
    return replay.has_begun && scopes_of(replay.marks, true) == std::vector<std::string>{"a"};
  });
  EXPECT_THAT(scopes_of(last(*watch).marks, false), ElementsAre("b"));
  flag.let_end();
  EXPECT_EQ(values(held), affine_of(values_of_x, 4, 0));
}

// The replays use the watch's words, marks and graphs, also of recordings that are dropped.
TEST_P(HangTest, WatchesAndRecordingsMayGoWhileReplaysWithMarksAreInFlight) {
  make_context({.max_recordings = 2, .at_limit = AtLimit::kEvict});
  std::vector<CompiledFunction<Tensor(Tensor)>> functions;
  for (int i = 0; i < 4; ++i) {
    functions.push_back(compile(context(), "f" + std::to_string(i), [i](Tensor x) {
      Tensor y;
      {
        const Scope scope("first");
        y = affine(x, 2, static_cast<float>(i));
      }
      eager_break([](const StepValues&) {});
      const Scope scope("second");
      return affine(y, 3, 1);
    }));
  }
  const auto watch = [&](int round) {
    return std::make_shared<ProgressWatch>(
        ProgressOptions{.time_limit = 0ms, .times_scopes = round % 2 == 0});
  };
  const std::vector<float> values_of_x = random_floats(3);
  const Tensor x = tensor({3}, values_of_x);
  const Stream other(device());  // to which the context moves at times
  std::mt19937 random(static_cast<unsigned>(seed_));
  for (int round = 0; round < 8; ++round) {
    watch_progress(context(), watch(round));
    std::vector<std::pair<std::size_t, Tensor>> held;
    const auto call_all = [&](int times) {
      for (std::size_t i = 0; i < functions.size(); ++i) {
        for (int call = 0; call < times; ++call) {
          std::optional<StreamScope> scope;
          if (random() % 4 == 0) scope.emplace(other);
          held.emplace_back(i, functions[i](x));
        }
      }
    };
    {
      const Stream side(device());
      Gate gate(side);
      context().stream().wait_for(side);
      const auto opens = std::async(std::launch::async, [&] {
        std::this_thread::sleep_for(10ms);  // a call that frees memory may wait for the device
        gate.open();
      });
      call_all(3);
      if (round % 3 == 0) watch_progress(context(), nullptr);
      if (round % 3 == 1) watch_progress(context(), watch(round + 1));
      call_all(2);
      (void)metrics_text(context());
    }
    for (const auto& [i, y] : held) {
      const std::vector<float> first = affine_of(values_of_x, 2, static_cast<float>(i));
      EXPECT_EQ(values(y), affine_of(first, 3, 1)) << round << ' ' << i;
    }
  }
  EXPECT_EQ(context().stats().failures, 0u);
  EXPECT_GT(context().stats().evictions, 0u);
}

// Arguments by value or staged, draws, copies back and moving addresses, with the host ahead: each
// executable graph gets patches that only the other one has.
TEST_P(HangTest, ReplaysWithAndWithoutMarksGetTheSameArguments) {
  const auto expect_same = [&]<std::size_t kCount>() {
    const auto watch = watch_without_limit(2);
    watch_progress(context(), watch);
    bool has_marks = false;
    const Generator generator(seed_);
    const Generator same(seed_);
    const Shape shape{static_cast<std::int64_t>(kCount)};
    const auto draw = compile(context(), "draw", [=](Tensor) { return uniform(shape, same); },
                              {.enabled = false});
    const auto f =
        compile(context(), "f",
                [=](Tensor x, Tensor block, Tensor state) {
                  update(state, 1, 1);
                  const Tensor given(block.storage(), block.byte_offset(), shape, DType::kFloat32);
                  return add(add(x, given), uniform(shape, generator));
                },
                {.inputs = {{}, {}, {.is_mutated = true}}});
    const auto numbers = [&] { return random_floats(static_cast<std::int64_t>(kCount)); };
    const std::vector<std::vector<float>> x = {numbers(), numbers(), numbers()};
    std::vector<std::vector<float>> states = {numbers(), numbers()};
    std::vector<Tensor> inputs, state_tensors;
    for (const auto& one : x)
      inputs.push_back(tensor(shape, one));
    for (const auto& one : states)
      state_tensors.push_back(tensor(shape, one));
    std::vector<std::vector<float>> draws;
    for (int call = 0; call < 36; ++call)
      draws.push_back(values(draw(inputs[0])));
    std::mt19937 random(static_cast<unsigned>(seed_));
    auto drawn = draws.begin();
    for (int round = 0; round < 12; ++round) {
      std::vector<std::pair<Tensor, std::vector<float>>> made;
      {
        std::optional<Gate> gate;
        if (round > 2) gate.emplace(context().stream());
        for (int call = 0; call < 3; ++call, ++drawn) {
          const std::size_t i = random() % inputs.size(), j = random() % states.size();
          auto block = std::make_unique<std::array<float, kCount>>();
          std::vector<float> expected = x[i];
          for (std::size_t k = 0; k < kCount; ++k) {
            (*block)[k] = static_cast<float>(random() % 1000);
            expected[k] = expected[k] + (*block)[k] + (*drawn)[k];
            states[j][k] += 1;
          }
          made.emplace_back(f(inputs[i], step_block(*block), state_tensors[j]), expected);
          block->fill(-1);
          has_marks = has_marks || (round > 2 && !last(*watch).marks.empty());
        }
      }
      for (const auto& [y, expected] : made)
        EXPECT_EQ(values(y), expected) << kCount << ' ' << round;
      for (std::size_t j = 0; j < states.size(); ++j)
        EXPECT_EQ(values(state_tensors[j]), states[j]) << kCount << ' ' << round;
    }
    EXPECT_TRUE(has_marks) << last(*watch).why_unmarked;
    EXPECT_GT(f.stats().replays, 20u) << to_string(f.stats());
    EXPECT_EQ(f.stats().failures, 0u);
  };
  expect_same.operator()<5>();
  expect_same.operator()<300>();  // staged
}

// The context has moved to another stream since its marks were made, and its work is on that
// stream.
TEST_P(HangTest, MarksAreInUseUntilTheStreamHasWrittenThemThatTheContextHasMovedTo) {
  const Stream first(device());
  const Stream later(device());
  const auto watch = watch_without_limit();
  watch_progress(context(), watch);
  std::optional f(compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); }));
  const Tensor x = random_tensor({3});
  Tensor held;
  {
    const StreamScope scope(first);
    held = prepare(*f, x);
  }
  std::vector<Tensor> pages;
  {
    const StreamScope scope(later);
    const Gate gate(later);
    held = (*f)(x);
    EXPECT_FALSE(last(*watch).marks.empty()) << last(*watch).why_unmarked;
    watch_progress(context(), nullptr);
    f.reset();
    for (int i = 0; i < 64; ++i) {
      pages.push_back(memory_of(context()).empty_pinned({2}, DType::kInt64));
      std::ranges::fill_n(pages.back().data<std::int64_t>(), 2, -1);
    }
    EXPECT_TRUE(gate.is_closed());
  }
  context().synchronize();
  for (const Tensor& page : pages)
    EXPECT_THAT(page.to_vector<std::int64_t>(), ElementsAre(-1, -1));
}

// The end of a context waits for work that uses its pinned memory.
TEST_P(HangTest, AContextThatEndsWhileItIsWatchedHasNoPinnedMemoryInUse) {
  const CapturedLog log;
  for (int round = 0; round < 20; ++round) {
    const auto watch = watch_without_limit();
    watch_progress(context(), watch);
    {
      auto f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
      prepare(f, random_tensor({3}));
    }
    make_context({});
  }
  for (const std::string& line : log.lines())
    EXPECT_THAT(line, Not(HasSubstr("pool_closed_with_live_blocks")));
}

// Collects the reports of a watch.
class Told {
 public:
  void add(const std::string& text) {
    const std::lock_guard lock(mutex_);
    texts_.push_back(text);
  }
  std::vector<std::string> texts() const {
    const std::lock_guard lock(mutex_);
    return texts_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> texts_;
};

TEST_P(HangTest, BehindATimeLimitTheWatchTellsOnceAndTheNextReplayLeavesMarks) {
  SpinFlag flag(*GetParam().api);
  Told told;
  const auto watch = std::make_shared<ProgressWatch>(ProgressOptions{
      .every_nth_replay = 0, .time_limit = 20ms, .on_timeout = [&](const auto& text) {
        told.add(text);
      }});
  auto f = compile(context(), "f", [&](Tensor x) {
    const Scope scope("spins");
    flag.launch();
    return affine(x, 2, 0);
  });
  const Tensor x = random_tensor({3});
  Tensor held = prepare(f, x);
  watch_progress(context(), watch);

  flag.let_spin();
  held = f(x);
  wait_until([&] { return !told.texts().empty(); });
  ASSERT_FALSE(told.texts().empty());
  EXPECT_THAT(told.texts()[0], AllOf(HasSubstr("has not ended"), HasSubstr("leaves no marks")));
  std::this_thread::sleep_for(200ms);  // the hang goes on, and is already reported
  EXPECT_EQ(told.texts().size(), 1u);
  flag.let_end();
  context().synchronize();

  flag.let_spin();
  held = f(x);
  wait_until([&] { return told.texts().size() > 1; });
  ASSERT_GT(told.texts().size(), 1u);
  EXPECT_THAT(told.texts()[1], AllOf(HasSubstr("behind 'spins': kernels"), HasSubstr("spin")));
  flag.let_end();
  context().synchronize();
  watch_progress(context(), nullptr);
  EXPECT_EQ(told.texts().size(), 2u);
}

// A replay that is not watched, because too many are in flight, leaves the request for marks
// pending.
TEST_P(HangTest, BehindATimeLimitAReplayLeavesMarksHoweverFarTheHostIsAhead) {
  for (const int ahead : {3, 80}) {
    Told told;
    const auto watch = std::make_shared<ProgressWatch>(ProgressOptions{
        .every_nth_replay = 0, .time_limit = 20ms, .on_timeout = [&](const auto& text) {
          told.add(text);
        }});
    auto f = compile(context(), "f", [&](Tensor x) {
      const Scope scope("work");
      return affine(x, 2, 0);
    });
    const Tensor x = random_tensor({3});
    Tensor held = prepare(f, x);
    watch_progress(context(), watch);
    {
      Gate gate(context().stream());
      for (int i = 0; i < ahead; ++i)
        held = f(x);
      wait_until([&] { return !told.texts().empty(); });
      held = f(x);
      gate.open();
    }
    context().synchronize();
    const auto leaves_marks = [&] { return !watch->report().at(0).replays.back().marks.empty(); };
    bool has_marks = leaves_marks();
    for (int i = 0; i < 3 && !has_marks; ++i) {
      held = f(x);
      context().synchronize();
      has_marks = leaves_marks();
    }
    EXPECT_FALSE(told.texts().empty());
    EXPECT_TRUE(has_marks) << ahead << " ahead";
    watch_progress(context(), nullptr);
  }
}

// Nanoseconds overflow after 292 years.
TEST_P(HangTest, ATimeLimitWithoutEndIsNotExceeded) {
  SpinFlag flag(*GetParam().api);
  Told told;
  const auto watch = std::make_shared<ProgressWatch>(
      ProgressOptions{.time_limit = std::chrono::milliseconds::max(),
                      .on_timeout = [&](const auto& text) { told.add(text); }});
  auto f = compile(context(), "f", doubling_behind(flag));
  const Tensor x = random_tensor({3});
  Tensor held = prepare(f, x);
  watch_progress(context(), watch);
  flag.let_spin();
  held = f(x);
  std::this_thread::sleep_for(1'300ms);  // longer than the interval of one second between its looks
  flag.let_end();
  context().synchronize();
  EXPECT_THAT(told.texts(), IsEmpty());
}

TEST_P(HangTest, AWatchMayEndOnItsOwnThread) {
  SpinFlag flag(*GetParam().api);
  std::atomic<bool> is_told{false};
  std::shared_ptr<ProgressWatch> watch;
  const auto end = [&](const std::string&) {
    watch_progress(context(), nullptr);  // no call is in progress
    watch.reset();
    is_told = true;
  };
  watch = std::make_shared<ProgressWatch>(ProgressOptions{.time_limit = 20ms, .on_timeout = end});
  const std::weak_ptr<ProgressWatch> seen = watch;
  auto f = compile(context(), "f", doubling_behind(flag));
  const Tensor x = random_tensor({3});
  Tensor held = prepare(f, x);
  watch_progress(context(), watch);
  flag.let_spin();
  held = f(x);
  wait_until([&] { return is_told.load(); });
  flag.let_end();
  context().synchronize();
  EXPECT_TRUE(seen.expired());
  held = f(x);
  context().synchronize();
}

INSTANTIATE_TEST_SUITE_P(Devices, HangTest, ::testing::ValuesIn(devices_that_work_later()),
                         device_name);

}  // namespace
}  // namespace cgtree::testing
