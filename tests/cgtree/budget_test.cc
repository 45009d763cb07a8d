// Budgets of graphs, time and memory: the order of evictions, the recordings that stay, and right
// values throughout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include "allocator/device/device_memory.h"
#include "base/error.h"
#include "cgtree/record/graph_bytes.h"
#include "cgtree/record/recording.h"
#include "cgtree/values/eager_break.h"
#include "tests/support/captured_log.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;

// Two kernels and the root node: a graph has three nodes.
constexpr std::size_t kGraphBytes = graph_bytes_of_chain(3);
constexpr std::int64_t kMiB = 1 << 20;

Tensor quadrupled(Tensor x) {
  return affine(affine(x, 2, 0), 2, 0);
}

class BudgetTest : public TreeTest {
 protected:
  using F = CompiledFunction<Tensor(Tensor)>;

  void call_with_size(const F& f, std::int64_t size) {
    const std::vector<float> x = random_floats(size);
    EXPECT_EQ(values(f(tensor({size}, x))), affine_of(x, 4, 0));
  }
  void record(const F& f, std::int64_t size) {
    call_with_size(f, size);
    call_with_size(f, size);
  }
  // Returns true if the next call would be a replay.
  bool is_recorded(const F& f, std::int64_t size) {
    return f.explain(random_tensor({size})).outcome == Outcome::kReplay;
  }
  static std::uint64_t skips(const F& f, SkipReason reason) {
    return f.stats().skips[static_cast<int>(reason)];
  }

  CapturedLog warnings_;
};
CGTREE_ON_ALL_DEVICES(BudgetTest);

TEST_P(BudgetTest, BytesOfGraphsAreCountedAndTheLeastRecentlyUsedGoFirst) {
  make_context({.max_graph_bytes = 2 * kGraphBytes, .at_limit = AtLimit::kEvict});
  const F f = compile(context(), "f", quadrupled);
  record(f, 2);
  record(f, 3);
  EXPECT_EQ(stats().graph_bytes, 2 * kGraphBytes);
  call_with_size(f, 2);

  record(f, 4);

  EXPECT_EQ(stats().graph_bytes, 2 * kGraphBytes);
  EXPECT_TRUE(is_recorded(f, 2));
  EXPECT_FALSE(is_recorded(f, 3));
  EXPECT_TRUE(is_recorded(f, 4));
  EXPECT_EQ(f.stats().evictions, 1u);
  validate();
}

TEST_P(BudgetTest, TheLeastRecentlyUsedGoesWhateverFollowedIt) {
  make_context({.max_recordings = 2, .at_limit = AtLimit::kEvict});
  const F f = compile(context(), "f", quadrupled);
  const F g = compile(context(), "g", quadrupled);
  for (int call = 0; call < 3; ++call) {
    const Tensor y = f(random_tensor({2}));
    (void)g(y);  // recorded after f, and used after f
  }

  record(f, 3);

  EXPECT_FALSE(is_recorded(f, 2));
  EXPECT_EQ(g.stats().evictions, 0u);
  EXPECT_EQ(f.stats().evictions, 1u);
  validate();
}

// The limit is not reached yet at the decision to record.
TEST_P(BudgetTest, TheNewestStaysWhereAllOthersAreFrozen) {
  make_context({.max_graph_bytes = kGraphBytes + 1, .at_limit = AtLimit::kEvict});
  F frozen = compile(context(), "frozen", quadrupled);
  const F f = compile(context(), "f", quadrupled);
  record(frozen, 2);
  frozen.freeze();

  record(f, 3);

  EXPECT_TRUE(is_recorded(frozen, 2));
  EXPECT_TRUE(is_recorded(f, 3));
  EXPECT_EQ(f.stats().evictions, 0u);
  validate();
}

TEST_P(BudgetTest, WhereGraphsMayTakeNoMoreTheRestRunsEagerly) {
  make_context({.max_graph_bytes = kGraphBytes});
  const F f = compile(context(), "f", quadrupled);
  record(f, 2);

  for (int call = 0; call < 3; ++call)
    call_with_size(f, 3);

  EXPECT_EQ(skips(f, SkipReason::kGraphBytesLimit), 2u);
  EXPECT_EQ(warnings_.lines().size(), 1u);
  EXPECT_TRUE(is_recorded(f, 2));
}

TEST_P(BudgetTest, AGraphThatAloneIsTooLargeIsRecordedOnceAndNeverAgain) {
  make_context({.max_graph_bytes = kGraphBytes - 1, .at_limit = AtLimit::kEvict});
  const F f = compile(context(), "f", quadrupled);

  for (int call = 0; call < 5; ++call)
    call_with_size(f, 2);

  EXPECT_EQ(f.stats().recordings, 1u);
  EXPECT_EQ(skips(f, SkipReason::kGraphBytesLimit), 3u);
  EXPECT_EQ(recording_count(), 0u);
}

TEST_P(BudgetTest, ABudgetOfZeroGraphsNothing) {
  for (const ContextOptions& options :
       {ContextOptions{.max_recordings = 0}, ContextOptions{.max_graph_bytes = 0},
        ContextOptions{.max_recording_time = std::chrono::microseconds(0)}}) {
    make_context(options);
    const F f = compile(context(), "f", quadrupled);
    for (int call = 0; call < 4; ++call)
      call_with_size(f, 2);
    EXPECT_EQ(f.stats().replays, 0u);
    EXPECT_EQ(recording_count(), 0u);
  }
}

TEST_P(BudgetTest, OnceTheTimeIsSpentWhatIsRecordedIsReplayedAndNothingElseIs) {
  // A capture takes longer than the budget, a warm-up far less.
  constexpr std::chrono::milliseconds kBudget(2000);
  make_context({.max_recording_time = kBudget});
  const F f = compile(context(), "f", [=](Tensor x) {
    if (current_stream().is_capturing()) std::this_thread::sleep_for(kBudget);
    return quadrupled(x);
  });
  record(f, 2);
  EXPECT_GE(stats().recording_time, kBudget);

  call_with_size(f, 2);
  call_with_size(f, 3);

  EXPECT_EQ(f.stats().replays, 1u);
  EXPECT_EQ(f.stats().warm_ups, 1u);
  EXPECT_EQ(skips(f, SkipReason::kTimeLimit), 1u);
}

// The shapes grow, and each needs separate segments.
TEST_P(BudgetTest, WhereMemoryIsShortRecordingsGoAndCallsSucceed) {
  const auto largest_alone = [&] {
    make_context({});
    record(compile(context(), "f", quadrupled), 5 * kMiB);
    return stats().pool_reserved_bytes;
  }();
  make_context({.max_bytes = largest_alone, .at_limit = AtLimit::kEvict});
  const F f = compile(context(), "f", quadrupled);
  for (std::int64_t size = 1; size <= 5; ++size) {
    record(f, size * kMiB);
    call_with_size(f, size * kMiB);
    validate();
  }

  // Pools that grow in place keep all recordings in one range, as large as the largest needs.
  EXPECT_EQ(f.stats().evictions > 0, !pools_grow_in_place());
  EXPECT_EQ(f.stats().skipped(), 0u);
  EXPECT_EQ(f.stats().replays, 5u);
  EXPECT_LE(stats().pool_reserved_bytes, largest_alone);
  EXPECT_TRUE(is_recorded(f, 5 * kMiB));
}

// Memory in the device's cache is out of reach for allocations outside cgtree.
TEST_P(BudgetTest, TrimGivesTheCacheOfTheDeviceBackWhereThatIsAskedFor) {
  F f = compile(context(), "f", quadrupled);
  record(f, 3);
  call_with_size(f, 5 * kMiB);  // a warm-up
  (void)context().trim();
  const int held = segments_->held();

  (void)context().trim(/*to_device=*/true);

  if (!pools_grow_in_place()) {
    EXPECT_LT(segments_->held(), held);
  }
  EXPECT_TRUE(is_recorded(f, 3));
}

TEST_P(BudgetTest, TrimGivesBackWhatNothingUses) {
  F f = compile(context(), "f", quadrupled);
  {
    const F g = compile(context(), "g", quadrupled);
    record(g, 5 * kMiB);
  }
  record(f, 3);
  const std::size_t before = stats().pool_reserved_bytes;

  const std::size_t given_back = context().trim();

  EXPECT_EQ(stats().pool_reserved_bytes, before - given_back);
  if (!pools_grow_in_place()) {
    EXPECT_GE(given_back, static_cast<std::size_t>(5 * kMiB) * sizeof(float));
  }
  validate();
  const std::uint64_t replays = f.stats().replays;
  call_with_size(f, 3);
  EXPECT_EQ(f.stats().replays, replays + 1);
}

// Uses scratch memory of as many MiB as the input has elements.
Tensor doubled_with_scratch(Tensor x) {
  (void)empty({x.dim(0) * kMiB}, DType::kUInt8);
  return affine(x, 2, 0);
}

// The recording has two pieces of memory, in a segment each.
TEST_P(BudgetTest, TrimKeepsAllThatRecordingsReadAndWrite) {
  const F f = compile(context(), "f", [](Tensor x) {
    (void)doubled_with_scratch(x);
    return empty({11 * kMiB}, DType::kUInt8);
  });
  for (int call = 0; call < 2; ++call)
    (void)f(random_tensor({12}));

  (void)context().trim();

  EXPECT_GE(stats().pool_reserved_bytes, static_cast<std::size_t>((12 + 11) * kMiB));
  EXPECT_EQ(context().trim(), 0u);
  (void)f(random_tensor({12}));
  EXPECT_EQ(f.stats().replays, 1u);
}

// No recording fits into the memory of another; evicting the first two frees the missing memory.
TEST_P(BudgetTest, AsManyRecordingsGoAsTheMissingMemoryTakes) {
  if (pools_grow_in_place()) GTEST_SKIP() << "all lie in one range, which is given back as a whole";
  const auto record_all = [&](const F& f) {
    for (const std::int64_t size : {12, 24, 36}) {
      for (int call = 0; call < 2; ++call)
        (void)f(random_tensor({size}));
    }
  };
  const std::size_t budget = [&] {
    make_context({});
    record_all(compile(context(), "f", doubled_with_scratch));
    return stats().pool_reserved_bytes + 8 * kMiB;
  }();
  make_context({.max_bytes = budget, .at_limit = AtLimit::kEvict});
  const F f = compile(context(), "f", doubled_with_scratch);
  record_all(f);
  const F g = compile(context(), "g", quadrupled);
  record(g, 2);
  ASSERT_EQ(f.stats().evictions, 0u);
  (void)context().trim();
  const std::size_t asked = budget - stats().pool_reserved_bytes + 20 * kMiB;

  const Tensor made =
      context().eager([&] { return empty({static_cast<std::int64_t>(asked)}, DType::kUInt8); });

  EXPECT_GE(f.stats().evictions, 2u);
  EXPECT_TRUE(is_recorded(g, 2));
}

// Its held outputs keep their values.
TEST_P(BudgetTest, TheRecordingThatRanLastGoesLast) {
  make_context({.max_bytes = 60 * kMiB, .at_limit = AtLimit::kEvict});
  const F f = compile(context(), "f", doubled_with_scratch);
  const F g = compile(context(), "g", doubled_with_scratch);
  for (int call = 0; call < 2; ++call)
    (void)f(random_tensor({24}));
  for (int call = 0; call < 2; ++call)
    (void)g(random_tensor({26}));
  const std::vector<float> x = random_floats(26);
  const Tensor held = g(tensor({26}, x));
  const auto make = [&](std::int64_t bytes) {
    return context().eager([&] { return empty({bytes}, DType::kUInt8); });
  };

  const Tensor one = make(20 * kMiB);
  EXPECT_EQ(f.stats().evictions, pools_grow_in_place() ? 0u : 1u);
  EXPECT_EQ(g.stats().evictions, 0u);
  const Tensor two = make(20 * kMiB);

  EXPECT_EQ(f.stats().evictions, 1u);
  EXPECT_EQ(g.stats().evictions, 1u);
  EXPECT_EQ(values(held), affine_of(x, 2, 0));
  validate();
}

// The output is held by the caller, or by the recording itself.
TEST_P(BudgetTest, AFunctionGetsTheScratchMemoryOfTheOneBeforeItWhoseOutputIsHeld) {
  if (pools_grow_in_place()) GTEST_SKIP() << "all scratch memory is one range, which grows";
  for (const bool keeps : {false, true}) {
    make_context({.max_bytes = 80 * kMiB, .at_limit = AtLimit::kEvict});
    Tensor kept;
    const F make = compile(context(), "make", [](Tensor x) { return affine(x, 3, 0); });
    const F f = compile(context(), "f", [&](Tensor x) {
      (void)empty({36 * kMiB}, DType::kUInt8);
      return keeps ? add(affine(x, 2, 0), kept) : affine(x, 2, 0);
    });
    const F g = compile(context(), "g", [](Tensor y) {
      (void)empty({60 * kMiB}, DType::kUInt8);
      return affine(y, 5, 0);
    });
    const std::vector<float> x = random_floats(4);
    if (keeps) kept = make(tensor({4}, x));
    for (int call = 0; call < 2; ++call)
      (void)f(tensor({4}, x));
    kept = Tensor();  // then only the recording holds it
    const Tensor y = keeps ? Tensor() : f(tensor({4}, x));
    if (keeps) (void)f(tensor({4}, x));

    const Tensor z = g(keeps ? tensor({4}, x) : y);

    EXPECT_EQ(values(z), affine_of(x, keeps ? 5 : 10, 0));
    EXPECT_EQ(f.stats().evictions, 1u);
    if (!keeps) {
      EXPECT_EQ(values(y), affine_of(x, 2, 0));
    }
    EXPECT_EQ(f.stats().replays, 1u);
    validate();
  }
}

// A recording also has a copy of its input, which a warm-up does not make: the copy must not be cut
// from the large piece.
TEST_P(BudgetTest, ARecordingNeedsTheLargePieceOfItsWarmUpOnce) {
  // Mapped pages are larger than the segments of eager memory.
  for (const std::int64_t budget : {pools_grow_in_place() ? 38 : 37, 54}) {
    make_context({.max_bytes = static_cast<std::size_t>(budget * kMiB)});
    const F f = compile(context(), "f", [](Tensor x) {
      (void)empty({33 * kMiB}, DType::kUInt8);
      return affine(x, 2, 0);
    });
    for (int call = 0; call < 4; ++call) {
      const std::vector<float> x = random_floats(33);
      EXPECT_EQ(values(f(tensor({33}, x))), affine_of(x, 2, 0));
    }
    EXPECT_EQ(f.stats().recordings, 1u);
    EXPECT_EQ(f.stats().replays, 2u);
    validate();
  }
  make_context({});
  const F f = compile(context(), "f", doubled_with_scratch);
  for (int call = 0; call < 3; ++call)
    (void)f(random_tensor({36}));
  EXPECT_LE(stats().pool_reserved_bytes, static_cast<std::size_t>(44 * kMiB));
}

// The memory that g lacks is a table of the recording that is evicted.
TEST_P(BudgetTest, MemoryKeptByAnEvictedRecordingServesTheWarmUpThatNeedsIt) {
  make_context({.max_bytes = 60 * kMiB, .at_limit = AtLimit::kEvict});
  Tensor table;
  const F f = compile(context(), "f", [&](Tensor x) {
    if (!table.defined()) table = empty({36 * kMiB}, DType::kUInt8);
    (void)table.data();
    return affine(x, 2, 0);
  });
  const F g = compile(context(), "g", [](Tensor x) {
    (void)empty({44 * kMiB}, DType::kUInt8);
    return affine(x, 3, 0);
  });
  for (int call = 0; call < 3; ++call)
    (void)f(random_tensor({4}));
  table = Tensor();  // only the recording holds it
  const std::vector<float> x = random_floats(4);

  EXPECT_EQ(values(g(tensor({4}, x))), affine_of(x, 3, 0));

  EXPECT_EQ(f.stats().evictions, 1u);
  EXPECT_EQ(g.stats().warm_ups, 1u);
  validate();
}

// The side stream may still use memory that the step releases.
TEST_P(BudgetTest, MemoryUsedOnASideStreamIsReleasedAfterItsJoin) {
  make_context({.max_bytes = 60 * kMiB, .at_limit = AtLimit::kEvict});
  Tensor table;
  const F f = compile(context(), "f", [&](Tensor x) {
    if (!table.defined()) table = empty({9 * kMiB}, DType::kFloat32);
    return affine(x, 2, 0);
  });
  (void)f(random_tensor({4}));
  const Stream side(device(), StreamKind::kNonBlocking);
  bool is_refused = false;
  const F g = compile(context(), "g", [&](Tensor x) {
    const StreamRef main = current_stream();
    side.ref().wait_for(main);
    {
      const StreamScope scope(side);
      update(table.slice(0, 0, 4096), 1, 0);  // may still be waiting to run
    }
    table = Tensor();
    try {
      (void)empty({44 * kMiB}, DType::kUInt8);
    } catch (const OutOfMemory&) {
      is_refused = true;
    }
    main.wait_for(side);
    const Tensor scratch = empty({44 * kMiB}, DType::kUInt8);
    return affine(x, 3, 0);
  });
  const std::vector<float> x = random_floats(4);

  EXPECT_EQ(values(g(tensor({4}, x))), affine_of(x, 3, 0));

  EXPECT_TRUE(is_refused);
}

// A segment that the output region releases is used by the scratch region, and the table that a
// warm-up keeps has the address of an earlier output.
TEST_P(BudgetTest, ASegmentThatComesToAnotherRegionTakesItsSlotsAlong) {
  const auto twice = [](Tensor x) { return affine(x, 2, 0); };
  const auto needed = [&] {
    make_context({});
    (void)compile(context(), "f", twice)(random_tensor({5 * kMiB}));
    return stats().pool_reserved_bytes;
  }();
  make_context({.max_bytes = needed, .at_limit = AtLimit::kEvict});
  const F f = compile(context(), "f", twice);
  const Tensor x = random_tensor({5 * kMiB});
  (void)f(x);
  Tensor kept;
  const auto g = compile(context(), "g", [&](Tensor input) {
    const Tensor scratch = affine(input, 1, 0);
    kept = affine(input, 3, 0);
  });

  g(x);
  EXPECT_EQ(values(kept), affine_of(values(x), 3, 0));
  validate();
  kept = Tensor();  // returns the block to the pool of its region
  validate();
}

TEST_P(BudgetTest, AnEvictedRecordingOnItsWayIsFinished) {
  make_context({.max_recordings = 1, .at_limit = AtLimit::kEvict});
  const F f = compile(context(), "f", [](Tensor x) {
    for (int i = 0; i < 200; ++i)
      x = affine(x, 1, 1);
    return x;
  });
  const F g = compile(context(), "g", quadrupled);
  const std::vector<float> x = random_floats(1 << 16);
  for (int call = 0; call < 2; ++call)
    (void)f(tensor({1 << 16}, x));
  const Tensor given = tensor({1 << 16}, x);
  const Tensor small = random_tensor({2});
  const std::vector<float> small_values = values(small);
  (void)g(small);

  const Tensor y = f(given);
  const Tensor z = g(small);  // evicts f's recording while it runs

  EXPECT_EQ(f.stats().evictions, 1u);
  std::vector<float> expected = x;
  for (float& value : expected)
    for (int i = 0; i < 200; ++i)
      value = 1 * value + 1;
  EXPECT_EQ(values(y), expected);
  EXPECT_EQ(values(z), affine_of(small_values, 4, 0));
}

// The log reports the eviction while another thread is inside the context; the context's owner
// makes a call at that moment.
TEST_P(BudgetTest, AContextThatGivesWayToAnotherTurnsItsCallerNotAway) {
  const auto shared = DeviceMemory::shared(device());
  Context idle(device(), {.at_limit = AtLimit::kEvict});
  Context needy(device());
  const F f = compile(idle, "f", quadrupled);
  const F g = compile(needy, "g", quadrupled);
  record(f, 4 * kMiB);
  const Tensor x = random_tensor({16});
  std::future<Tensor> called;
  set_log_level(LogLevel::kInfo);
  set_log_sink([&](LogLevel, const std::string& line) {
    if (called.valid() || !line.starts_with("evict")) return;
    called = std::async(std::launch::async, [&] { return f(x); });
    called.wait_for(std::chrono::milliseconds(50));
  });
  const std::size_t was = shared->budget().max_bytes();
  shared->budget().set_max_bytes(shared->budget().current() + 28 * kMiB);

  record(g, 4 * kMiB);

  shared->budget().set_max_bytes(was);
  set_log_sink(nullptr);
  set_log_level(LogLevel::kWarn);
  ASSERT_TRUE(called.valid());
  EXPECT_EQ(values(called.get()), affine_of(values(x), 4, 0));
}

// A recorded function owns the last handle of a context, and another context evicts the recording.
TEST_P(BudgetTest, AContextMayEndWhileAnotherTakesMemoryBackFromIt) {
  struct Server {
    std::optional<Context> context;
    std::optional<F> f;
  };
  const auto shared = DeviceMemory::shared(device());
  Context needy(device());
  auto server = std::make_shared<Server>();
  const std::weak_ptr<Server> weak = server;
  server->context.emplace(device(), ContextOptions{.at_limit = AtLimit::kEvict});
  server->f.emplace(compile(*server->context, "f", [weak](Tensor x) {
    const Tensor y = affine(x, 2, 0);
    eager_break([self = weak.lock()](const StepValues&) {});
    return affine(y, 2, 0);
  }));
  record(*server->f, 4 * kMiB);
  server.reset();
  EXPECT_FALSE(weak.expired());
  const std::size_t was = shared->budget().max_bytes();
  shared->budget().set_max_bytes(shared->budget().current() + (1 << 20));

  // Larger than each segment, so that segments must be freed to the device.
  EXPECT_NO_THROW((void)needy.eager([] { return empty({8 * kMiB}, DType::kFloat32); }));

  shared->budget().set_max_bytes(was);
  EXPECT_TRUE(weak.expired());
}

TEST_P(BudgetTest, AContextInNeedGetsWhatAnotherOnTheDeviceDoesNotUse) {
  const auto shared = DeviceMemory::shared(device());
  Context idle(device(), {.at_limit = AtLimit::kEvict});
  Context needy(device());
  const F f = compile(idle, "f", quadrupled);
  const F g = compile(needy, "g", quadrupled);
  record(f, 4 * kMiB);
  const std::size_t before = idle.stats().pool_reserved_bytes;
  const std::size_t was = shared->budget().max_bytes();
  shared->budget().set_max_bytes(shared->budget().current() + (1 << 20));

  record(g, 4 * kMiB);

  shared->budget().set_max_bytes(was);
  EXPECT_EQ(f.stats().evictions, 1u);
  EXPECT_LT(idle.stats().pool_reserved_bytes, before);
  record(f, 4 * kMiB);
}

}  // namespace
}  // namespace cgtree::testing
