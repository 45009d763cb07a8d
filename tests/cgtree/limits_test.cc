// Limits and switches of calls: at each limit the values are right, and one message is logged.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "cgtree/memory/context_memory.h"
#include "tests/support/captured_log.h"
#include "tests/support/inside.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;

class LimitsTest : public TreeTest {
 protected:
  template <typename Function>
  static std::uint64_t skips(const Function& function, SkipReason reason) {
    return function.stats().skips[static_cast<int>(reason)];
  }
  template <typename Function>
  void call_with_size(const Function& f, std::int64_t size) {
    const std::vector<float> x = random_floats(size);
    EXPECT_EQ(values(f(tensor({size}, x))), affine_of(x, 2, 0));
  }

  CapturedLog warnings_;
};
CGTREE_ON_ALL_DEVICES(LimitsTest);

const auto doubled = [](Tensor x) { return affine(x, 2, 0); };

TEST_P(LimitsTest, WhereEvictionIsAllowedTheRecordingUsedLongestAgoGoes) {
  CompiledFunction f =
      compile(context(), "f", doubled, {.max_recordings = 2, .at_limit = AtLimit::kEvict});
  for (const std::int64_t size : {2, 2, 3, 3, 2, 4, 4})  // size 4 evicts size 3
    call_with_size(f, size);
  EXPECT_EQ(f.stats().recordings, 3u);
  EXPECT_EQ(f.stats().evictions, 1u);
  EXPECT_EQ(recording_count(), 2u);

  call_with_size(f, 2);
  EXPECT_EQ(f.stats().recordings, 3u);
  call_with_size(f, 3);  // is warmed up, but must be recorded again
  EXPECT_EQ(f.stats().recordings, 4u);
  EXPECT_EQ(f.stats().skipped(), 0u);
  validate();
}

TEST_P(LimitsTest, OutputsOfAnEvictedRecordingStayWhatTheyAre) {
  CompiledFunction f =
      compile(context(), "f", doubled, {.max_recordings = 1, .at_limit = AtLimit::kEvict});
  const std::vector<float> x = random_floats(3);
  call_with_size(f, 3);
  const Tensor held = f(tensor({3}, x));

  for (const std::int64_t size : {4, 4, 5, 5, 4})
    call_with_size(f, size);

  EXPECT_EQ(values(held), affine_of(x, 2, 0));
  EXPECT_EQ(f.stats().evictions, 3u);
}

// Earlier recordings stay after a failure of the function or of memory.
TEST_P(LimitsTest, ARecordingThatFailsEvictsNothing) {
  bool fails = false;
  CompiledFunction f = compile(context(), "f",
                               [&](Tensor x) {
                                 if (fails) throw std::runtime_error("not now");
                                 return affine(x, 2, 0);
                               },
                               {.max_recordings = 1, .at_limit = AtLimit::kEvict});
  for (const std::int64_t size : {2, 2, 3})
    call_with_size(f, size);
  fails = true;

  EXPECT_THROW(call_with_size(f, 3), std::runtime_error);

  EXPECT_EQ(f.stats().evictions, 0u);
  call_with_size(f, 2);
  EXPECT_EQ(f.stats().replays, 1u);
}

TEST_P(LimitsTest, TheContextEvictsWhateverWasUsedLongestAgo) {
  make_context({.max_recordings = 2, .at_limit = AtLimit::kEvict});
  CompiledFunction f = compile(context(), "f", doubled);
  CompiledFunction g = compile(context(), "g", doubled);
  for (int call = 0; call < 3; ++call)
    call_with_size(f, 2);
  for (int call = 0; call < 3; ++call)
    call_with_size(g, 2);

  call_with_size(g, 3);
  call_with_size(g, 3);

  EXPECT_EQ(f.stats().evictions, 1u);
  EXPECT_EQ(g.stats().evictions, 0u);
  call_with_size(f, 2);
  EXPECT_EQ(f.stats().recordings, 2u);
}

// Acceptance: trees 114.
TEST_P(LimitsTest, WhereALimitThrowsNothingHasHappened) {
  CompiledFunction f =
      compile(context(), "f", doubled, {.max_recordings = 1, .at_limit = AtLimit::kThrow});
  call_with_size(f, 2);
  call_with_size(f, 2);
  call_with_size(f, 3);

  try {
    call_with_size(f, 3);
    FAIL() << "nothing was thrown";
  } catch (const CaptureError& error) {
    EXPECT_THAT(std::string(error.message()), HasSubstr("'f'"));
    EXPECT_THAT(std::string(error.message()), HasSubstr("function_limit"));
  }

  call_with_size(f, 2);
  EXPECT_EQ(f.stats().recordings, 1u);
}

// Row 95 not_fallback: a function skips no call within its limit; the next new call is skipped.
// Acceptance: trees 92, 95.
TEST_P(LimitsTest, AFunctionHasALimitOfItsOwn) {
  CompiledFunction f = compile(context(), "f", [](Tensor, Tensor x) { return affine(x, 2, 0); },
                               {.inputs = {{.is_static = true}}, .max_recordings = 2});
  const Tensor weights[] = {random_tensor({1}), random_tensor({1}), random_tensor({1})};
  const auto call = [&](const Tensor& weight) {
    const std::vector<float> x = random_floats(2);
    EXPECT_EQ(values(f(weight, tensor({2}, x))), affine_of(x, 2, 0));
  };
  for (const int i : {0, 0, 1, 0, 1})
    call(weights[i]);
  EXPECT_EQ(f.stats().skipped(), 0u);

  call(weights[2]);
  call(weights[2]);

  EXPECT_EQ(skips(f, SkipReason::kFunctionLimit), 2u);
  EXPECT_EQ(warnings_.lines().size(), 1u);
}

// A loop with outputs held from call to call may run for any time: new sizes are still recorded.
TEST_P(LimitsTest, NoNumberOfReplaysInARowKeepsAFunctionFromBeingRecorded) {
  CompiledFunction f = compile(context(), "f", doubled);
  Tensor y = random_tensor({2});
  for (int call = 0; call < 5000; ++call)
    y = f(y);

  call_with_size(f, 3);
  call_with_size(f, 3);
  call_with_size(f, 3);

  EXPECT_EQ(f.stats().skipped(), 0u);
  EXPECT_EQ(f.stats().warm_ups, 2u);
  EXPECT_EQ(f.stats().replays + f.stats().recordings, 5001u);
}

TEST_P(LimitsTest, EndlessShapesTakeABoundedNumberOfSlots) {
  make_context({.max_recordings = 4, .at_limit = AtLimit::kEvict});
  CompiledFunction f = compile(context(), "f", doubled);
  Tensor held;
  for (std::int64_t size = 1; size <= 1000; ++size) {
    const std::vector<float> x = random_floats(size);
    (void)f(tensor({size}, x));
    const Tensor y = f(tensor({size}, x));
    EXPECT_EQ(values(y), affine_of(x, 2, 0));
    if (size % 100 == 0) held = y;
  }

  EXPECT_LE(memory_of(context()).slot_count(), 64u);
  validate();
  EXPECT_EQ(values(held).size(), 1000u);
}

// Recycled slots stand for other ranges: the conflicts in recordings must be updated.
TEST_P(LimitsTest, HeldOutputsStayWhatTheyAreWhileSlotsAreRecycled) {
  make_context({.max_recordings = 8, .at_limit = AtLimit::kEvict});
  CompiledFunction f = compile(context(), "f", doubled);
  struct Held {
    Tensor y;
    std::vector<float> expected;
  };
  std::vector<Held> held(6);
  for (int i = 0; i < 1500; ++i) {
    const auto size = static_cast<std::int64_t>(1 + random_() % (i % 3 == 0 ? 1000 : 4) * 16);
    const std::vector<float> x = random_floats(size);
    Held& place = held[random_() % held.size()];
    place = {f(tensor({size}, x)), affine_of(x, 2, 0)};
    if (i % 50 == 0) validate();
    const Held& other = held[random_() % held.size()];
    if (other.y.defined()) {
      EXPECT_EQ(values(other.y), other.expected);
    }
  }
}

TEST_P(LimitsTest, EndlessFunctionsLeaveNothingBehind) {
  for (int i = 0; i < 500; ++i) {
    CompiledFunction f = compile(context(), "f", doubled);
    for (int call = 0; call < 3; ++call)
      call_with_size(f, 1 + i);
  }

  EXPECT_EQ(recording_count(), 0u);
  EXPECT_LE(memory_of(context()).slot_count(), 64u);
  EXPECT_EQ(stats().calls, 1500u);
  EXPECT_EQ(stats().replays, 500u);
}

// An output that a step releases is free at the end of the step.
TEST_P(LimitsTest, OutputsReleasedByStepsDoNotMakeThePoolsGrow) {
  CompiledFunction f = compile(context(), "f", doubled);
  std::size_t settled = 0;
  for (std::int64_t i = 0; i < 20; ++i) {
    Tensor y = f(random_tensor({(1 << 19) + i}));
    CompiledFunction g = compile(context(), "g", [&](Tensor x) {
      y = Tensor();
      return affine(x, 1, 0);
    });
    (void)g(random_tensor({4}));
    if (i == 2) settled = stats().pool_reserved_bytes;
  }

  EXPECT_LE(stats().pool_reserved_bytes, settled);
}

// Rows 110 and 111 cudagraph_min_partition_size_skip_small and _allow_large. Recordings share
// memory that is dead when a call returns. So the largest recording and the held outputs bound the
// pools, not the number of recordings: in any order if pools grow in place, and otherwise if the
// largest comes first, as in precapture(). Without growth in place, blocks of at most 1 MiB are in
// separate segments.
TEST_P(LimitsTest, PoolsOfManyRecordingsAreAsLargeAsTheLargestOfThemNeeds) {
  constexpr std::int64_t kLargest = 10, kUnit = 128 << 10;  // floats: 512 KiB
  const auto step = [](Tensor x) { return affine(affine(affine(x, 1, 1), 1, 1), 1, 1); };
  const auto reserved_after = [&](std::vector<std::int64_t> sizes) {
    make_context({});
    CompiledFunction f = compile(context(), "f", step);
    for (const std::int64_t size : sizes) {
      for (int call = 0; call < 2; ++call)
        (void)f(tensor({size * kUnit}, std::vector<float>(size * kUnit)));
    }
    EXPECT_EQ(f.stats().kept_recordings, sizes.size());
    return stats().pool_reserved_bytes;
  };
  std::vector<std::int64_t> sizes(kLargest);
  std::iota(sizes.begin(), sizes.end(), 1);
  std::shuffle(sizes.begin(), sizes.end(), random_);
  if (!pools_grow_in_place())
    std::ranges::iter_swap(std::ranges::max_element(sizes), sizes.begin());
  const std::size_t alone = reserved_after({kLargest});
  const std::size_t apart = pools_grow_in_place() ? 0 : reserved_after({2});
  const std::size_t all = reserved_after(sizes);
  EXPECT_LE(all, alone + apart);
}

// Rows 97 to 105 cudagraph_annotation_disable, _context_manager, ...
// Acceptance: trees 97.
TEST_P(LimitsTest, NothingIsRecordedOrReplayedUnderNoGraph) {
  CompiledFunction f = compile(context(), "f", doubled);
  {
    const NoGraph no_graph;
    for (int call = 0; call < 3; ++call)
      call_with_size(f, 2);
  }
  EXPECT_EQ(recording_count(), 0u);

  for (int call = 0; call < 3; ++call)
    call_with_size(f, 2);
  EXPECT_EQ(recording_count(), 1u);
  {
    const NoGraph no_graph;
    call_with_size(f, 2);
  }
  EXPECT_EQ(skips(f, SkipReason::kNoGraphScope), 4u);
  EXPECT_EQ(f.stats().replays, 1u);
  EXPECT_TRUE(warnings_.lines().empty());
}

// Rows 106 to 109 cudagraph_annotation_enable, _enable_context_manager.
// Acceptance: trees 106.
TEST_P(LimitsTest, ForceGraphGraphsWhatWasCompiledWithoutAndTheInnermostScopeCounts) {
  CompiledFunction f = compile(context(), "f", doubled, {.enabled = false});
  const NoGraph no_graph;
  {
    const ForceGraph force_graph;
    for (int call = 0; call < 3; ++call)
      call_with_size(f, 2);
    const NoGraph inner;
    call_with_size(f, 2);
  }
  call_with_size(f, 2);

  EXPECT_EQ(f.stats().replays, 1u);
  EXPECT_EQ(skips(f, SkipReason::kNoGraphScope), 2u);
}

// Rows 63 unstable_ptr and 84 static_inputs_address_mutation_log: one error lists all static inputs
// that moved.
// Acceptance: trees 63, 84.
TEST_P(LimitsTest, WhereStaticInputsMustNotMoveAllThatDidAreNamed) {
  CompiledFunction f =
      compile(context(), "f",
              [](Tensor a, Tensor b, Tensor c, Tensor x) { return add(add(a, b), add(c, x)); },
              {.inputs = {{.name = "embedding", .is_static = true},
                          {.name = "kv_cache", .is_static = true},
                          {.is_static = true}},
               .on_static_change = OnStaticChange::kThrow});
  const Tensor a = random_tensor({2}), b = random_tensor({2}), c = random_tensor({2});
  const Tensor other_a = random_tensor({2}), other_c = random_tensor({2});
  for (int call = 0; call < 3; ++call)
    (void)f(a, b, c, random_tensor({2}));

  try {
    (void)f(other_a, b, other_c, random_tensor({2}));
    FAIL() << "nothing was thrown";
  } catch (const CaptureError& error) {
    const std::string message(error.message());
    EXPECT_THAT(message, HasSubstr(fmt::format("static input 0 'embedding': {:#x} recorded, "
                                               "{:#x} given",
                                               a.address(), other_a.address())));
    EXPECT_THAT(message, HasSubstr(fmt::format("static input 2: {:#x} recorded, {:#x} given",
                                               c.address(), other_c.address())));
    EXPECT_THAT(message, ::testing::Not(HasSubstr("kv_cache")));
  }
  (void)f(a, b, c, random_tensor({2}));
  EXPECT_EQ(f.stats().replays, 2u);
}

}  // namespace
}  // namespace cgtree::testing
