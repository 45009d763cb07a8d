// Each surprise of docs/footguns.md: the behaviour of CUDA or of a program, and that of cgtree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <stdexcept>

#include "base/error.h"
#include "cgtree/values/eager_break.h"
#include "extensions/flow/control_flow.h"
#include "interop/device/device_api.h"
#include "interop/device/graph.h"
#include "interop/random/random.h"
#include "interop/tensor/copy.h"
#include "tests/support/captured_log.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;

class FootgunsTest : public TreeTest {
 protected:
  template <typename Function>
  static std::uint64_t skips(const Function& function, SkipReason reason) {
    return function.stats().skips[static_cast<int>(reason)];
  }
};
CGTREE_ON_ALL_DEVICES(FootgunsTest);

TEST_P(FootgunsTest, HostCodeRunsOnlyInTheFirstTwoCalls) {
  int runs = 0;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    ++runs;
    return affine(x, 1, 0);
  });

  for (int call = 0; call < 5; ++call)
    (void)f(random_tensor({3}));

  EXPECT_EQ(runs, 2);
}

TEST_P(FootgunsTest, HostControlFlowIsFrozenWhenRecorded) {
  bool doubles = true;
  CompiledFunction f =
      compile(context(), "f", [&](Tensor x) { return affine(x, doubles ? 2 : 1, 0); });
  const std::vector<float> x = random_floats(3);
  for (int call = 0; call < 2; ++call)
    (void)f(tensor({3}, x));

  doubles = false;

  EXPECT_EQ(values(f(tensor({3}, x))), affine_of(x, 2, 0));
}

// On the outer stream, the work would run whether the branch is taken or not.
TEST_P(FootgunsTest, WorkThatABodyLaunchesOnTheStreamOutsideOfItIsNotRecorded) {
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor taken) {
    Tensor y = affine(x, 1, 0);
    const StreamRef outside = current_stream();
    branch(taken, [&] {
      const StreamScope scope(outside);
      update(y, 2, 0);
    });
    return y;
  });
  const auto flag = [&](std::int32_t value) {
    return from_host(Shape(), std::span<const std::int32_t>(&value, 1), device());
  };
  for (int i = 0; i < 5; ++i) {
    const std::vector<float> x = random_floats(8);
    EXPECT_EQ(values(f(tensor({8}, x), flag(i % 2))), affine_of(x, i % 2 != 0 ? 2 : 1, 0)) << i;
  }
  EXPECT_EQ(f.stats().recordings, 0u);
  EXPECT_EQ(skips(f, SkipReason::kCaptureFailed), 4u);
  EXPECT_THAT(to_string(f.explain(random_tensor({8}), flag(0))),
              HasSubstr("then() of branch() launches work on a stream of the step outside"));
}

TEST_P(FootgunsTest, AValueBesideTheRoundedKeyIsThatOfTheRecordedCall) {
  std::int64_t k = 0;
  const auto f = compile(context(), "f",
                         [&](Tensor x) {
                           return affine(x, static_cast<float>(k),
                                         static_cast<float>(current_key().number("k")));
                         },
                         {.keys = {{.name = "k", .policy = AxisPolicy::kPowersOfTwo}}});
  const std::vector<float> x = random_floats(3);
  for (const std::int64_t next : {3, 3, 4}) {
    k = next;
    EXPECT_EQ(values(f.keyed({{"k", k}})(tensor({3}, x))), affine_of(x, 3, 4));
  }
}

TEST_P(FootgunsTest, WhatABreakCapturesIsThatOfTheRecordedCall) {
  int given = 0, captured = 0, passed = 0;
  const auto f = compile(context(), "f", [&](Tensor x, Tensor) {
    eager_break([now = given, &captured, &passed](const StepValues& values) {
      captured = now;
      passed = values.get<int>(1);
    });
    return affine(x, 1, 0);
  });
  const Tensor x = random_tensor({3});
  for (given = 1; given <= 4; ++given) {
    (void)f(x, step_block(given));
    EXPECT_EQ(captured, std::min(given, 2));  // the recording repeats the second call
    EXPECT_EQ(passed, given);
  }
}

TEST_P(FootgunsTest, AnEnginesOwnPointerToWhatIsCopiedIsRefused) {
  const Tensor tokens = random_tensor({4}), cache = random_tensor({4});
  Steps steps(context(), "decode", {.bindings = {{.name = "tokens", .is_copied = true}, {}}});
  const Binding given[] = {{tokens.data(), tokens.bytes()}, {cache.data(), cache.bytes()}};
  const auto call = [&] {
    for (Step step = steps.begin({}, given); step.must_run(); step.end()) {
      const StreamRef stream = current_stream();
      check(stream.api().copy(stream.handle(), cache.data(), tokens.data(), cache.bytes()), "copy");
    }
  };
  call();

  EXPECT_THAT(call, ::testing::ThrowsMessage<InvalidArgument>(::testing::AllOf(
                        HasSubstr("binding 0 'tokens'"), HasSubstr("step.address(0)"))));
}

TEST_P(FootgunsTest, WhatAnEngineNeitherBindsNorNamesIsNotChecked) {
  Steps steps(context(), "decode");
  const Tensor before = tensor({1}, std::vector<float>{0});
  const Tensor after = tensor({1}, std::vector<float>{0});
  Tensor cache = before;
  const auto call = [&] {
    for (Step step = steps.begin({}, {}); step.must_run(); step.end())
      update(cache, 1, 1);
  };
  call();
  call();

  cache = after;
  call();

  EXPECT_EQ(values(before), std::vector<float>{3});
  EXPECT_EQ(values(after), std::vector<float>{0});
}

TEST_P(FootgunsTest, AnotherShapeIsAnotherRecording) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) {
    return affine(x, static_cast<float>(x.elements()), 0);  // a value computed from the shape
  });

  for (const std::int64_t size : {3, 4, 3, 4, 3, 4}) {
    const std::vector<float> x = random_floats(size);
    EXPECT_EQ(values(f(tensor({size}, x))), affine_of(x, static_cast<float>(size), 0));
  }
  EXPECT_EQ(f.stats().recordings, 2u);
}

TEST_P(FootgunsTest, ATensorCapturedByAClosureIsReadWhereItWas) {
  const Tensor weights = random_tensor({3});
  Tensor used = weights;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) { return add(x, used); });
  const Tensor x = tensor({3}, std::vector<float>(3, 0));
  for (int call = 0; call < 2; ++call)
    (void)f(x);
  const std::vector<float> before = values(weights);

  used = random_tensor({3});  // another address, which a recording does not read
  EXPECT_EQ(values(f(x)), before);
  weights.copy_from<float>(affine_of(before, 2, 0));  // other contents at the recorded address
  EXPECT_EQ(values(f(x)), affine_of(before, 2, 0));
}

TEST_P(FootgunsTest, AGeneratorCapturedByAClosureStaysTheOneThatWasRecorded) {
  Generator used(random_());
  const Generator recorded = used;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) { return uniform(x.shape(), used); });
  const Tensor x = random_tensor({3});
  for (int call = 0; call < 2; ++call)
    (void)f(x);
  used.set_seed(7);
  const std::vector<float> expected = values(f(x));

  used = Generator(8);  // another generator, which a recording does not use
  Generator(recorded).set_seed(7);
  EXPECT_EQ(values(f(x)), expected);
}

TEST_P(FootgunsTest, AMovedStaticInputGetsARecordingOfItsOwn) {
  CompiledFunction f = compile(context(), "f", [](Tensor x, Tensor w) { return add(x, w); },
                               {.inputs = {{}, {.is_static = true}}});
  const Tensor zero = tensor({3}, std::vector<float>(3, 0));
  const Tensor first = random_tensor({3});
  const Tensor second = random_tensor({3});

  for (int call = 0; call < 4; ++call) {
    EXPECT_EQ(values(f(zero, first)), values(first));
    EXPECT_EQ(values(f(zero, second)), values(second));
  }
  EXPECT_EQ(f.stats().recordings, 2u);
}

TEST_P(FootgunsTest, NewContentsOfAStaticInputAreSeen) {
  CompiledFunction f = compile(context(), "f", [](Tensor w) { return affine(w, 1, 0); },
                               {.inputs = {{.is_static = true}}});
  const Tensor weights = random_tensor({3});

  for (int call = 0; call < 4; ++call) {
    const std::vector<float> contents = random_floats(3);
    weights.copy_from<float>(contents);
    EXPECT_EQ(values(f(weights)), contents);
  }
  EXPECT_EQ(f.stats().recordings, 1u);
}

// The function copies as many bytes as there are elements, starting at the first element.
TEST_P(FootgunsTest, AnInputWithGapsIsWithoutThemWhereItIsPadded) {
  const auto step = [](Tensor x) {
    Tensor y = empty(x.shape(), x.dtype());
    const StreamRef stream = current_stream();
    check(stream.api().copy(stream.handle(), y.data(), x.data(), y.bytes()), "copy");
    return y;
  };
  CompileOptions options = {.inputs = {{.name = "x", .dynamic = {{0, "batch"}}}},
                            .buckets = {{"batch", {4}}},
                            .outputs = {{.dynamic = {{0, "batch"}}}}};
  CompiledFunction f = compile(context(), "f", step, options);
  const Tensor table = tensor({3, 4}, std::vector<float>{1, 2, 0, 0, 3, 4, 0, 0, 5, 6, 0, 0});
  const Tensor x = table.slice(1, 0, 2);
  const std::vector<float> right = {1, 2, 3, 4, 5, 6};
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(values(f(x)), right);
  {
    const NoGraph no_graph;
    EXPECT_NE(values(f(x)), right);
  }

  options.inputs[0].require_contiguous = true;
  CompiledFunction g = compile(context(), "g", step, options);
  const auto is_named = ::testing::ThrowsMessage<InvalidArgument>(::testing::AllOf(
      HasSubstr("input 0 'x' of 'g'"), HasSubstr("{3, 2}"), HasSubstr("copy_elements()")));
  EXPECT_THAT([&] { (void)g(x); }, is_named);
  const Tensor dense = tensor({3, 2}, right);
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(values(g(dense)), right);
  EXPECT_THAT([&] { (void)g(x); }, is_named) << "also where a recording would fit";
  const NoGraph no_graph;
  EXPECT_THAT([&] { (void)g(x); }, is_named);
}

TEST_P(FootgunsTest, RowsOfPaddingAreRowsToo) {
  for (const bool are_integers : {false, true}) {
    const auto f =
        compile(context(), "f",
                [](Tensor rows, Tensor cache) { update(cache.slice(0, 0, rows.dim(0)), 0, 5); },
                {.inputs = {{.dynamic = {{0, "n"}}}, {.is_static = true, .is_mutated = true}},
                 .buckets = {{"n", {4}}}});
    const Tensor cache = tensor({4}, std::vector<float>(4, 7));
    const Tensor rows = are_integers
                            ? from_host<std::int32_t>({3}, std::vector<std::int32_t>(3), device())
                            : random_tensor({3});
    for (int call = 0; call < 3; ++call)
      f(rows, cache);
    EXPECT_EQ(values(cache)[3], are_integers ? 7 : 5);
    EXPECT_EQ(f.stats().skipped(SkipReason::kUnsafePadding), are_integers ? 3u : 0u);
  }
}

TEST_P(FootgunsTest, AFunctionInsideAPaddedOneSeesItsOwnPadding) {
  const auto last_row = [](Tensor x) { return affine(x.slice(0, x.dim(0) - 1, x.dim(0)), 1, 0); };
  for (const char* const axis : {"n", "by its size"}) {
    const auto inner = compile(context(), "inner", last_row,
                               {.inputs = {{.dynamic = {{0, axis}}, .padding = Padding::of(5)}},
                                .buckets = {{axis, {4}}}});
    const auto outer = compile(context(), "outer",
                               [&](Tensor x) {
                                 return std::array{inner(x), last_row(x)};
                               },
                               {.inputs = {{.dynamic = {{0, "n"}}, .padding = Padding::zeros()}},
                                .buckets = {{"n", {4}}}});
    for (int call = 0; call < 3; ++call) {
      const auto [of_inner, of_outer] = outer(random_tensor({3}));
      EXPECT_EQ(values(of_inner)[0], 5);
      EXPECT_EQ(values(of_outer)[0], 0);
    }
  }
}

TEST_P(FootgunsTest, AWriteIntoAnUndeclaredInputGoesToTheCopy) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) {
    update(x, 1, 1);  // although is_mutated is not set
    return affine(x, 1, 0);
  });
  const Tensor x = tensor({1}, std::vector<float>{0});
  for (int call = 0; call < 2; ++call)
    (void)f(x);
  const std::vector<float> before = values(x);

  EXPECT_EQ(values(f(x)), affine_of(before, 1, 1));
  EXPECT_EQ(values(x), before);
}

TEST_P(FootgunsTest, AWriteIntoADeclaredEagerInputIsCopiedBack) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { update(x, 1, 1); },
                               {.inputs = {{.is_mutated = true}}});
  const Tensor x = tensor({1}, std::vector<float>{0});

  for (int call = 1; call <= 3; ++call) {
    f(x);
    EXPECT_EQ(values(x)[0], call);
  }
  EXPECT_EQ(f.stats().replays, 1u);
}

TEST_P(FootgunsTest, InputsThatOverlapAndAreWrittenRunEagerly) {
  CompiledFunction f = compile(context(), "f",
                               [](Tensor x, Tensor y) {
                                 update(x, 1, 1);
                                 return affine(y, 1, 0);
                               },
                               {.inputs = {{.is_mutated = true}}});
  const Tensor x = tensor({1}, std::vector<float>{0});

  for (int call = 1; call <= 3; ++call)
    EXPECT_EQ(values(f(x, x))[0], call);
  EXPECT_EQ(skips(f, SkipReason::kOverlappingInputs), 3u);
}

TEST_P(FootgunsTest, AnOutputThatIsAnEagerInputIsTheCallersTensor) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return x; });
  const Tensor x = random_tensor({3});

  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(f(x).storage(), x.storage());
  EXPECT_EQ(f.stats().replays, 1u);
}

// Acceptance: pools unpinned_memory_use.
TEST_P(FootgunsTest, HostMemoryBehindACopyIsReadAtReplay) {
  std::vector<float> contents = random_floats(3);
  const Tensor source = from_host<float>({3}, contents, Device::host());
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    const Tensor copied = empty({3}, DType::kFloat32);
    copy(copied, source);
    return add(x, copied);
  });
  const Tensor zero = tensor({3}, std::vector<float>(3, 0));
  for (int call = 0; call < 2; ++call)
    (void)f(zero);

  contents = random_floats(3);
  source.copy_from<float>(contents);

  EXPECT_EQ(values(f(zero)), contents);
}

TEST_P(FootgunsTest, ACopyFromATemporaryOfTheHostIsWarnedOf) {
  std::vector<std::unique_ptr<std::vector<float>>> temporaries;  // freed, in a real program
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    const Tensor copied = empty({3}, DType::kFloat32);
    temporaries.push_back(std::make_unique<std::vector<float>>(3, 1));
    const StreamRef stream = current_stream();
    check(stream.api().copy(stream.handle(), copied.data(), temporaries.back()->data(), 12),
          "copy");
    return add(x, copied);
  });
  const Tensor zero = tensor({3}, std::vector<float>(3, 0));
  const CapturedLog log(LogLevel::kWarn);
  for (int call = 0; call < 3; ++call)
    (void)f(zero);
  context().synchronize();

  ASSERT_EQ(log.lines().size(), 1u);
  EXPECT_THAT(log.lines()[0], HasSubstr("host_memory function=f"));
  *temporaries.back() = {5, 6, 7};
  EXPECT_EQ(values(f(zero)), (std::vector<float>{5, 6, 7}));
}

TEST_P(FootgunsTest, AnOutputTouchedAfterMarkStepThrows) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 1, 0); });
  const Tensor y = f(random_tensor({3}));
  const Tensor view = y.slice(0, 1, 2);

  context().mark_step();

  EXPECT_THROW((void)y.data(), StaleTensor);
  EXPECT_THROW((void)view.data(), StaleTensor);
  EXPECT_THROW((void)f(y), StaleTensor);
}

TEST_P(FootgunsTest, ResultsThatAreKeptForEverAreCopied) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  std::vector<std::pair<Tensor, std::vector<float>>> kept;
  for (int call = 0; call < 40; ++call) {
    const std::vector<float> x = random_floats(3);
    kept.emplace_back(f(tensor({3}, x)), affine_of(x, 2, 0));
  }
  EXPECT_GE(f.stats().replays, 30u);
  EXPECT_NE(to_string(f.explain(random_tensor({3}))).find("are copied"), std::string::npos);

  context().mark_step();

  EXPECT_THROW((void)kept.front().first.data(), StaleTensor);
  EXPECT_EQ(values(kept.back().first), kept.back().second);
  EXPECT_EQ(to_string(f.explain(random_tensor({3}))).find("are copied"), std::string::npos);
}

TEST_P(FootgunsTest, RecordingsThatAreNotReplayedBecomeRare) {
  CompiledFunction f = compile(context(), "f", [](Tensor w, Tensor x) { return add(w, x); },
                               {.inputs = {{.is_static = true}}});
  std::vector<Tensor> moved;
  for (int call = 0; call < 40; ++call)
    (void)f(moved.emplace_back(random_tensor({3})), random_tensor({3}));

  EXPECT_GE(f.stats().skipped(SkipReason::kBacksOff), 28u);
  (void)f(moved.back(), random_tensor({3}));
  EXPECT_EQ(f.last_outcome()->outcome, Outcome::kRecord);
}

TEST_P(FootgunsTest, ARawPointerOutlivesItsTensorUnnoticed) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 1, 0); });
  for (int call = 0; call < 2; ++call)
    (void)f(random_tensor({3}));
  const float* const kept = f(random_tensor({3})).data<float>();  // the handle is released

  const Tensor next = f(random_tensor({3}));

  EXPECT_EQ(next.data<float>(), kept) << "the memory belongs to another output now";
}

TEST_P(FootgunsTest, AnOutputHeldOnCostsARecordingAndIsNotOverwritten) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  for (int call = 0; call < 3; ++call)
    (void)f(random_tensor({3}));
  const std::vector<float> x = random_floats(3);
  const Tensor held = f(tensor({3}, x));

  (void)f(random_tensor({3}));

  EXPECT_EQ(values(held), affine_of(x, 2, 0));
  EXPECT_EQ(f.stats().recordings, 2u);
}

TEST_P(FootgunsTest, AFunctionThatKeepsANewTensorInEachCallIsNotRecorded) {
  std::optional<Tensor> kept;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    kept = affine(x, 1, 0);
    return affine(*kept, 1, 0);
  });
  for (int call = 0; call < 12; ++call) {
    const std::vector<float> x = random_floats(3);
    EXPECT_EQ(values(f(tensor({3}, x))), x);
    EXPECT_EQ(values(*kept), x);
  }

  EXPECT_EQ(f.stats().recordings, 0u);
  EXPECT_EQ(f.explain(random_tensor({3})).skip_reason, SkipReason::kKeepsTensor);
  kept.reset();
}

TEST_P(FootgunsTest, ATableThatABrokenCaptureWasToFillIsRefused) {
  std::optional<Tensor> table;
  bool asks = false;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    if (!asks) return affine(x, 1, 1);
    if (!table) table = affine(x, 0, 1);
    if (current_stream().is_capturing()) current_stream().synchronize();
    return add(x, *table);
  });
  (void)f(random_tensor({3}));
  asks = true;

  EXPECT_THROW((void)f(random_tensor({3})), StaleTensor);
  table.reset();
  const std::vector<float> x = random_floats(3);
  EXPECT_EQ(values(f(tensor({3}, x))), affine_of(x, 1, 1));
  table.reset();
}

TEST_P(FootgunsTest, MemoryThatRecordingsHoldIsTakenFromThemOnlyWhereTheyMayBeEvicted) {
  constexpr std::int64_t kMiB = 1 << 20;
  for (const AtLimit at_limit : {AtLimit::kRunEagerly, AtLimit::kEvict}) {
    make_context({.max_bytes = 60 * kMiB, .at_limit = at_limit});
    CompiledFunction f = compile(context(), "f", [](Tensor x) {
      (void)empty({36 * kMiB}, DType::kUInt8);
      return affine(x, 1, 0);
    });
    for (int call = 0; call < 3; ++call)
      (void)f(random_tensor({3}));
    const auto make = [&] {
      return context().eager([] { return empty({44 * kMiB}, DType::kUInt8); });
    };
    if (at_limit == AtLimit::kRunEagerly) {
      EXPECT_THROW((void)make(), OutOfMemory);
    } else {
      (void)make();
    }
    EXPECT_EQ(f.stats().evictions, at_limit == AtLimit::kEvict ? 1u : 0u);
  }
}

TEST_P(FootgunsTest, AnEarlierOutputThatIsReturnedButWasNotPassedInMakesCallsEager) {
  CompiledFunction make = compile(context(), "make", [](Tensor x) { return affine(x, 1, 0); });
  const Tensor made = make(random_tensor({3}));
  CompiledFunction f = compile(context(), "f", [=](Tensor x) { return std::pair(made, x); });
  const CapturedLog warnings;
  for (int call = 0; call < 4; ++call)
    EXPECT_EQ(f(random_tensor({3})).first.storage(), made.storage());

  EXPECT_EQ(f.stats().recordings, 0u);
  ASSERT_EQ(warnings.lines().size(), 1u);
  EXPECT_THAT(warnings.lines()[0], HasSubstr("earlier call's output that was not passed in"));
}

TEST_P(FootgunsTest, ACaptureThatFailsForATimeIsTriedAgain) {
  bool is_busy = true;
  int captures = 0;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    captures += current_stream().is_capturing();
    if (is_busy && current_stream().is_capturing()) throw std::runtime_error("the library is busy");
    return affine(x, 2, 0);
  });
  const Tensor x = random_tensor({3});
  for (int call = 0; call < 4; ++call)
    (void)f(x);
  EXPECT_EQ(captures, 3);
  EXPECT_NE(f.explain(x).detail.find("tried again after 64 more calls"), std::string::npos);

  is_busy = false;
  for (int call = 0; call < 64; ++call)
    (void)f(x);
  EXPECT_EQ(captures, 3);
  (void)f(x);
  EXPECT_EQ(captures, 4);
  EXPECT_EQ(f.stats().recordings, 1u);
}

TEST_P(FootgunsTest, WorkOnTheLegacyStreamFailsTheCaptureOfACheckedContext) {
  make_context({.checked = true});
  const Tensor counter = tensor({1}, std::vector<float>{0});
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    {
      const StreamScope scope(StreamRef(device(), StreamHandle::kLegacy));
      update(counter, 1, 1);
    }
    return affine(x, 1, 0);
  });

  for (int call = 1; call <= 4; ++call) {
    (void)f(random_tensor({3}));
    EXPECT_EQ(values(counter)[0], call);
  }
  EXPECT_EQ(skips(f, SkipReason::kCaptureFailed), 3u);
}

TEST_P(FootgunsTest, WorkOnTheLegacyStreamIsMissingFromReplaysOfAnUncheckedOne) {
  const Tensor counter = tensor({1}, std::vector<float>{0});
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    {
      const StreamScope scope(StreamRef(device(), StreamHandle::kLegacy));
      update(counter, 1, 1);
    }
    return affine(x, 1, 0);
  });

  for (int call = 1; call <= 4; ++call)
    (void)f(random_tensor({3}));

  EXPECT_EQ(values(counter)[0], 2);  // the warm-up and the capture, whose host work ran at once
}

TEST_P(FootgunsTest, SynchronisingInsideAStepFunctionMakesItEager) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) {
    Tensor y = affine(x, 2, 0);
    (void)y.to_vector<float>();
    return y;
  });

  for (int call = 0; call < 3; ++call) {
    const std::vector<float> x = random_floats(3);
    EXPECT_EQ(values(f(tensor({3}, x))), affine_of(x, 2, 0));
  }
  EXPECT_EQ(skips(f, SkipReason::kCaptureFailed), 2u);
}

TEST_P(FootgunsTest, ASideStreamThatIsNotJoinedMakesTheFunctionEager) {
  Stream side(device());
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    side.ref().wait_for(current_stream());
    const StreamScope scope(side);
    return affine(x, 2, 0);
  });

  for (int call = 0; call < 3; ++call)
    (void)f(random_tensor({3}));
  side.synchronize();

  EXPECT_EQ(skips(f, SkipReason::kCaptureFailed), 2u);
}

TEST_P(FootgunsTest, AResultReadOnAnotherStreamMustWaitForTheContexts) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  Stream other(device());

  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(3);
    const Tensor y = f(tensor({3}, x));
    other.ref().wait_for(context().stream());  // without this, the copy may run first
    std::vector<float> read(3);
    y.copy_to_host(read.data(), y.bytes(), other);
    EXPECT_EQ(read, affine_of(x, 2, 0));
  }
}

TEST_P(FootgunsTest, AReaderOnAnotherStreamIsAnnounced) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  Stream other(device());
  const Tensor read = random_tensor({3});

  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(3);
    Tensor y = f(tensor({3}, x));
    other.ref().wait_for(context().stream());
    check(other.ref().api().copy(other.ref().handle(), read.data(), y.data(), y.bytes()), "copy");
    note_use(y.storage(), other);  // without this, the next call may run first
    y = Tensor();
    (void)f(random_tensor({3}));
    other.synchronize();
    EXPECT_EQ(values(read), affine_of(x, 2, 0));
  }
}

TEST_P(FootgunsTest, AReaderOfTheCallersBufferIsOrderedByTheCaller) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  Stream other(device());
  const Tensor buffer = random_tensor({3}), read = random_tensor({3});

  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(3);
    (void)f.into(buffer)(tensor({3}, x));
    other.ref().wait_for(context().stream());
    copy(read, buffer, other);
    context().stream().wait_for(other);  // without this, the next call may run first
    (void)f.into(buffer)(random_tensor({3}));
    other.synchronize();
    EXPECT_EQ(values(read), affine_of(x, 2, 0));
  }
}

TEST_P(FootgunsTest, AnOutputOnAnotherDeviceMakesTheFunctionEager) {
  const Device other{DeviceType::kHost, device().type == DeviceType::kHost ? 1 : 0};
  CompiledFunction f = compile(context(), "f", [other](Tensor x) {
    const Tensor there = empty(x.shape(), x.dtype(), other);
    copy(there, affine(x, 2, 0));
    return there;
  });
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(3);
    const Tensor y = f(tensor({3}, x));
    context().synchronize();
    EXPECT_EQ(values(y), affine_of(x, 2, 0));
  }
  EXPECT_EQ(f.stats().recordings, 0u);
}

TEST_P(FootgunsTest, AStreamOfAnotherLibraryIsRetiredBeforeItIsDestroyed) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  DeviceAPI& api = device_api(device());

  for (int call = 0; call < 4; ++call) {
    StreamHandle handle = StreamHandle::kNull;
    check(api.create_stream(device().id, StreamKind::kNonBlocking, &handle), "create stream");
    const StreamRef stream(device(), handle);
    {
      const StreamScope scope(stream);
      (void)f(random_tensor({3}));
    }
    retire_stream(stream);  // without this, the next call waits for a destroyed stream
    check(api.destroy_stream(handle), "destroy stream");
    const std::vector<float> x = random_floats(3);
    EXPECT_EQ(values(f(tensor({3}, x))), affine_of(x, 2, 0));
  }
}

TEST_P(FootgunsTest, AGraphOfTheCallersIsLaunchedBehindTheContextsStream) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  Stream mine(device());
  const std::vector<float> x = random_floats(3);
  const Tensor input = tensor({3}, x);
  Graph graph;
  Tensor y;
  {
    Capture capture(mine, CaptureMode::kThreadLocal);
    const StreamScope scope(mine);
    y = f(input);
    ASSERT_EQ(capture.end(&graph), Code::kSuccess);
  }
  const GraphExec exec(mine.ref().graphs(), graph);

  mine.ref().wait_for(context().stream());  // without this, the graph may run first
  check(exec.api().launch(exec.handle(), mine.ref().handle()), "launch");
  mine.synchronize();

  EXPECT_EQ(values(y), affine_of(x, 2, 0));
  EXPECT_EQ(context().release_captured(), 2u);
}

TEST_P(FootgunsTest, ACallInAScopeOfAnotherStreamIsOrderedWithIt) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  Stream mine(device());

  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(3);
    const StreamScope scope(mine);
    const Tensor y = f(tensor({3}, x));
    std::vector<float> read(3);
    y.copy_to_host(read.data(), y.bytes(), mine);
    EXPECT_EQ(read, affine_of(x, 2, 0));
  }
}

TEST_P(FootgunsTest, ACompiledFunctionCalledInAnotherIsPartOfIt) {
  CompiledFunction inner = compile(context(), "inner", [](Tensor x) { return affine(x, 2, 0); });
  CompiledFunction outer = compile(context(), "outer", [&](Tensor x) { return inner(x); });

  for (int call = 0; call < 4; ++call)
    (void)outer(random_tensor({3}));

  EXPECT_EQ(skips(inner, SkipReason::kNestedCall), 2u);
  EXPECT_EQ(inner.stats().recordings, 0u);
  EXPECT_EQ(outer.stats().replays, 2u);
}

TEST_P(FootgunsTest, AnExceptionRepeatsUntilTheFunctionIsRecordedAndNeverAfter) {
  bool fails = false;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    if (fails) throw std::runtime_error("the user's own");
    return affine(x, 1, 0);
  });
  fails = true;
  EXPECT_THROW((void)f(random_tensor({3})), std::runtime_error);
  fails = false;
  for (int call = 0; call < 2; ++call)
    (void)f(random_tensor({3}));
  fails = true;

  EXPECT_NO_THROW((void)f(random_tensor({3})));  // a replay does not run the function
}

TEST_P(FootgunsTest, ASecondThreadInOneContextIsRefused) {
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    EXPECT_THROW(context().mark_step(), ConcurrentUse);  // as a call on another thread would
    return affine(x, 1, 0);
  });

  (void)f(random_tensor({3}));
}

}  // namespace
}  // namespace cgtree::testing
