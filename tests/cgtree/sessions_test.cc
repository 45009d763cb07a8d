// Bindings per session: the first two sessions of a key prove the places of their addresses in the
// graph, and one recording serves all later sessions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cgtree/steps.h"
#include "cgtree/values/eager_break.h"
#include "extensions/guards/guard.h"
#include "extensions/progress/progress_watch.h"
#include "extensions/verify/verify.h"
#include "extensions/watch/monitor.h"
#include "interop/device/device_api.h"
#include "interop/device/kernel.h"
#include "interop/random/random.h"
#include "tests/support/failing_device.h"
#include "tests/support/step_work.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t kCount = 96;  // of a cache, ending inside its block

std::uintptr_t address(const Step& step, std::size_t i) {
  return reinterpret_cast<std::uintptr_t>(step.address(i));
}

// One step of a session: cache += tokens + weights.
class SessionsTest : public TreeTest {
 protected:
  struct Session {
    Tensor cache;
    std::vector<float> expected;
  };
  struct Done {
    Outcome outcome = Outcome::kThrow;
    int runs = 0;

    bool operator==(const Done&) const = default;
  };
  using Work = std::function<void(const Step&)>;

  // Small integers, so that sums are exact.
  std::vector<float> random_numbers(std::int64_t count = kCount) {
    std::vector<float> numbers(static_cast<std::size_t>(count));
    for (float& number : numbers)
      number = static_cast<float>(random_() % 64);
    return numbers;
  }
  void SetUp() override {
    TreeTest::SetUp();
    if (IsSkipped()) return;
    weights_ = tensor({kCount}, random_numbers());
  }
  void TearDown() override {
    weights_ = Tensor();
    TreeTest::TearDown();
  }
  Session session_at(Tensor cache) {
    Session made{std::move(cache), random_numbers()};
    made.cache.copy_from<float>(made.expected);
    return made;
  }
  Session new_session() { return session_at(tensor({kCount}, std::vector<float>(kCount, 0))); }
  Steps make_steps(StepsOptions options = {}) {
    options.bindings = {{.name = "tokens", .is_copied = true},
                        {.name = "cache", .is_mutated = true, .is_per_session = true},
                        {.name = "weights"}};
    return Steps(context(), "decode", std::move(options));
  }
  static void forward(const Step& step) {
    axpy(1, address(step, 0), address(step, 1), kCount);
    axpy(1, address(step, 2), address(step, 1), kCount);
  }
  // Makes a call and checks the caches.
  Done call(Steps& steps, Session& session, const Work& work = forward, const Key& key = {}) {
    const std::vector<float> numbers = random_numbers();
    const Tensor tokens = tensor({kCount}, numbers);
    const Binding bound[] = {binding_of(tokens), binding_of(session.cache), binding_of(weights_)};
    Step step = steps.begin(key, bound);
    Done done;
    for (; step.must_run(); step.end()) {
      work(step);
      ++done.runs;
    }
    done.outcome = step.outcome();
    context().synchronize();
    const std::vector<float> weights = values(weights_);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      session.expected[i] += numbers[i] + weights[i];
    EXPECT_EQ(values(session.cache), session.expected);
    return done;
  }
  // Returns a session that is warmed up and recorded.
  Session recorded_session(Steps& steps, const Work& work = forward) {
    Session session = new_session();
    EXPECT_EQ(call(steps, session, work), (Done{Outcome::kWarmUp, 1}));
    EXPECT_EQ(call(steps, session, work), (Done{Outcome::kRecord, 1}));
    return session;
  }
  json nodes() { return json::parse(snapshot_json(context()))["nodes"]; }
  // The reason why the newest recording does not serve the binding in all sessions.
  std::string why_not(std::size_t input = 1) {
    return nodes().back()["inputs"][input]["rebind"]["why_not"];
  }
  void expect_own_recording(Steps& steps, Session& session, const Work& work = forward) {
    EXPECT_EQ(call(steps, session, work), (Done{Outcome::kRecord, 1}));
    EXPECT_EQ(call(steps, session, work), (Done{Outcome::kReplay, 0}));
  }

  Tensor weights_;
};
CGTREE_ON_ALL_DEVICES(SessionsTest);

TEST_P(SessionsTest, TwoCapturesMakeOneRecordingForAllSessions) {
  Steps steps = make_steps();
  std::vector<Session> sessions = {recorded_session(steps)};
  const std::size_t graph_bytes = stats().graph_bytes;
  sessions.push_back(new_session());
  EXPECT_EQ(call(steps, sessions[1]), (Done{Outcome::kReplay, 1}));  // captured in vain
  while (sessions.size() < 64)
    sessions.push_back(new_session());
  for (int i = 0; i < 200; ++i)
    EXPECT_EQ(call(steps, sessions[random_() % sessions.size()]), (Done{Outcome::kReplay, 0}));
  EXPECT_EQ(steps.stats().recordings, 1u);
  EXPECT_EQ(steps.stats().kept_recordings, 1u);
  EXPECT_EQ(stats().graph_bytes, graph_bytes);
  const json recording = nodes().back();
  EXPECT_EQ(recording["inputs"][1]["treatment"], "rebound");
  EXPECT_EQ(recording["inputs"][1]["rebind"]["nodes"], 2);
  EXPECT_EQ(recording["inputs"][2]["treatment"], "static");
  const Tensor tokens = random_tensor({kCount});
  const Binding bound[] = {binding_of(tokens), binding_of(sessions[7].cache), binding_of(weights_)};
  EXPECT_THAT(steps.explain({}, bound).notes,
              Contains(HasSubstr("binding 1 'cache' is rebound in 2 nodes")));
  validate();
}

TEST_P(SessionsTest, EachKeyIsProvedByItsOwnSessions) {
  Steps steps = make_steps();
  std::vector<Session> sessions;
  for (int i = 0; i < 3; ++i)
    sessions.push_back(new_session());
  for (int i = 0; i < 60; ++i)
    call(steps, sessions[random_() % 3], forward, {{"batch", static_cast<int>(random_() % 4)}});
  EXPECT_LE(steps.stats().kept_recordings, 4u);
  for (int i = 0; i < 20; ++i) {
    const Done done =
        call(steps, sessions[random_() % 3], forward, {{"batch", static_cast<int>(random_() % 4)}});
    EXPECT_EQ(done.outcome, Outcome::kReplay);
  }
}

// The limit has room for the capture of the second session, and for no other recording.
TEST_P(SessionsTest, ARecordingForAllSessionsStaysWithinALimitOfOneMore) {
  Steps steps = make_steps({.max_recordings = 2, .at_limit = AtLimit::kThrow});
  std::vector<Session> sessions = {recorded_session(steps)};
  for (int i = 0; i < 8; ++i) {
    sessions.push_back(new_session());
    EXPECT_EQ(call(steps, sessions.back()).outcome, Outcome::kReplay);
  }
  EXPECT_EQ(steps.stats().kept_recordings, 1u);
}

TEST_P(SessionsTest, AFrozenRecordingServesTheSessionsThatItWasProvedFor) {
  Steps steps = make_steps();
  Session a = recorded_session(steps), b = new_session(), c = new_session();
  steps.freeze();
  EXPECT_EQ(call(steps, b).outcome, Outcome::kRunEagerly);
  steps.unfreeze();
  call(steps, b);
  steps.freeze(WhenFrozen::kThrow);
  for (Session* const session : {&c, &a, &b})
    EXPECT_EQ(call(steps, *session), (Done{Outcome::kReplay, 0}));
}

TEST_P(SessionsTest, AFrozenRecordingThatWasReleasedServesAllSessionsAgain) {
  Steps steps = make_steps();
  Session a = recorded_session(steps), b = new_session(), c = new_session();
  call(steps, b);
  steps.freeze();
  for (int i = 0; i < 2; ++i) {
    (void)context().release_memory();
    EXPECT_EQ(call(steps, a), (Done{Outcome::kRecord, 1}));
    EXPECT_EQ(call(steps, b), (Done{Outcome::kReplay, 1}));
    for (Session* const session : {&c, &a, &b})
      EXPECT_EQ(call(steps, *session), (Done{Outcome::kReplay, 0}));
  }
  const Tensor old = std::exchange(weights_, tensor({kCount}, random_numbers()));
  EXPECT_EQ(call(steps, a).outcome, Outcome::kRunEagerly);  // none is added
}

TEST_P(SessionsTest, ASessionThatEndsTakesNoRecordingWithItOnceAnotherWasServed) {
  Steps steps = make_steps();
  Session a = recorded_session(steps);
  EXPECT_EQ(steps.invalidate(a.cache.data(), a.cache.bytes()), 1u);
  EXPECT_EQ(call(steps, a), (Done{Outcome::kRecord, 1}));
  Session b = new_session();
  call(steps, b);
  for (const Session* const session : {&a, &b})
    EXPECT_EQ(steps.invalidate(session->cache.data(), session->cache.bytes()), 0u);
  a = {};
  Session c = new_session();
  EXPECT_EQ(call(steps, c), (Done{Outcome::kReplay, 0}));
  EXPECT_EQ(steps.invalidate(weights_.data(), weights_.bytes()), 1u);
}

TEST_P(SessionsTest, ASessionWithoutMemoryIsNamedAndNothingIsLaunched) {
  Steps steps = make_steps();
  Session a = recorded_session(steps), b = new_session();
  call(steps, b);
  const Tensor tokens = random_tensor({kCount});
  std::vector<float> on_host(kCount);
  for (const void* const wrong :
       {static_cast<const void*>(on_host.data()), static_cast<const void*>(nullptr)}) {
    const Binding bound[] = {binding_of(tokens), {wrong, b.cache.bytes()}, binding_of(weights_)};
    EXPECT_THAT([&] { (void)steps.begin({}, bound); },
                ThrowsMessage<InvalidArgument>(HasSubstr("binding 1 'cache'")));
  }
  EXPECT_EQ(call(steps, b), (Done{Outcome::kReplay, 0}));
  EXPECT_EQ(call(steps, a), (Done{Outcome::kReplay, 0}));
}

TEST_P(SessionsTest, AScalarThatDiffersKeepsARecordingForEachAndComparisonsEnd) {
  Steps steps = make_steps();
  Session scratch = new_session();
  float counter = 0;
  const Work work = [&](const Step& step) {
    forward(step);
    axpy(counter += 1, address(step, 2), scratch.cache.address(), kCount);
  };
  Session a = recorded_session(steps, work);
  std::vector<Session> sessions;
  for (int i = 0; i < 6; ++i) {
    sessions.push_back(new_session());
    expect_own_recording(steps, sessions.back(), work);
    EXPECT_THAT(why_not(), HasSubstr(i < 4 ? "other parameters in two captures" : "4 comparisons"));
  }
  EXPECT_EQ(call(steps, a, work), (Done{Outcome::kReplay, 0}));
}

TEST_P(SessionsTest, AWordThatStaysInTheMemoryOfASessionIsNoProof) {
  Session a = new_session(), b = new_session(), scratch = new_session();
  for (const std::uintptr_t stays : {a.cache.address(), b.cache.address() + 4}) {
    const Work work = [&](const Step& step) {
      forward(step);
      axpy(1, stays, scratch.cache.address(), 8);
    };
    Steps own = make_steps();
    call(own, a, work);
    call(own, a, work);
    expect_own_recording(own, b, work);
    EXPECT_THAT(why_not(), HasSubstr("an address in it that does not move with it"));
  }
}

TEST_P(SessionsTest, MemoryBehindATableIsNoProof) {
  Steps steps = make_steps();
  std::uintptr_t table[1] = {};
  Session scratch = new_session();
  const Work work = [&](const Step& step) {
    forward(step);
    table[0] = address(step, 1);
    const StreamRef stream = current_stream();
    check(stream.api().copy(stream.handle(), scratch.cache.data(), table, sizeof(table)),
          "upload a table");
  };
  Session a = recorded_session(steps, work), b = new_session();
  expect_own_recording(steps, b, work);
  EXPECT_THAT(why_not(), HasSubstr("table in host memory"));
}

// The address may be in a table on the device.
TEST_P(SessionsTest, MemoryThatNoNodeNamesIsNoProof) {
  Steps steps(context(), "f", {.bindings = {{.name = "cache", .is_per_session = true}}});
  const Tensor sum = tensor({kCount}, std::vector<float>(kCount, 0));
  const Tensor caches[] = {random_tensor({kCount}), random_tensor({kCount})};
  for (const Tensor& cache : caches) {
    const Binding bound[] = {binding_of(cache)};
    for (int i = 0; i < 2; ++i)
      for (Step step = steps.begin({}, bound); step.must_run(); step.end())
        axpy(1, weights_.address(), sum.address(), kCount);
  }
  EXPECT_EQ(steps.stats().recordings, 2u);
  EXPECT_THAT(why_not(0), HasSubstr("no node has its address"));
}

// Keys and values of a cache in one arena per session, adjacent or with a gap.
class ArenaTest : public SessionsTest {
 protected:
  static constexpr std::int64_t kGap = 32;

  Steps make_steps() {
    return Steps(context(), "f",
                 {.bindings = {{.name = "k", .is_mutated = true, .is_per_session = true},
                               {.name = "v", .is_mutated = true, .is_per_session = true}}});
  }
  Tensor new_arena() { return tensor({4 * kCount}, std::vector<float>(4 * kCount, 0)); }
  // Enqueues k += weights and v += 2 * weights. Returns the number of runs.
  int call(Steps& steps, const Tensor& k, const Tensor& v) {
    const std::vector<float> k_before = values(k), v_before = values(v), by = values(weights_);
    const Binding bound[] = {binding_of(k), binding_of(v)};
    int runs = 0;
    for (Step step = steps.begin({}, bound); step.must_run(); step.end()) {
      axpy(1, weights_.address(), address(step, 0), kCount);
      axpy(2, weights_.address(), address(step, 1), kCount);
      ++runs;
    }
    context().synchronize();
    const bool is_one = k.address() == v.address();
    std::vector<float> k_after = k_before, v_after = v_before;
    for (std::size_t i = 0; i < by.size(); ++i) {
      k_after[i] += is_one ? 3 * by[i] : by[i];
      v_after[i] += is_one ? 3 * by[i] : 2 * by[i];
    }
    EXPECT_EQ(values(k), k_after);
    EXPECT_EQ(values(v), v_after);
    return runs;
  }
  int call(Steps& steps, const Tensor& arena, std::int64_t v_at) {
    return call(steps, arena.slice(0, 0, kCount), arena.slice(0, v_at, v_at + kCount));
  }
};
CGTREE_ON_ALL_DEVICES(ArenaTest);

TEST_P(ArenaTest, BindingsThatMoveByOneDistanceAreToldApartByTheirRanges) {
  Steps steps = make_steps();
  const Tensor a = new_arena(), b = new_arena(), c = new_arena();
  call(steps, a, kCount + kGap);
  call(steps, a, kCount + kGap);
  EXPECT_EQ(call(steps, b, kCount + kGap), 1);
  EXPECT_EQ(steps.stats().recordings, 1u);
  for (const Tensor& arena : {a, b, c}) {
    for (const std::int64_t v_at : {kCount + kGap, 2 * (kCount + kGap)})
      EXPECT_EQ(call(steps, arena, v_at), 0) << v_at;
  }
}

TEST_P(ArenaTest, NeighboursThatMoveByOneDistanceAreNotToldApartUntilTheyMoveOtherwise) {
  Steps steps = make_steps();
  const Tensor a = new_arena(), b = new_arena(), c = new_arena();
  call(steps, a, kCount);
  call(steps, a, kCount);
  EXPECT_EQ(call(steps, b, kCount), 1);
  EXPECT_THAT(why_not(0), HasSubstr("an address that may be another's"));
  EXPECT_EQ(call(steps, c, 2 * kCount), 1);
  EXPECT_EQ(steps.stats().recordings, 2u);
  const Tensor d = new_arena();
  for (const Tensor& arena : {d, c, b, a})
    EXPECT_EQ(call(steps, arena, 3 * kCount), 0);
}

TEST_P(ArenaTest, SessionsThatShareMemoryAreNotCompared) {
  const Tensor arena = tensor({8 * kCount}, std::vector<float>(8 * kCount, 0));
  const auto at = [&](std::int64_t begin) { return arena.slice(0, begin, begin + kCount); };
  struct Case {
    std::int64_t k, v, other_k, other_v;
    const char* why;
  };
  for (const Case& one : {
           Case{0, 4 * kCount, kCount / 2, 6 * kCount, "of the other session"},
           Case{0, 2 * kCount, 4 * kCount, kGap, "of the other session"},
           Case{0, 2 * kCount, 5 * kCount, 5 * kCount, "shares memory with"},
           Case{0, 0, 5 * kCount, 6 * kCount, "shares memory with"},
       }) {
    Steps steps = make_steps();
    call(steps, at(one.k), at(one.v));
    call(steps, at(one.k), at(one.v));
    EXPECT_EQ(call(steps, at(one.other_k), at(one.other_v)), 1);
    EXPECT_EQ(steps.stats().recordings, 2u);
    EXPECT_THAT(why_not(0), AllOf(HasSubstr("shares memory with"), HasSubstr(one.why)));
  }
}

// v stays the same in the first two sessions: it is checked, and a session with another v has
// separate recordings.
TEST_P(ArenaTest, ABindingThatStaysInTwoSessionsIsChecked) {
  Steps steps = make_steps();
  const Tensor a = new_arena(), b = new_arena(), c = new_arena(), v = new_arena();
  const auto k_of = [](const Tensor& arena) { return arena.slice(0, 0, kCount); };
  const Tensor first = k_of(v), second = v.slice(0, 2 * kCount, 3 * kCount);
  call(steps, k_of(a), first);
  call(steps, k_of(a), first);
  call(steps, k_of(b), first);
  EXPECT_EQ(call(steps, k_of(c), first), 0);
  EXPECT_EQ(steps.stats().recordings, 1u);
  EXPECT_THAT(why_not(1), HasSubstr("in one place"));
  EXPECT_EQ(call(steps, k_of(c), second), 1);
  EXPECT_EQ(call(steps, k_of(b), second), 1);
  EXPECT_EQ(call(steps, k_of(a), second), 0);
  EXPECT_EQ(steps.stats().recordings, 2u);
}

TEST_P(ArenaTest, LessAlignedSessionsHaveOneMoreRecording) {
  Steps steps = make_steps();
  const Tensor a = new_arena(), b = new_arena(), c = new_arena(), d = new_arena();
  const auto shifted = [&](const Tensor& arena) {
    return call(steps, arena.slice(0, 4, 4 + kCount), arena.slice(0, 2 * kCount, 3 * kCount));
  };
  call(steps, a, 2 * kCount);
  call(steps, a, 2 * kCount);
  call(steps, b, 2 * kCount);
  EXPECT_EQ(shifted(c), 1);
  EXPECT_EQ(steps.stats().recordings, 2u);
  EXPECT_EQ(shifted(d), 1);
  EXPECT_EQ(shifted(a), 0);
  EXPECT_EQ(call(steps, d, 2 * kCount), 0);
  EXPECT_EQ(steps.stats().recordings, 2u);
}

TEST_P(ArenaTest, ASessionMayLackABinding) {
  Steps steps = make_steps();
  const Tensor k[] = {new_arena(), new_arena(), new_arena()};
  const void* const v[] = {nullptr, k[1].data(), k[0].data()};
  for (const int session : {0, 0, 1, 2, 0, 1, 2}) {
    const std::uint64_t replays = steps.stats().replays;
    const Binding bound[] = {binding_of(k[session]), {v[session], 0}};
    for (Step step = steps.begin({}, bound); step.must_run(); step.end())
      axpy(1, weights_.address(), address(step, 0), kCount);
    context().synchronize();
    EXPECT_LE(steps.stats().replays, replays + 1);
  }
  EXPECT_EQ(steps.stats().recordings, 1u);
  EXPECT_EQ(steps.stats().replays, 5u);
}

TEST_P(SessionsTest, OtherCheckedBindingsMustBeWhereTheyWere) {
  Steps steps = make_steps();
  Session a = recorded_session(steps), b = new_session();
  const Tensor old = std::exchange(weights_, tensor({kCount}, random_numbers()));
  expect_own_recording(steps, b);
  EXPECT_FALSE(nodes().back()["inputs"][1].contains("rebind"));
  weights_ = old;
  EXPECT_EQ(call(steps, a), (Done{Outcome::kReplay, 0}));
}

TEST_P(SessionsTest, AnswersOfGuardsMustBeAlike) {
  Steps steps = make_steps();
  int splits = 1;
  const Work work = [&](const Step& step) {
    (void)decide("splits", [&splits] { return splits; });
    forward(step);
  };
  Session a = recorded_session(steps, work), b = new_session();
  splits = 2;
  EXPECT_EQ(call(steps, b, work), (Done{Outcome::kWarmUp, 1}));
  EXPECT_EQ(call(steps, b, work), (Done{Outcome::kRecord, 1}));
  EXPECT_EQ(call(steps, a, work), (Done{Outcome::kReplay, 1}));
  splits = 1;
  EXPECT_EQ(call(steps, b, work), (Done{Outcome::kReplay, 1}));
  Session c = new_session();
  for (const int answer : {1, 2}) {
    splits = answer;
    EXPECT_EQ(call(steps, c, work), (Done{Outcome::kReplay, 0}));
  }
  EXPECT_EQ(steps.stats().kept_recordings, 2u);
}

TEST_P(SessionsTest, BreaksAndHostFunctionsAreNoProof) {
  const Work breaks = [](const Step& step) {
    axpy(1, address(step, 0), address(step, 1), kCount);
    eager_break([](const StepValues&) {});
    axpy(1, address(step, 2), address(step, 1), kCount);
  };
  const Work calls_host = [](const Step& step) {
    forward(step);
    const StreamRef stream = current_stream();
    check(stream.graphs().launch_host_function(
              stream.handle(), [](void*) {}, nullptr),
          "call the host");
  };
  for (const auto& [work, why] :
       {std::pair(breaks, "eager_break"), std::pair(calls_host, "node")}) {
    Steps steps = make_steps();
    Session a = recorded_session(steps, work), b = new_session();
    expect_own_recording(steps, b, work);
    EXPECT_THAT(why_not(), HasSubstr(why));
    EXPECT_EQ(call(steps, a, work), (Done{Outcome::kReplay, 0}));
  }
}

// A recording keeps the guards of its session, which would then be asked for all sessions.
TEST_P(SessionsTest, GuardsThatAskTheirOwnSessionAreNoProof) {
  Steps steps = make_steps();
  std::vector<Session> sessions;
  std::vector<std::shared_ptr<int>> lengths;
  for (int i = 0; i < 3; ++i) {
    sessions.push_back(new_session());
    lengths.push_back(std::make_shared<int>(1));
  }
  int captured = 0;  // the factor of the last run
  const auto step_of = [&](std::size_t i) {
    return call(steps, sessions[i], [&, length = lengths[i]](const Step& step) {
      captured = decide("factor", [length] { return *length; });
      axpy(static_cast<float>(captured), address(step, 0), address(step, 1), kCount);
      axpy(1, address(step, 2), address(step, 1), kCount);
      axpy(static_cast<float>(1 - captured), address(step, 0), address(step, 1), kCount);
    });
  };
  for (const std::size_t i : {0, 0, 1, 2})
    (void)step_of(i);
  EXPECT_EQ(steps.stats().recordings, 3u);
  EXPECT_THAT(why_not(), HasSubstr("guard 'factor' asks another object in each session"));
  *lengths[1] = 2;
  EXPECT_NE(step_of(1).outcome, Outcome::kReplay);
  EXPECT_EQ(captured, 2);
  EXPECT_EQ(step_of(0), (Done{Outcome::kReplay, 0}));
  *lengths[0] = 3;
  EXPECT_EQ(step_of(2), (Done{Outcome::kReplay, 0}));
}

TEST_P(SessionsTest, GuardsThatAskOneObjectServeAllSessions) {
  Steps steps = make_steps();
  struct Engine {
    int session = 0;
    std::array<int, 3> factors = {1, 1, 1};
  };
  const auto engine = std::make_shared<Engine>();
  const Work work = [&](const Step& step) {
    (void)decide("nothing", [] { return 5; });
    (void)decide("factor", [engine] { return engine->factors[engine->session]; });
    (void)watch_value(&engine->session, "which");
    forward(step);
  };
  Session a = recorded_session(steps, work), b = new_session(), c = new_session();
  EXPECT_EQ(call(steps, b, work), (Done{Outcome::kReplay, 1}));
  EXPECT_EQ(call(steps, c, work), (Done{Outcome::kReplay, 0}));
  engine->factors[0] = 2;
  EXPECT_NE(call(steps, c, work).outcome, Outcome::kReplay);
}

// Libraries register the captured addresses in that callback.
TEST_P(SessionsTest, RecordingsThatAreToldBeforeTheirLaunchHaveOneSessionEach) {
  int told = 0;
  make_context({.before_first_launch = [&](const NewRecording&) { ++told; }});
  Steps steps = make_steps();
  Session a = recorded_session(steps), b = new_session();
  expect_own_recording(steps, b);
  EXPECT_THAT(why_not(), HasSubstr("before_first_launch"));
  EXPECT_EQ(told, 2);
}

TEST_P(SessionsTest, RandomNumbersAreNoProof) {
  const Generator generator(seed_);
  const Work work = [&](const Step& step) {
    forward(step);
    (void)uniform({4}, generator);
  };
  Steps steps = make_steps();
  Session a = recorded_session(steps, work), b = new_session();
  expect_own_recording(steps, b, work);
  EXPECT_THAT(why_not(), HasSubstr("random numbers"));
}

// A capture after the pools have grown has its copies at other addresses.
TEST_P(SessionsTest, CopiesThatLieElsewhereAreNoAddressesOfASession) {
  Steps steps = make_steps();
  CompiledFunction sum = compile(context(), "sum", [](Tensor x, Tensor y) {
    return add(affine(x.slice(0, 0, 4), 1, 0), affine(y, 1, 0));
  });
  const Tensor large = tensor({1 << 21}, std::vector<float>(1 << 21, 1));
  (void)sum(large, large.slice(0, 0, 4));
  Session a = recorded_session(steps), b = new_session(), c = new_session();
  for (int i = 0; i < 2; ++i)
    (void)sum(large, tensor({4}, std::vector<float>(4, 1)));
  EXPECT_EQ(call(steps, b), (Done{Outcome::kReplay, 1}));
  EXPECT_EQ(call(steps, c), (Done{Outcome::kReplay, 0}));
}

TEST_P(SessionsTest, ReplaysOfAllSessionsAreVerified) {
  make_context({.extensions = {verify({.every = 1})}});
  Steps steps(context(), "f",
              {.bindings = {{.is_copied = true},
                            {.is_mutated = true, .is_per_session = true},
                            {.name = "weights, which are put back", .is_mutated = true}}});
  Session a = new_session(), b = new_session(), c = new_session();
  for (Session* const session : {&a, &a, &b, &c, &a, &c, &b})
    call(steps, *session);
  EXPECT_EQ(steps.stats().verified, 5u);
  EXPECT_EQ(steps.stats().differed, 0u);
  EXPECT_EQ(steps.stats().recordings, 1u);
}

// Its graph has nodes that write marks.
TEST_P(SessionsTest, ARecordingWithMarksStaysThatOfItsSession) {
  const auto watch = std::make_shared<ProgressWatch>(ProgressOptions{});
  watch_progress(context(), watch);
  Steps steps = make_steps();
  Session a = recorded_session(steps), b = new_session(), c = new_session();
  EXPECT_EQ(call(steps, a), (Done{Outcome::kReplay, 0}));
  EXPECT_EQ(call(steps, b), (Done{Outcome::kRecord, 1}));
  EXPECT_THAT(why_not(), HasSubstr("two captures gave"));
  for (Session* const session : {&c, &a, &b, &c, &a})
    EXPECT_EQ(call(steps, *session).outcome, Outcome::kReplay);
  EXPECT_EQ(steps.stats().recordings, 2u);
  watch_progress(context(), nullptr);
}

TEST_P(SessionsTest, WithoutTheOptionEachSessionHasItsRecording) {
  Steps steps(context(), "f", {.bindings = {{.is_copied = true}, {.is_mutated = true}}});
  Session a = recorded_session(steps), b = new_session();
  expect_own_recording(steps, b);
  EXPECT_FALSE(nodes().back()["inputs"][1].contains("rebind"));
}

TEST_P(SessionsTest, OptionsThatContradictEachOtherAreRefused) {
  const auto refuses = [&](const StepsOptions& options) {
    EXPECT_THAT([&] { (void)Steps(context(), "f", options); },
                ThrowsMessage<InvalidArgument>(
                    AllOf(HasSubstr("binding 0 'x' of 'f'"), HasSubstr("is_per_session"))));
  };
  refuses({.bindings = {{.name = "x", .is_copied = true, .is_per_session = true}}});
  refuses({.bindings = {{.name = "x", .host_bytes = 8, .is_per_session = true}}});
  refuses({.bindings = {{.name = "x", .is_per_session = true}},
           .on_static_change = OnStaticChange::kThrow});
}

// The device refuses the first patch: the proof is discarded, the call is captured again, and the
// function is not compared again.
TEST(SessionsHostTest, APatchThatIsRefusedCostsTheEarlierRecordingAndNoCall) {
  FailingDevice& failing = FailingDevice::instance();
  Context context(failing.device());
  Steps steps(context, "f", {.bindings = {{.is_mutated = true, .is_per_session = true}}});
  std::vector<Tensor> caches;
  for (int i = 0; i < 3; ++i)
    caches.push_back(from_host<float>({1}, {1.0F}, failing.device()));
  std::vector<float> expected(caches.size(), 1);
  const auto call = [&](std::size_t session) {
    const Binding bound[] = {binding_of(caches[session])};
    int runs = 0;
    for (Step step = steps.begin({}, bound); step.must_run(); step.end()) {
      axpy(1, address(step, 0), address(step, 0), 1);
      axpy(1, address(step, 0), address(step, 0), 1);
      ++runs;
    }
    context.synchronize();
    expected[session] *= 4;
    EXPECT_EQ(caches[session].to_vector<float>(), std::vector<float>{expected[session]});
    return runs;
  };
  call(0);
  call(0);
  failing.arm({.at = 1, .code = Code::kInvalidValue, .function = "set_node"});
  EXPECT_EQ(call(1), 2);
  EXPECT_EQ(failing.failed_function(), "set_node");
  failing.disarm();
  EXPECT_EQ(context.stream().graphs().peek_last_error(), Code::kSuccess);
  EXPECT_EQ(steps.stats().kept_recordings, 1u);
  EXPECT_EQ(call(0), 1);
  EXPECT_EQ(call(2), 1);
  EXPECT_EQ(steps.stats().kept_recordings, 3u);
  for (const std::size_t session : {0, 1, 2, 0})
    EXPECT_EQ(call(session), 0);
}

// The dropped recording is the one that the limit would have evicted.
TEST(SessionsHostTest, APatchThatIsRefusedAtALimitEvictsNoRecordingThatIsGone) {
  FailingDevice& failing = FailingDevice::instance();
  for (const AtLimit at_limit : {AtLimit::kEvict, AtLimit::kThrow}) {
    Context context(failing.device());
    const bool evicts = at_limit == AtLimit::kEvict;
    Steps steps(context, "f",
                {.bindings = {{.is_mutated = true, .is_per_session = true}},
                 .max_recordings = evicts ? 1u : 2u,
                 .at_limit = at_limit});
    std::vector<Tensor> caches;
    for (int i = 0; i < 3; ++i)
      caches.push_back(from_host<float>({1}, {1.0F}, failing.device()));
    std::vector<float> expected(caches.size(), 1);
    const auto call = [&](std::size_t session) {
      const Binding bound[] = {binding_of(caches[session])};
      for (Step step = steps.begin({}, bound); step.must_run(); step.end())
        axpy(1, address(step, 0), address(step, 0), 1);
      context.synchronize();
      expected[session] *= 2;
      EXPECT_EQ(caches[session].to_vector<float>(), std::vector<float>{expected[session]});
    };
    call(0);
    call(0);
    failing.arm({.at = 0, .code = Code::kInvalidValue, .function = "set_node"});
    call(1);
    failing.disarm();
    EXPECT_EQ(steps.stats().kept_recordings, 1u);
    EXPECT_EQ(steps.stats().evictions, 0u);
    validate(context);
    for (const std::size_t session : {1, 1, 0, 0})
      call(session);
    validate(context);
  }
}

}  // namespace
}  // namespace cgtree::testing
