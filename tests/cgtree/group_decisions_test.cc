// The ranks of a group make the same decisions, however their circumstances differ, and a replay
// has no vote.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "cgtree/cgtree.h"
#include "cgtree/record/graph_bytes.h"
#include "cgtree/tree/ballot.h"
#include "cgtree/tree/extension.h"
#include "cgtree/values/eager_break.h"
#include "extensions/audit/audit_options.h"
#include "extensions/ranks/group.h"
#include "extensions/sizes/precapture.h"
#include "extensions/verify/verify.h"
#include "extensions/watch/watch.h"
#include "interop/device/device_api.h"
#include "interop/random/random.h"
#include "tests/support/devices.h"
#include "tests/support/inside.h"
#include "tests/support/random_steps.h"
#include "tests/support/rank_threads.h"
#include "tests/support/steps.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::chrono::milliseconds kLimit(20'000);

// Counts the votes that it passes on.
class CountedGroup final : public Group {
 public:
  explicit CountedGroup(std::unique_ptr<Group> group) : group_(std::move(group)) {}
  int rank() const noexcept override { return group_->rank(); }
  int size() const noexcept override { return group_->size(); }
  void minimum(std::span<std::uint64_t> words) override {
    ++votes;
    group_->minimum(words);
  }

  int votes = 0;

 private:
  std::unique_ptr<Group> group_;
};

// Returns a call's outcome, its skip reason, or "threw".
std::string told(const std::optional<CallOutcome>& outcome) {
  if (!outcome) return "nothing";
  if (outcome->outcome == Outcome::kThrow) return "threw";
  if (outcome->skip_reason) return std::string(name(*outcome->skip_reason));
  constexpr std::array<const char*, 5> kNames = {"replay", "record", "warm_up", "run", "throw"};
  return kNames[static_cast<std::size_t>(outcome->outcome)];
}

class GroupDecisionsTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(GetParam()); }

  // A rank of a test: a context in a group, used by one thread.
  struct Rank {
    Rank(int number, Device device, std::unique_ptr<Group> group, ContextOptions options)
        : rank(number), votes(std::make_shared<CountedGroup>(std::move(group))) {
      options.group = votes;
      context.emplace(device, std::move(options));
    }
    Tensor input(std::int64_t elements, float value) const {
      const std::vector<float> values(static_cast<std::size_t>(elements), value);
      return from_host<float>(Shape({elements}), values, context->device());
    }
    std::size_t recordings() const { return recordings_of(*context); }

    int rank;
    std::shared_ptr<CountedGroup> votes;
    std::optional<Context> context;
  };

  // Runs `body` on all ranks at once; options(rank) gives the options of a rank.
  template <typename Body>
  void run(int size, const std::function<ContextOptions(int)>& options, const Body& body) {
    auto groups = make_thread_groups(size, kLimit);
    run_on_ranks(size, [&](int number) {
      Rank rank(number, device_of_rank(GetParam().device, number),
                std::move(groups[static_cast<std::size_t>(number)]),
                options ? options(number) : ContextOptions{});
      body(rank);
      cgtree::testing::validate(*rank.context);
      (void)agree(*rank.votes, true);  // an early end of one rank would fail the others
    });
  }
};
CGTREE_ON_ALL_DEVICES(GroupDecisionsTest);

std::vector<float> values(const Tensor& tensor) {
  return tensor.to_vector<float>();
}

// The decisions of a rank to copy and to wait depend on the calls alone.
TEST_P(GroupDecisionsTest,
       RanksThatKeepResultsCopyThemTogetherAndRanksWhoseInputsMoveWaitTogether) {
  run(3, nullptr, [](Rank& rank) {
    CompiledFunction f = compile(*rank.context, "f", [](Tensor x) { return affine(x, 2, 1); });
    CompiledFunction g = compile(*rank.context, "g", [](Tensor w, Tensor x) { return add(w, x); },
                                 {.inputs = {{.is_static = true}}});
    std::vector<Tensor> kept, moved;
    for (int i = 0; i < 120; ++i) {
      kept.push_back(f(rank.input(8, static_cast<float>(i))));
      moved.push_back(rank.input(8, 1));
      (void)g(moved.back(), kept.back());
    }
    for (int i = 0; i < 120; ++i)
      EXPECT_EQ(values(kept[static_cast<std::size_t>(i)])[0], 2.0F * static_cast<float>(i) + 1);
    EXPECT_GE(f.stats().replays, 110u);
    EXPECT_GE(g.stats().skipped(SkipReason::kBacksOff), 90u);
  });
}

TEST_P(GroupDecisionsTest, AReplayHasNoVote) {
  run(3, nullptr, [](Rank& rank) {
    CompiledFunction f = compile(*rank.context, "f", [](Tensor x) { return affine(x, 2, 1); });
    for (int i = 0; i < 2; ++i)
      (void)f(rank.input(8, 1));
    const int before = rank.votes->votes;
    EXPECT_GT(before, 0);
    for (int i = 0; i < 50; ++i)
      EXPECT_EQ(values(f(rank.input(8, static_cast<float>(i))))[0],
                2.0F * static_cast<float>(i) + 1);
    EXPECT_EQ(f.stats().replays, 50);
    EXPECT_EQ(rank.votes->votes, before);
  });
}

TEST_P(GroupDecisionsTest, AllRanksVerifyTheSameReplaysAndHearOfADifferenceOnOne) {
  run(
      3, [](int) { return ContextOptions{.extensions = {verify({.every = 2})}}; },
      [](Rank& rank) {
        float shift = 1;
        bool has_room = true;
        CompiledFunction f = compile(*rank.context, "f", [&](Tensor x) {
          if (!has_room) throw OutOfMemory("no room");
          return affine(x, 2, shift);
        });
        for (int i = 0; i < 2 + 6; ++i)
          EXPECT_EQ(values(f(rank.input(8, 3)))[0], 7);
        EXPECT_EQ(f.stats().verified, 3);

        has_room = rank.rank != 0;
        for (int i = 0; i < 2; ++i)
          EXPECT_EQ(values(f(rank.input(8, 3)))[0], 7);
        has_room = true;
        EXPECT_EQ(f.stats().verified, 3);
        EXPECT_EQ(f.stats().unverified[static_cast<int>(UnverifiedReason::kNoMemory)], 1);

        if (rank.rank == 1) shift = 5;
        (void)f(rank.input(8, 3));
        try {
          (void)f(rank.input(8, 3));
          ADD_FAILURE() << "nothing was thrown";
        } catch (const VerifyError&) {
          EXPECT_EQ(rank.rank, 1);
        } catch (const GroupError& error) {
          EXPECT_NE(rank.rank, 1);
          EXPECT_THAT(error.what(),
                      AllOf(HasSubstr("rank 1 of 3"), HasSubstr("differs from an eager")));
        }
        shift = 1;
        for (int i = 0; i < 4; ++i)
          EXPECT_EQ(values(f(rank.input(8, 3)))[0], 7);
        EXPECT_EQ(rank.recordings(), 1);
      });
}

TEST_P(GroupDecisionsTest, AllRanksVerifyTheSameFirstReplaysAndThenNoneVotes) {
  run(
      3, [](int) { return ContextOptions{.extensions = {verify({.first = 3})}}; },
      [](Rank& rank) {
        float shift = 1;
        CompiledFunction f =
            compile(*rank.context, "f", [&](Tensor x) { return affine(x, 2, shift); });
        for (int i = 0; i < 2 + 3; ++i)
          EXPECT_EQ(values(f(rank.input(8, 3)))[0], 7);
        EXPECT_EQ(f.stats().verified, 2);
        if (rank.rank == 1) shift = 5;
        try {
          (void)f(rank.input(8, 3));
          ADD_FAILURE() << "nothing was thrown";
        } catch (const VerifyError&) {
          EXPECT_EQ(rank.rank, 1);
        } catch (const GroupError& error) {
          EXPECT_NE(rank.rank, 1);
          EXPECT_THAT(error.what(),
                      AllOf(HasSubstr("rank 1 of 3"), HasSubstr("differs from an eager")));
        }
        const int before = rank.votes->votes;
        for (int i = 0; i < 8; ++i)
          EXPECT_EQ(values(f(rank.input(8, 3)))[0], 7);
        EXPECT_EQ(rank.votes->votes, before);
        EXPECT_EQ(rank.recordings(), 1);
      });
}

// The engine's work on rank 1 differs from the recording, or the step is left in the middle.
TEST_P(GroupDecisionsTest, StepsOfEnginesAreVerifiedTogetherAndAllHearOfWhatOneComesTo) {
  run(
      2, [](int) { return ContextOptions{.extensions = {verify({.every = 2})}}; },
      [](Rank& rank) {
        float shift = 1;
        bool leaves = false;
        Steps steps(*rank.context, "step", {.bindings = {{.name = "cache", .is_mutated = true}}});
        const Tensor cache = rank.input(8, 0);
        const Binding bindings[] = {{cache.data<float>(), cache.bytes()}};
        const auto step = [&] {
          int runs = 0;
          for (Step step = steps.begin({}, bindings); step.must_run(); step.end()) {
            ++runs;
            update(cache, 1, shift);
            if (leaves) throw std::runtime_error("the engine's own");
          }
          return runs;
        };
        const auto expect_failure = [&](const char* what) {
          try {
            (void)step();
            ADD_FAILURE() << "nothing was thrown";
          } catch (const GroupError& error) {
            EXPECT_EQ(rank.rank, 0);
            EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1 of 2"), HasSubstr(what)));
          } catch (const VerifyError&) {
            EXPECT_EQ(rank.rank, 1);
          } catch (const std::runtime_error&) {
            EXPECT_TRUE(rank.rank == 1 && leaves);
          }
          shift = 1;
          leaves = false;
        };
        for (const int runs : {1, 1, 0, 1, 0, 1, 0})
          EXPECT_EQ(step(), runs);
        if (rank.rank == 1) shift = 5;
        expect_failure("differs from an eager");
        EXPECT_EQ(step(), 0);
        leaves = rank.rank == 1;
        expect_failure("left before its end()");
        for (const int runs : {0, 1})
          EXPECT_EQ(step(), runs);
        EXPECT_EQ(values(cache)[0], 12) << "each replay counts";
        EXPECT_EQ(steps.stats().verified, rank.rank == 1 ? 4 : 3);
        EXPECT_EQ(rank.recordings(), 1);
      });
}

TEST_P(GroupDecisionsTest, IfOneRankCannotCaptureAllRunEagerly) {
  run(3, nullptr, [](Rank& rank) {
    CompiledFunction f = compile(*rank.context, "f", [&](Tensor x) {
      Tensor y = affine(x, 2, 1);
      if (rank.rank == 1) current_stream().synchronize();  // forbidden in captures
      return y;
    });
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(values(f(rank.input(8, 3)))[7], 7);
    EXPECT_EQ(rank.recordings(), 0);
    EXPECT_EQ(f.stats().skipped(SkipReason::kCaptureFailed), 3);
  });
}

TEST_P(GroupDecisionsTest, AnExceptionOnOneRankEndsTheCallOnAll) {
  for (const int phase : {0, 1}) {  // warm-up, recording
    run(3, nullptr, [&](Rank& rank) {
      int calls = 0;
      CompiledFunction f = compile(*rank.context, "f", [&](Tensor x) {
        Tensor y = affine(x, 2, 1);
        if (rank.rank != 2 || calls++ != phase) return y;
        if (phase == 0) throw OutOfMemory("no room for a cat");
        throw InvalidArgument("no room for a cat");
      });
      if (phase == 1) (void)f(rank.input(8, 3));
      try {
        (void)f(rank.input(8, 3));
        ADD_FAILURE() << "nothing was thrown";
      } catch (const GroupError& error) {
        EXPECT_NE(rank.rank, 2);
        EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 2 of 3"), HasSubstr("'f'"),
                                        HasSubstr("no room for a cat")));
      } catch (const Error& error) {
        EXPECT_EQ(rank.rank, 2);
        EXPECT_THAT(error.what(), HasSubstr("no room for a cat"));
      }
      EXPECT_EQ(rank.context->stats().live_outputs, 0);
      for (int i = 0; i < 4; ++i)
        EXPECT_EQ(values(f(rank.input(8, 3)))[7], 7);
      EXPECT_EQ(f.stats().warm_ups, 1);
      EXPECT_EQ(f.stats().recordings, 1);
      EXPECT_EQ(f.stats().failures, 1);
    });
  }
}

TEST_P(GroupDecisionsTest, LackOfMemoryOnOneRankEvictsTheSameRecordingsOnAll) {
  const auto options = [](int rank) {
    ContextOptions made;
    made.at_limit = AtLimit::kEvict;
    if (rank == 1) made.max_bytes = 24 << 20;
    return made;
  };
  std::mutex mutex;
  std::vector<std::string> traces(3);
  run(3, options, [&](Rank& rank) {
    CompiledFunction f =
        compile(*rank.context, "f", [](Tensor x) { return affine(affine(x, 2, 0), 1, 1); });
    std::string trace;
    std::vector<Tensor> held;
    for (int round = 0; round < 3; ++round) {
      for (std::int64_t size = 1; size <= 6; ++size) {
        for (int call = 0; call < 2; ++call) {
          std::string outcome;
          try {
            held.push_back(f(rank.input(size << 18, static_cast<float>(size))));
            EXPECT_EQ(values(held.back())[0], 2 * static_cast<float>(size) + 1);
          } catch (const OutOfMemory&) {
            EXPECT_EQ(rank.rank, 1);
          } catch (const GroupError&) {
            EXPECT_NE(rank.rank, 1);
          }
          if (held.size() > 2) held.erase(held.begin());
          trace += told(f.last_outcome()) + ' ';
        }
      }
    }
    trace += std::to_string(f.stats().evictions);
    EXPECT_GT(f.stats().evictions, 0);
    const std::lock_guard lock(mutex);
    traces[static_cast<std::size_t>(rank.rank)] = trace;
  });
  EXPECT_EQ(traces[0], traces[1]);
  EXPECT_EQ(traces[0], traces[2]);
}

TEST_P(GroupDecisionsTest, TheTimeLimitIsReachedByAllInTheSameCall) {
  const auto options = [](int) {
    ContextOptions made;
    made.max_recording_time = std::chrono::seconds(1);
    return made;
  };
  run(2, options, [](Rank& rank) {
    bool is_slow = false;
    CompiledFunction f = compile(*rank.context, "f", [&](Tensor x) {
      if (is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(1'100));
      return affine(x, 2, 1);
    });
    (void)f(rank.input(8, 3));
    (void)f(rank.input(8, 3));
    is_slow = rank.rank == 1;
    (void)f(rank.input(9, 3));
    is_slow = false;
    EXPECT_EQ(values(f(rank.input(9, 3)))[0], 7);
    EXPECT_EQ(f.stats().skipped(SkipReason::kTimeLimit), 1);
    EXPECT_EQ(f.stats().recordings, 1);
    EXPECT_GE(rank.context->stats().recording_time, std::chrono::milliseconds(1'100));
  });
}

TEST_P(GroupDecisionsTest, GraphsAreCountedAsLargeAsTheLargestOfTheRanks) {
  const auto options = [](int) {
    ContextOptions made;
    made.at_limit = AtLimit::kEvict;
    made.max_graph_bytes = 2 * graph_bytes_of_chain(82);
    return made;
  };
  run(2, options, [](Rank& rank) {
    CompiledFunction f = compile(*rank.context, "f", [&](Tensor x) {
      for (int i = 0; i < (rank.rank == 1 ? 80 : 1); ++i)
        x = affine(x, 1, 1);
      return x;
    });
    for (std::int64_t size = 1; size <= 5; ++size) {
      for (int call = 0; call < 3; ++call)
        EXPECT_EQ(values(f(rank.input(size, 0)))[0], rank.rank == 1 ? 80 : 1);
    }
    EXPECT_EQ(rank.recordings(), 2);
    EXPECT_EQ(f.stats().evictions, 3);
  });
}

TEST_P(GroupDecisionsTest, ARankThatCallsSomethingElseIsNamedOnAllOfThem) {
  run(3, nullptr, [](Rank& rank) {
    CompiledFunction decode =
        compile(*rank.context, "decode", [](Tensor x) { return affine(x, 2, 1); });
    CompiledFunction prefill =
        compile(*rank.context, "prefill", [](Tensor x) { return affine(x, 3, 1); });
    const auto expect_difference = [&](auto&& call, const char* first, const char* second) {
      try {
        call();
        ADD_FAILURE() << "nothing was thrown on rank " << rank.rank;
      } catch (const GroupError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr(first), HasSubstr(second)));
      }
    };
    expect_difference([&] { (void)(rank.rank == 1 ? prefill : decode)(rank.input(4, 1)); },
                      "rank 0: about to warm up 'decode'", "rank 1: about to warm up 'prefill'");
    expect_difference([&] { (void)decode(rank.input(rank.rank == 2 ? 5 : 4, 1)); },
                      "rank 1: about to warm up 'decode' float32 {4}",
                      "rank 2: about to warm up 'decode' float32 {5}");
    for (int i = 0; i < 4; ++i)  // no replay is lost
      EXPECT_EQ(values(decode(rank.input(4, 1)))[3], 3);
    EXPECT_EQ(decode.stats().replays, 2);
    if (rank.rank == 0) rank.context->mark_step();
    expect_difference([&] { (void)decode(rank.input(6, 1)); }, "rank 0: about to warm up",
                      "generation 0");
  });
}

TEST_P(GroupDecisionsTest, RanksWithOtherOptionsFindOut) {
  auto groups = make_thread_groups(2, kLimit);
  run_on_ranks(2, [&](int rank) {
    ContextOptions options;
    options.max_recordings = rank == 0 ? 10 : 11;
    options.group = std::move(groups[static_cast<std::size_t>(rank)]);
    const std::shared_ptr<Group> group = options.group;
    try {
      const Context context(device_of_rank(GetParam().device, rank), options);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const GroupError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("10 recordings"), HasSubstr("11 recordings")));
    }
    (void)agree(*group, true);
  });
  // With the words expected in the message; extensions that only report events and times may
  // differ.
  const std::vector<std::pair<ExtensionFactory, std::string>> others = {
      {verify({.every = 1}), "verify 1 and first 0"},
      {verify({.first = 1}), "verify 0 and first 1"},
      {audit({.on_foreign_pointer = OnForeignPointer::kThrow}), "on_foreign_pointer 2"},
      {watch({.time_every_nth_replay = 1}), ""}};
  for (const auto& [other, words] : others) {
    auto pairs = make_thread_groups(2, kLimit);
    run_on_ranks(2, [&, &other = other, &words = words](int rank) {
      ContextOptions options;
      if (rank == 1) options.extensions = {other};
      options.group = std::move(pairs[static_cast<std::size_t>(rank)]);
      const Device device = device_of_rank(GetParam().device, rank);
      if (words.empty()) {
        EXPECT_NO_THROW(Context(device, options));
      } else {
        EXPECT_THAT([&] { Context(device, options); }, ThrowsMessage<GroupError>(HasSubstr(words)));
      }
    });
  }
  run(2, nullptr, [](Rank& rank) {
    CompileOptions options;
    options.max_recordings = rank.rank == 0 ? 1 : 2;
    CompiledFunction f = compile(
        *rank.context, "f", [](Tensor x) { return affine(x, 2, 1); }, options);
    EXPECT_THROW((void)f(rank.input(4, 1)), GroupError);
  });
}

// A rank that cannot make its context must not have voted, so that it may try again.
TEST_P(GroupDecisionsTest, ARankWhoseEventFileCannotBeOpenedMayTryAgain) {
  auto groups = make_thread_groups(2, kLimit);
  run_on_ranks(2, [&](int rank) {
    const Device device = device_of_rank(GetParam().device, rank);
    ContextOptions options;
    options.group = std::move(groups[static_cast<std::size_t>(rank)]);
    if (rank == 1) {
      ContextOptions wrong = options;
      wrong.extensions = {watch({.event_file = "no_such_folder/events.jsonl"})};
      EXPECT_THROW(Context(device, wrong), InvalidArgument);
    }
    Context context(device, options);
    CompiledFunction f = compile(context, "f", [](Tensor x) { return affine(x, 2, 1); });
    const std::vector<float> ones(4, 1.0F);
    for (int call = 0; call < 3; ++call)
      EXPECT_EQ(values(f(from_host<float>(Shape({4}), ones, device)))[3], 3) << call;
    (void)agree(*options.group, true);
  });
}

TEST_P(GroupDecisionsTest, StaticInputsMayBeCutDifferently) {
  run(2, nullptr, [](Rank& rank) {
    CompiledFunction f =
        compile(*rank.context, "f", [](Tensor x, Tensor) { return affine(x, 2, 1); },
                {.inputs = {{}, {.is_static = true}}});
    const Tensor weights = rank.input(16 + rank.rank, 1);
    for (int i = 0; i < 4; ++i)
      (void)f(rank.input(4, 1), weights);
    EXPECT_EQ(f.stats().replays, 2);
  });
}

TEST_P(GroupDecisionsTest, ARankThatHasLeftFailsTheNextCallThatNeedsIt) {
  auto groups = make_thread_groups(2, kLimit);
  std::atomic<bool> has_left{false};
  run_on_ranks(2, [&](int number) {
    std::optional<Rank> rank;
    rank.emplace(number, device_of_rank(GetParam().device, number),
                 std::move(groups[static_cast<std::size_t>(number)]), ContextOptions{});
    {
      CompiledFunction f = compile(*rank->context, "f", [](Tensor x) { return affine(x, 2, 1); });
      for (int i = 0; i < 3; ++i)
        (void)f(rank->input(4, 1));
      if (number == 0) {
        while (!has_left)
          std::this_thread::yield();
        EXPECT_EQ(values(f(rank->input(4, 2)))[0], 5);  // has no vote
        try {
          (void)f(rank->input(5, 1));
          ADD_FAILURE() << "nothing was thrown";
        } catch (const GroupError& error) {
          EXPECT_THAT(error.what(), HasSubstr("rank 1 of 2 has left"));
        }
        EXPECT_EQ(values(f(rank->input(4, 3)))[0], 7);
        cgtree::testing::validate(*rank->context);
      }
    }
    rank.reset();
    if (number == 1) has_left = true;
  });
}

TEST_P(GroupDecisionsTest, StepsOfEnginesDecideTogether) {
  run(2, nullptr, [](Rank& rank) {
    Steps steps(*rank.context, "step");
    const Tensor x = rank.input(8, 0);
    const Tensor stream_owner = rank.input(1, 0);
    std::string trace;
    for (int i = 0; i < 8; ++i) {
      const Binding bindings[] = {{x.data<float>(), x.bytes()}};
      const bool breaks_rules = i < 3;  // breaks each of the first captures, on one rank
      for (Step step = steps.begin(Key{{"n", i < 5 ? 1 : 2}}, bindings); step.must_run();) {
        update(x, 1, 1);
        if (breaks_rules && rank.rank == 1 && step.is_captured()) {
          (void)rank.context->stream().api().synchronize_stream(rank.context->stream().handle());
        }
        step.end();
      }
      trace += told(steps.last_outcome()) + ' ';
    }
    EXPECT_EQ(trace,
              "warm_up capture_failed capture_failed capture_failed capture_failed "
              "warm_up record replay ");
    EXPECT_EQ(values(x)[0], 8);
  });
}

// The rank's own exception does not tell it that the other rank's capture failed.
TEST_P(GroupDecisionsTest, ACaptureThatFailsCountsOnARankThatThrowsInTheSameCallToo) {
  run(2, nullptr, [](Rank& rank) {
    Steps steps(*rank.context, "step", {.bindings = {{}, {.name = "tokens", .is_copied = true}}});
    const Tensor x = rank.input(8, 0);
    const Tensor tokens = rank.input(8, 1);
    const Binding bindings[] = {{x.data<float>(), x.bytes()},
                                {tokens.data<float>(), tokens.bytes()}};
    std::string trace;
    for (int i = 0; i < 6; ++i) {
      try {
        for (Step step = steps.begin(Key{}, bindings); step.must_run(); step.end()) {
          update(x, 1, 1);
          if (i != 1) continue;
          if (rank.rank == 1) (void)affine(tokens, 1, 0);  // reads the tokens instead of their copy
          if (rank.rank == 0) {
            EXPECT_THROW(current_stream().synchronize(), CaptureError);
          }
        }
      } catch (const InvalidArgument&) {
        EXPECT_EQ(rank.rank, 1);
      } catch (const GroupError&) {
        EXPECT_EQ(rank.rank, 0);
      }
      trace += told(steps.last_outcome()) + ' ';
    }
    EXPECT_EQ(trace, "warm_up threw capture_failed capture_failed capture_failed capture_failed ");
    EXPECT_EQ(values(x)[0], 5);
  });
}

// Ranks have different faults at different places.
TEST_P(GroupDecisionsTest, StepsStayInStepWhateverEachRankThrows) {
  enum What { kBody, kSynchronizes, kSwallows, kDiffers, kBreak, kHook, kKeeps, kMemory, kKinds };
  const unsigned seed = std::random_device()();
  for (unsigned program = 0; program < 40; ++program) {
    bool hook_fails[2] = {};
    const auto options = [&](int rank) {
      return ContextOptions{.max_recordings = 3,
                            .at_limit = AtLimit::kEvict,
                            .before_first_launch =
                                [&hook_fails, rank](const NewRecording&) {
                                  if (hook_fails[rank]) throw std::runtime_error("no peer memory");
                                },
                            .extensions = {verify({.every = 1 + (seed + program) % 3})}};
    };
    run(2, options, [&](Rank& rank) {
      std::mt19937 random(seed + program);
      std::mt19937 own(seed + program + 1000 * static_cast<unsigned>(rank.rank + 1));
      Steps steps(*rank.context, "step",
                  {.bindings = {{.name = "tokens", .is_copied = true},
                                {.name = "sum", .is_mutated = true},
                                {.name = "block", .host_bytes = sizeof(std::uint64_t)}}});
      const Tensor tokens[] = {rank.input(4, 1), rank.input(4, 2)};
      const Tensor sum = rank.input(4, 0);
      const auto binding_of = [](const Tensor& tensor) {
        return Binding{tensor.data<float>(), tensor.bytes()};
      };
      const bool has_break = random() % 3 == 0;
      for (int call = 0; call < 40; ++call) {
        const std::int64_t key = static_cast<std::int64_t>(random() % 4);
        const std::uint64_t block = random();
        const Binding given[] = {
            binding_of(tokens[random() % 2]), binding_of(sum), {&block, sizeof(block)}};
        const auto what = own() % 3 == 0 ? static_cast<What>(own() % kKinds) : kKinds;
        const unsigned at = own() % 2;
        hook_fails[rank.rank] = what == kHook;
        bool break_fails = what == kBreak;
        try {
          unsigned runs = 0;
          for (Step step = steps.begin({{"k", key}}, given); step.must_run();) {
            const bool is_here = runs++ == at;
            if (is_here && what == kBody) throw std::runtime_error("the engine's own");
            if (is_here && what == kMemory) throw OutOfMemory("none is left");
            Tensor kept;
            if (is_here && what == kKeeps) kept = empty({4}, DType::kFloat32);
            update(sum, 1, 1);
            if (has_break) {
              eager_break([&break_fails](const StepValues&) {
                if (break_fails) throw std::runtime_error("the break's own");
              });
            }
            if (is_here && what == kSynchronizes) current_stream().synchronize();
            try {
              if (is_here && what == kSwallows) current_stream().synchronize();
            } catch (const CaptureError&) {
            }
            update(sum, 1, is_here && what == kDiffers ? 3.0F : 1.0F);
            step.end();
          }
        } catch (const std::exception& error) {
          EXPECT_THAT(error.what(), ::testing::Not(HasSubstr("must make the same calls")))
              << "seed " << seed << ", program " << program << ", rank " << rank.rank << ", call "
              << call;
          if (::testing::Test::HasFailure()) return;
        }
      }
    });
    if (HasFailure()) return;
  }
}

TEST_P(GroupDecisionsTest, AStepThatOneRankLeavesIsLostForAll) {
  run(2, nullptr, [](Rank& rank) {
    Steps steps(*rank.context, "step");
    const Tensor x = rank.input(8, 0);
    const Binding bindings[] = {{x.data<float>(), x.bytes()}};
    for (int i = 0; i < 5; ++i) {
      try {
        for (Step step = steps.begin(Key{}, bindings); step.must_run();) {
          update(x, 1, 1);
          if (i == 1 && rank.rank == 0) throw std::runtime_error("the engine's own");
          step.end();
        }
      } catch (const GroupError& error) {
        EXPECT_EQ(rank.rank, 1);
        EXPECT_THAT(error.what(), HasSubstr("the step was left before its end()"));
      } catch (const std::runtime_error&) {
        EXPECT_EQ(rank.rank, 0);
      }
    }
    EXPECT_EQ(values(x)[0], 4);
    EXPECT_EQ(steps.stats().recordings, 1);
    EXPECT_EQ(steps.stats().replays, 2);
    EXPECT_EQ(steps.stats().failures, 1);
  });
}

TEST_P(GroupDecisionsTest, PrecaptureEndsWithTheRankThatReachesALimitFirst) {
  run(2, nullptr, [](Rank& rank) {
    CompiledFunction f = compile(*rank.context, "f", [](Tensor x) { return affine(x, 2, 1); },
                                 {.inputs = {{.dynamic = {{0, "n"}}}},
                                  .buckets = {{"n", {1 << 10, 2 << 10, 4 << 10, 8 << 10}}},
                                  .outputs = {{.dynamic = {{0, "n"}}}}});
    const auto make_inputs = [&](const CallSizes& sizes) {
      return std::vector<Tensor>{rank.input(sizes["n"], 1)};
    };
    PrecaptureOptions options{.held_outputs = 0};
    if (rank.rank == 1) options.max_time = std::chrono::microseconds(0);
    const PrecaptureReport first = precapture(f, options, make_inputs);
    EXPECT_EQ(first.count(Precaptured::Outcome::kLeftOut), 4);
    const PrecaptureReport predicted = predict_memory(f, {.held_outputs = 0}, make_inputs);
    EXPECT_EQ(predicted.entries.size(), 4);
    const PrecaptureReport all = precapture(f, {.held_outputs = 0}, make_inputs);
    EXPECT_EQ(all.count(Precaptured::Outcome::kRecorded), 4);
    const int before = rank.votes->votes;
    for (const std::int64_t n : {700, 2000, 8000})
      EXPECT_EQ(values(f(rank.input(n, 3)))[0], 7);
    EXPECT_EQ(rank.votes->votes, before);
  });
}

TEST_P(GroupDecisionsTest, WhatAPrecaptureCallsThrowsOnAllRanksOrOnNone) {
  enum What { kMakeInputs, kProgress, kPredict };
  for (const What what : {kMakeInputs, kProgress, kPredict}) {
    run(2, nullptr, [what](Rank& rank) {
      CompiledFunction f = compile(*rank.context, "f", [](Tensor x) { return affine(x, 2, 1); },
                                   {.inputs = {{.dynamic = {{0, "n"}}}},
                                    .buckets = {{"n", {4, 8, 16}}},
                                    .outputs = {{.dynamic = {{0, "n"}}}}});
      int calls = 0;
      const auto fail_here = [&](bool is_it) {
        if (is_it && rank.rank == 1 && ++calls == 2) throw std::runtime_error("the server's own");
      };
      const auto make_inputs = [&](const CallSizes& sizes) {
        fail_here(what != kProgress);
        return std::vector<Tensor>{rank.input(sizes["n"], 1)};
      };
      PrecaptureOptions options{.held_outputs = 0};
      if (rank.rank == 1)
        options.progress = [&](const Precaptured&) { fail_here(what == kProgress); };
      try {
        (void)(what == kPredict ? predict_memory(f, options, make_inputs)
                                : precapture(f, options, make_inputs));
        ADD_FAILURE() << "rank " << rank.rank;
      } catch (const GroupError& error) {
        EXPECT_EQ(rank.rank, 0);
        EXPECT_THAT(error.what(), HasSubstr("has thrown on another rank"));
      } catch (const std::runtime_error&) {
        EXPECT_EQ(rank.rank, 1);
      }
      for (const std::int64_t n : {3, 3, 3, 7, 7, 7})
        EXPECT_EQ(values(f(rank.input(n, 3)))[0], 7);
      EXPECT_EQ(f.stats().failures, 0);
    });
  }
}

TEST_P(GroupDecisionsTest, AllRanksRegisterARecordingOrNoneDoes) {
  std::atomic<int> registered{0};
  const auto options = [&](int rank) {
    ContextOptions made;
    made.before_first_launch = [&registered, rank,
                                calls = 0](const NewRecording& recording) mutable {
      EXPECT_EQ(recording.function, "f");
      EXPECT_EQ(recording.graphs.size(), 1);
      EXPECT_NE(recording.execs[0], ExecHandle::kNull);
      ++registered;
      if (rank == 1 && calls++ == 0) throw std::runtime_error("no peer memory");
    };
    return made;
  };
  run(2, options, [&](Rank& rank) {
    CompiledFunction f = compile(*rank.context, "f", [](Tensor x) { return affine(x, 2, 1); });
    (void)f(rank.input(4, 1));
    EXPECT_THROW((void)f(rank.input(4, 1)), std::runtime_error);
    EXPECT_EQ(rank.recordings(), 0);
    EXPECT_EQ(values(f(rank.input(4, 2)))[0], 5);
    EXPECT_EQ(values(f(rank.input(4, 3)))[0], 7);
    EXPECT_EQ(f.stats().recordings, 1);
    EXPECT_EQ(f.stats().replays, 1);
  });
  EXPECT_EQ(registered, 4);
}

TEST_P(GroupDecisionsTest, GeneratorsStayTogetherWhereOneRankCannotDoWhatTheOthersCan) {
  enum What { kWarmUp, kCapture, kCaptureThrows, kRegister, kEager, kNothing };
  for (const What what : {kWarmUp, kCapture, kCaptureThrows, kRegister, kEager}) {
    std::array<std::vector<float>, 2> drawn;
    What fails = kNothing;
    std::mutex mutex;
    const auto fails_here = [&](int rank, What which) {
      const std::lock_guard lock(mutex);
      return rank == 1 && fails == which;
    };
    const auto set = [&](Rank& rank, What which) {
      (void)agree(*rank.votes, true);  // all ranks have ended the last call
      const std::lock_guard lock(mutex);
      fails = which;
    };
    const auto options = [&](int rank) {
      return ContextOptions{.before_first_launch = [&, rank](const NewRecording&) {
        if (fails_here(rank, kRegister)) throw std::runtime_error("no peer memory");
      }};
    };
    run(2, options, [&](Rank& rank) {
      const Generator generator(7);
      CompiledFunction f = compile(*rank.context, "f", [&] {
        Tensor y = uniform({4}, generator);
        const bool captures = current_stream().is_capturing();
        if (!captures && (fails_here(rank.rank, kWarmUp) || fails_here(rank.rank, kEager)))
          throw std::runtime_error("not now");
        if (captures && fails_here(rank.rank, kCapture)) current_stream().synchronize();
        if (captures && fails_here(rank.rank, kCaptureThrows)) throw OutOfMemory("no room");
        return y;
      });
      std::vector<float> all;
      const auto call = [&] {
        const GeneratorState before = generator.state();
        try {
          const std::vector<float> y = values(f());
          all.insert(all.end(), y.begin(), y.end());
          EXPECT_EQ(generator.state().offset, before.offset + 1);
        } catch (const std::runtime_error&) {
          EXPECT_EQ(generator.state(), before) << what << " on rank " << rank.rank;
        }
      };
      if (what == kEager) {
        set(rank, kCapture);
        call();
        call();
      } else if (what != kWarmUp) {
        call();
      }
      set(rank, what);
      call();
      set(rank, kNothing);
      for (int i = 0; i < 4; ++i)
        call();
      drawn[static_cast<std::size_t>(rank.rank)] = all;
    });
    EXPECT_EQ(drawn[0], drawn[1]) << what;
  }
}

// Throws once, from explain().
class Forgetful final : public Extension {
 public:
  explicit Forgetful(bool fails) : fails_(fails) {}
  void explain(Explanation&, const FunctionState&, const Call&) const override {
    if (std::exchange(fails_, false)) throw OutOfMemory("the extension's own");
  }

 private:
  mutable bool fails_;
};

// One rank leaves the call, so the others must not decide again for lack of memory.
TEST_P(GroupDecisionsTest, AnExtensionWithoutMemoryOnOneRankLeavesTheGroupInStep) {
  const auto options = [](int rank) {
    return ContextOptions{
        .extensions = {[rank](Engine&) { return std::make_unique<Forgetful>(rank == 1); }}};
  };
  run(2, options, [](Rank& rank) {
    CompiledFunction f = compile(*rank.context, "f", [](Tensor x) { return affine(x, 2, 1); });
    EXPECT_EQ(values(f(rank.input(4, 3)))[0], 7);
    const auto record = [&] { (void)f(rank.input(4, 3)); };
    if (rank.rank == 1) {
      EXPECT_THROW(record(), OutOfMemory);
    } else {
      EXPECT_THAT(record, ThrowsMessage<GroupError>(HasSubstr("the extension's own")));
    }
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(values(f(rank.input(4, 3)))[0], 7);
    EXPECT_EQ(f.stats().replays, 2u);
  });
}

// One rank fails after the last vote of a call, or in a call without votes. The caller must release
// the outputs that the other ranks got from the call.
TEST_P(GroupDecisionsTest, AnExceptionInABreakOnOneRankLeavesTheGroupInStep) {
  for (const std::size_t verify_every : {0, 2, 3}) {
    const auto options = [&](int) {
      return ContextOptions{.extensions = {verify({.every = verify_every})}};
    };
    run(3, options, [&](Rank& rank) {
      bool fails = false;
      const Generator generator(3);
      CompiledFunction f = compile(*rank.context, "f", [&](Tensor x) {
        Tensor y = affine(x, 2, 1);
        eager_break([&](const StepValues&) {
          if (fails && rank.rank == 1) throw std::runtime_error("the break's own");
        });
        (void)uniform({4}, generator);
        return affine(y, 1, 0);
      });
      const auto call = [&](std::int64_t size) {
        try {
          const Tensor y = f(rank.input(size, 3));
          EXPECT_EQ(values(y)[0], 7);
          return true;
        } catch (const GroupError& error) {
          EXPECT_NE(rank.rank, 1);
          EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1 of 3"), HasSubstr("the break's own")));
        } catch (const std::runtime_error& error) {
          EXPECT_EQ(rank.rank, 1);
          EXPECT_THAT(error.what(), HasSubstr("the break's own"));
        }
        return false;
      };
      for (std::int64_t size = 4; size < 7; ++size) {
        for (int phase = 0; phase < 8; ++phase) {
          fails = true;
          const bool is_voted = phase < 2;  // a warm-up, a recording; then replays
          const bool done = call(size);
          if (is_voted) {
            EXPECT_FALSE(done) << phase;
            EXPECT_EQ(rank.recordings(), static_cast<std::size_t>(size - 4));
          }
          if (rank.rank == 1) {
            EXPECT_FALSE(done);
          }
          fails = false;
          EXPECT_TRUE(call(size)) << "size " << size << " phase " << phase;
        }
      }
      EXPECT_EQ(f.stats().warm_ups, 3);
      EXPECT_EQ(f.stats().recordings, 3);
    });
  }
}

// The other ranks do not learn of the exception, and draw.
TEST_P(GroupDecisionsTest, GeneratorsStayTogetherWhereABreakOfAReplayThrowsOnOneRank) {
  std::array<std::vector<float>, 2> drawn;
  run(2, nullptr, [&](Rank& rank) {
    bool fails = false;
    const Generator generator(3);
    const CompiledFunction f = compile(*rank.context, "f", [&] {
      Tensor y = uniform({4}, generator);
      eager_break([&](const StepValues&) {
        if (fails) throw std::runtime_error("the break's own");
      });
      return affine(y, 1, 0);
    });
    for (int call = 0; call < 4; ++call)
      (void)f();
    fails = rank.rank == 1;
    try {
      (void)f();
      EXPECT_EQ(rank.rank, 0);
    } catch (const std::runtime_error&) {
      EXPECT_EQ(rank.rank, 1);
    }
    fails = false;
    drawn[static_cast<std::size_t>(rank.rank)] = values(f());
  });
  EXPECT_EQ(drawn[0], drawn[1]);
}

TEST_P(GroupDecisionsTest, ABreakOfAnEngineThatThrowsOnOneRankLeavesTheGroupInStep) {
  run(2, nullptr, [](Rank& rank) {
    bool fails = false;
    Steps steps(*rank.context, "step");
    const Tensor x = rank.input(8, 0);
    const Binding bindings[] = {{x.data<float>(), x.bytes()}};
    const auto step = [&](int n) {
      try {
        for (Step step = steps.begin(Key{{"n", n}}, bindings); step.must_run();) {
          eager_break([&](const StepValues&) {
            if (fails && rank.rank == 1) throw std::runtime_error("the break's own");
          });
          update(x, 1, 1);
          step.end();
        }
        return true;
      } catch (const GroupError&) {
        EXPECT_EQ(rank.rank, 0);
      } catch (const std::runtime_error&) {
        EXPECT_EQ(rank.rank, 1);
      }
      return false;
    };
    for (const int n : {1, 2, 3}) {
      for (int phase = 0; phase < 5; ++phase) {
        fails = true;
        EXPECT_EQ(step(n), rank.rank == 0 && phase >= 2);
        fails = false;
        EXPECT_TRUE(step(n));
      }
    }
    EXPECT_EQ(steps.stats().recordings, 3);
  });
}

// The error that broke the capture may make the engine throw on one rank only.
TEST_P(GroupDecisionsTest, ACaptureThatOneRankLeavesBrokenCountsOnAll) {
  for (const bool breaks_rules : {true, false}) {
    run(2, nullptr, [&](Rank& rank) {
      Steps steps(*rank.context, "step");
      const Tensor x = rank.input(8, 0);
      const Binding bindings[] = {{x.data<float>(), x.bytes()}};
      std::string trace;
      for (int i = 0; i < 7; ++i) {
        try {
          for (Step step = steps.begin(Key{}, bindings); step.must_run();) {
            update(x, 1, 1);
            if (rank.rank == 1 && step.is_captured() && i < 3) {
              if (breaks_rules) {
                (void)rank.context->stream().api().synchronize_stream(
                    rank.context->stream().handle());
              }
              throw std::runtime_error("the engine's own");
            }
            step.end();
          }
        } catch (const GroupError&) {
          EXPECT_EQ(rank.rank, 0);
        } catch (const std::runtime_error&) {
          EXPECT_EQ(rank.rank, 1);
        }
        trace += told(steps.last_outcome()) + ' ';
      }
      EXPECT_EQ(trace, breaks_rules ? "warm_up threw capture_failed capture_failed capture_failed "
                                      "capture_failed capture_failed "
                                    : "warm_up threw threw record replay replay replay ");
    });
  }
}

TEST_P(GroupDecisionsTest, CapturesThatFailedAreTriedAgainInTheSameCallOnAllRanks) {
  run(2, nullptr, [](Rank& rank) {
    int call = 0;
    std::vector<int> captures;
    CompiledFunction f = compile(*rank.context, "f", [&](Tensor x) {
      if (current_stream().is_capturing()) {
        captures.push_back(call);
        if (rank.rank == 1 && call < 10) throw std::runtime_error("busy");
      }
      return affine(x, 2, 1);
    });
    for (; call < 80; ++call)
      EXPECT_EQ(values(f(rank.input(4, 1)))[0], 3);
    EXPECT_EQ(captures, (std::vector<int>{1, 2, 3, 68}));
    EXPECT_EQ(f.stats().recordings, 1);
    EXPECT_EQ(f.stats().replays, 11);
  });
}

// Refused launches count as uses of the recording, as launches on the other ranks do.
class GroupRefusedLaunchTest : public GroupDecisionsTest {};
INSTANTIATE_TEST_SUITE_P(HostOnly, GroupRefusedLaunchTest,
                         ::testing::Values(devices_under_test().front()),
                         [](const auto& info) { return info.param.name; });

TEST_P(GroupRefusedLaunchTest, ALaunchThatOneRankRefusesLeavesTheGroupInStep) {
  run(2, nullptr, [](Rank& rank) {
    bool refused = false;
    const Generator generator(3);
    CompiledFunction f = compile(*rank.context, "f", [&](Tensor x) {
      if (rank.rank == 1) launch_refusable(&refused);
      return add_noise(x, generator);
    });
    const auto call = [&](std::int64_t size) {
      try {
        (void)f(rank.input(size, 3));
        return true;
      } catch (const DeviceError&) {
        EXPECT_EQ(rank.rank, 1);
      } catch (const GroupError&) {
        EXPECT_EQ(rank.rank, 0);
      }
      return false;
    };
    for (std::int64_t size = 4; size < 7; ++size) {
      EXPECT_TRUE(call(size));
      for (int phase = 0; phase < 4; ++phase) {
        refused = true;
        EXPECT_EQ(call(size), phase > 0 && rank.rank == 0) << phase;
        refused = false;
        EXPECT_TRUE(call(size));
      }
    }
    EXPECT_EQ(f.stats().recordings, 3);
  });
}

template <typename Options, typename Change>
std::uint64_t digest_after(const Change& change) {
  Options options;
  if constexpr (std::is_same_v<Options, CompileOptions>) {
    options.inputs = {{}};
    options.outputs = {{}};
    options.buckets = {{}};
    options.axes = {{}};
    options.keys = {{}};
  }
  change(options);
  return digest_of(options).value();
}

TEST(GroupOptionsTest, OutputsThatLieApartAreRefused) {
  auto groups = make_thread_groups(1);
  ContextOptions options{.outputs_lie_apart = true};
  options.group = std::move(groups[0]);
  try {
    const Context context(Device::host(), options);
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(std::string(error.message()), HasSubstr("outputs_lie_apart"));
  }
}

TEST(OptionsDigestTest, EachOptionThatCouldLeadRanksApartCounts) {
  using Change = std::function<void(CompileOptions&)>;
  const std::vector<Change> changes = {
      [](CompileOptions&) {},
      [](CompileOptions& o) { o.inputs.emplace_back(); },
      [](CompileOptions& o) { o.inputs[0].is_static = true; },
      [](CompileOptions& o) { o.inputs[0].alignment = 32; },
      [](CompileOptions& o) { o.inputs[0].is_mutated = true; },
      [](CompileOptions& o) { o.inputs[0].tolerance = 1; },
      [](CompileOptions& o) { o.inputs[0].rebind = Rebind::kAuto; },
      [](CompileOptions& o) {
        o.inputs[0].dynamic = {{0, "n"}};
      },
      [](CompileOptions& o) {
        o.inputs[0].dynamic = {{1, "n"}};
      },
      [](CompileOptions& o) {
        o.inputs[0].dynamic = {{0, "m"}};
      },
      [](CompileOptions& o) { o.inputs[0].padding.kind = Padding::Kind::kLast; },
      [](CompileOptions& o) { o.inputs[0].padding.value = 1; },
      [](CompileOptions& o) { o.inputs[0].require_contiguous = true; },
      [](CompileOptions& o) { o.buckets.emplace_back(); },
      [](CompileOptions& o) { o.buckets[0].axis = "n"; },
      [](CompileOptions& o) { o.buckets[0].sizes = {4}; },
      [](CompileOptions& o) { o.buckets[0].sizes = {8}; },
      [](CompileOptions& o) { o.buckets[0].above_largest = AboveLargest::kThrow; },
      [](CompileOptions& o) { o.axes[0].name = "n"; },
      [](CompileOptions& o) { o.axes[0].policy = AxisPolicy::kSkip; },
      [](CompileOptions& o) { o.axes[0].sizes = {4}; },
      [](CompileOptions& o) { o.axes[0].multiple_of = 2; },
      [](CompileOptions& o) { o.axes[0].largest = 2; },
      [](CompileOptions& o) { o.axes[0].max_sizes = 2; },
      [](CompileOptions& o) { o.axes[0].at_max_sizes = AtMaxSizes::kEvict; },
      [](CompileOptions& o) { o.axes[0].above_largest = AboveLargest::kThrow; },
      [](CompileOptions& o) { o.axes.emplace_back(); },
      [](CompileOptions& o) { o.keys[0].multiple_of = 2; },
      [](CompileOptions& o) { o.keys.emplace_back(); },
      [](CompileOptions& o) { o.max_waste = 2; },
      [](CompileOptions& o) { o.while_missing = WhileMissing::kRunEagerly; },
      [](CompileOptions& o) { o.outputs.emplace_back(); },
      [](CompileOptions& o) {
        o.outputs[0].dynamic = {{0, "n"}};
      },
      [](CompileOptions& o) { o.outputs[0].tolerance = 1; },
      [](CompileOptions& o) { o.outputs[0].rebind = Rebind::kAuto; },
      [](CompileOptions& o) { o.enabled = false; },
      [](CompileOptions& o) { o.require_graph = true; },
      [](CompileOptions& o) { o.on_static_change = OnStaticChange::kDemote; },
      [](CompileOptions& o) { o.max_static_changes = 5; },
      [](CompileOptions& o) { o.max_recordings = 1; },
      [](CompileOptions& o) { o.verify_first = 1; },
      [](CompileOptions& o) { o.at_limit = AtLimit::kEvict; },
  };
  std::set<std::uint64_t> digests;
  for (std::size_t i = 0; i < changes.size(); ++i)
    EXPECT_TRUE(digests.insert(digest_after<CompileOptions>(changes[i])).second) << "change " << i;

  using ContextChange = std::function<void(ContextOptions&)>;
  const std::vector<ContextChange> of_context = {
      [](ContextOptions&) {},
      [](ContextOptions& o) { o.pools_grow_in_place = true; },
      [](ContextOptions& o) { o.max_recordings = 1; },
      [](ContextOptions& o) { o.max_graph_bytes = 1; },
      [](ContextOptions& o) { o.max_recording_time = std::chrono::microseconds(1); },
      [](ContextOptions& o) { o.at_limit = AtLimit::kEvict; },
      [](ContextOptions& o) { o.checked = true; },
      [](ContextOptions& o) { o.before_first_launch = [](const NewRecording&) {}; },
  };
  digests.clear();
  for (std::size_t i = 0; i < of_context.size(); ++i) {
    EXPECT_TRUE(digests.insert(digest_after<ContextOptions>(of_context[i])).second)
        << "change " << i << " of the context";
  }
}

// They may differ between ranks.
TEST(OptionsDigestTest, NamesAndMemoryDoNotCount) {
  const std::uint64_t plain = digest_after<ContextOptions>([](ContextOptions&) {});
  EXPECT_EQ(plain, digest_after<ContextOptions>([](ContextOptions& o) {
              o.name = "decode-1";
              o.max_bytes = 5;
            }));
  EXPECT_EQ(digest_after<CompileOptions>([](CompileOptions&) {}),
            digest_after<CompileOptions>([](CompileOptions& o) {
              o.inputs[0].name = "shard 1";
              o.outputs[0].name = "shard 1";
            }));
}

}  // namespace
}  // namespace cgtree::testing
