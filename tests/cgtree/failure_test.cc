// Failed calls: tree, pool and stream stay as they were, and the error names the call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <stdexcept>

#include "cgtree/memory/context_memory.h"
#include "interop/device/device.h"
#include "interop/device/graph_api.h"
#include "interop/exchange/lent_memory.h"
#include "tests/support/captured_log.h"
#include "tests/support/inside.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

class FailureTest : public TreeTest {
 protected:
  // State that a failed call must not change.
  struct Trace {
    std::size_t recordings;
    std::size_t live_outputs;
    std::vector<Range> output;
    std::vector<Range> scratch;
    bool operator==(const Trace&) const = default;
  };
  Trace trace() {
    ContextMemory& memory = memory_of(context());
    memory.begin_tracking();
    return {recording_count(), stats().live_outputs, memory.pool(Region::kOutput).live(),
            memory.pool(Region::kScratch).live()};
  }
  void expect_stream_works() {
    EXPECT_FALSE(context().stream().is_capturing());
    EXPECT_EQ(context().stream().graphs().peek_last_error(), Code::kSuccess);
    context().synchronize();
  }
};
CGTREE_ON_ALL_DEVICES(FailureTest);

TEST_P(FailureTest, AnExceptionFromTheStepFunctionLeavesNoTraceInAnyPhase) {
  bool fail = false;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    Tensor scratch = affine(x, 5, 5);
    if (fail) throw std::runtime_error("the user's own");
    return affine(scratch, 2, 1);
  });
  CompiledFunction g = compile(context(), "g", [](Tensor x) { return affine(x, 1, 1); });
  const std::vector<float> x = random_floats(10);
  const Tensor held = g(tensor({10}, x));

  for (int phase = 0; phase < 2; ++phase) {  // warm-up, then recording
    const Trace before = trace();
    fail = true;
    try {
      (void)f(tensor({10}, x));
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "the user's own");
    }
    EXPECT_EQ(trace(), before);
    expect_stream_works();
    fail = false;
    EXPECT_EQ(values(f(tensor({10}, x))), affine_of(affine_of(x, 5, 5), 2, 1));
  }

  EXPECT_EQ(values(f(tensor({10}, x))), affine_of(affine_of(x, 5, 5), 2, 1));
  EXPECT_EQ(f.stats().failures, 2u);
  EXPECT_EQ(f.stats().replays, 1u);
  EXPECT_EQ(values(held), affine_of(x, 1, 1));
}

// As after an eager run, the work that fills the tensor has run.
TEST_P(FailureTest, ATensorThatEscapesInAnExceptionIsFilledAndStays) {
  struct Escape {
    Tensor tensor;
  };
  bool throws = true;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    Tensor y = affine(x, 1, 1);
    if (throws) throw Escape{y};
    return y;
  });
  const std::vector<float> x = random_floats(4);

  try {
    (void)f(tensor({4}, x));
    FAIL() << "nothing was thrown";
  } catch (const Escape& escape) {
    throws = false;
    for (int call = 0; call < 3; ++call)
      (void)f(random_tensor({4}));
    EXPECT_EQ(values(escape.tensor), affine_of(x, 1, 1));
  }
}

// Rows 76 incompatible_ops_item and 4.3 cuda_graph_tensor_item_not_allowed.
// Acceptance: trees 76; graphs cuda_graph_tensor_item_not_allowed.
TEST_P(FailureTest, AStepThatSynchronisesRunsEagerlyAndNamesTheCall) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, const std::string& line) { lines.push_back(line); });
  CompiledFunction f = compile(context(), "reads_back", [&](Tensor x) {
    const Tensor y = affine(x, 2, 0);
    current_stream().synchronize();
    return affine(y, 1, 1);
  });
  const std::vector<float> x = random_floats(10);

  for (int call = 0; call < 4; ++call) {
    EXPECT_EQ(values(f(tensor({10}, x))), affine_of(x, 2, 1));
    expect_stream_works();
  }
  set_log_sink(nullptr);

  EXPECT_EQ(f.stats().skips[static_cast<int>(SkipReason::kCaptureFailed)], 3u);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("capture of 'reads_back' failed"));
  EXPECT_THAT(lines[0], HasSubstr("synchronize stream: cudaErrorStreamCaptureUnsupported (900)"));
}

TEST_P(FailureTest, TheExceptionOfAStepIsInTheReportOfItsFailedCapture) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, const std::string& line) { lines.push_back(line); });
  CompiledFunction f = compile(context(), "gives_up", [&](Tensor x) {
    try {
      current_stream().synchronize();
    } catch (const Error&) {
      throw std::runtime_error("the step's own reason");
    }
    return affine(x, 2, 0);
  });
  const std::vector<float> x = random_floats(10);

  for (int call = 0; call < 2; ++call)
    EXPECT_EQ(values(f(tensor({10}, x))), affine_of(x, 2, 0));
  set_log_sink(nullptr);

  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("the step's own reason"));
}

TEST_P(FailureTest, AFailedCaptureIsAnErrorWhereAGraphIsRequired) {
  CompiledFunction f = compile(context(), "reads_back",
                               [&](Tensor x) {
                                 Tensor y = affine(x, 2, 0);
                                 (void)y.to_vector<float>();
                                 return y;
                               },
                               {.require_graph = true});
  const std::vector<float> x = random_floats(10);
  (void)f(tensor({10}, x));
  const Trace before = trace();

  try {
    (void)f(tensor({10}, x));
    FAIL() << "nothing was thrown";
  } catch (const CaptureError& error) {
    EXPECT_THAT(std::string(error.message()), HasSubstr("capture of 'reads_back' failed"));
  }
  EXPECT_EQ(trace(), before);
  expect_stream_works();
}

TEST_P(FailureTest, UnjoinedWorkOnASideStreamFailsTheCapture) {
  Stream side(device());
  CompiledFunction f = compile(context(), "forks",
                               [&](Tensor x) {
                                 side.ref().wait_for(current_stream());
                                 const StreamScope scope(side);
                                 return affine(x, 2, 0);
                               },
                               {.require_graph = true});
  const Tensor x = random_tensor({3});
  (void)f(x);
  side.synchronize();

  try {
    (void)f(x);
    FAIL() << "nothing was thrown";
  } catch (const CaptureError& error) {
    EXPECT_EQ(error.code(), static_cast<int>(Code::kStreamCaptureUnjoined));
    EXPECT_THAT(std::string(error.message()), HasSubstr("not joined"));
  }
  expect_stream_works();
}

// Row 54 workspace_allocation_error.
// Acceptance: trees 54.
TEST_P(FailureTest, ScratchKeptWhileRecordingIsFilledAndTheFunctionIsNamed) {
  CapturedLog warnings;
  std::vector<Tensor> kept;
  CompiledFunction f = compile(context(), "hoards", [&](Tensor x) {
    Tensor y = affine(x, 2, 0);
    kept.push_back(affine(y, 1, 1));
    return y;
  });
  const Tensor x = random_tensor({6});
  (void)f(x);  // a warm-up may keep it: it could be a workspace
  const Trace before = trace();

  EXPECT_EQ(values(f(x)), affine_of(values(x), 2, 0));

  EXPECT_THAT(warnings.lines(), Contains(HasSubstr("'hoards' keeps 1 of the tensors")));
  EXPECT_EQ(trace().recordings, before.recordings);
  EXPECT_EQ(trace().live_outputs, before.live_outputs + 1);
  for (const Tensor& workspace : kept)
    EXPECT_EQ(values(workspace), affine_of(values(x), 2, 1));
  expect_stream_works();
  kept.clear();
  EXPECT_EQ(trace().live_outputs, before.live_outputs - 1);
}

// A library cannot see that a handle of cgtree is stale.
TEST_P(FailureTest, MemoryThatALibraryHoldsAfterAFailedCaptureIsNotReused) {
  std::optional<Lease> lease;
  bool hoards = false;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    const Tensor y = affine(x, 2, 0);
    if (hoards) lease.emplace(affine(y, 3, 1).storage());
    if (hoards && current_stream().is_capturing()) throw InvalidArgument("the step's own");
    return affine(y, 1, 5);
  });
  CompiledFunction g = compile(context(), "g", [](Tensor x) {
    return affine(affine(affine(x, 1, 1), 1, 1), 1, 1);  // needs more memory than f
  });
  const Tensor x = random_tensor({300});
  (void)f(x);
  const Trace before = trace();
  hoards = true;
  EXPECT_THROW((void)f(x), InvalidArgument);
  ASSERT_TRUE(lease);
  hoards = false;
  Tensor lent(lease->storage(), 0, {300}, DType::kFloat32);
  const std::vector<float> written = random_floats(300);
  lent.copy_from_host(written.data(), lent.bytes(), context().stream());

  std::vector<Tensor> held;
  for (int i = 0; i < 8; ++i) {
    context().mark_step();
    const std::vector<float> values_of_x = random_floats(300);
    held.push_back((i % 2 == 0 ? f : g)(tensor({300}, values_of_x)));
    EXPECT_NE(held.back().address(), lent.address());
    if (i % 3 == 0) held.clear();
  }
  EXPECT_GE(f.stats().replays + g.stats().replays, 1u);
  EXPECT_EQ(values(lent), written);
  held.clear();
  EXPECT_EQ(trace().live_outputs, before.live_outputs + 1);

  lent = Tensor();
  lease.reset();
  EXPECT_EQ(trace().live_outputs, before.live_outputs);
  EXPECT_EQ(values(f(x)), values(f(x)));
  expect_stream_works();
}

TEST_P(FailureTest, TensorsKeptByAWarmUpAreNeverOverwritten) {
  Tensor table;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    if (!table.defined()) table = affine(x, 0, 42);
    return add(affine(x, 2, 0), table);
  });
  CompiledFunction g =
      compile(context(), "g", [](Tensor x) { return affine(affine(affine(x, 1, 1), 1, 1), 1, 1); });

  for (int step = 0; step < 8; ++step) {
    context().mark_step();
    const std::vector<float> x = random_floats(6);
    EXPECT_EQ(values(g(tensor({6}, x))), affine_of(affine_of(affine_of(x, 1, 1), 1, 1), 1, 1));
    EXPECT_EQ(values(f(tensor({6}, x))), affine_of(x, 2, 42));
    EXPECT_EQ(values(table), std::vector<float>(6, 42));
  }
  EXPECT_EQ(f.stats().replays, 6u);
  table = Tensor();
}

// Row graph_capture_oom: the k-th request for memory is refused, for every k.
// Acceptance: graphs graph_capture_oom.
TEST_P(FailureTest, OutOfMemoryAtAnyRequestLeavesNoTraceAndTheNextCallWorks) {
  for (int k = 0;; ++k) {
    make_context({});
    segments_->refuse_at = k;
    // Each tensor needs a separate segment.
    CompiledFunction f =
        compile(context(), "f", [](Tensor x) { return affine(affine(x, 2, 0), 1, 1); });
    const std::vector<float> x = random_floats(3 << 20);
    bool refused = false;
    for (int call = 0; call < 3; ++call) {
      const Tensor input = tensor({3 << 20}, x);
      const Trace before = trace();
      try {
        EXPECT_EQ(values(f(input)), affine_of(x, 2, 1));
      } catch (const OutOfMemory&) {
        refused = true;
        EXPECT_EQ(trace(), before);
        expect_stream_works();
        EXPECT_EQ(values(f(input)), affine_of(x, 2, 1));
      }
    }
    validate();
    if (!refused) {
      // A segment that cannot grow is joined by another one. A refusal during a recording fails no
      // call.
      EXPECT_GE(k, pools_grow_in_place() ? 1 : 2);
      break;
    }
  }
}

// Some libraries refuse captures by throwing, before the device sees an error.
TEST_P(FailureTest, AnExceptionThrownOnlyWhileCapturingMakesTheSignatureEager) {
  CapturedLog warnings;
  CompiledFunction f = compile(context(), "f", [](Tensor x) {
    if (current_stream().is_capturing()) throw std::runtime_error("matmul: stream is capturing");
    return affine(x, 2, 0);
  });
  const std::vector<float> x = random_floats(10);

  for (int call = 0; call < 6; ++call) {
    EXPECT_EQ(values(f(tensor({10}, x))), affine_of(x, 2, 0));
    expect_stream_works();
  }

  EXPECT_EQ(f.stats().skipped(SkipReason::kCaptureFailed), 5u);
  EXPECT_EQ(f.stats().failures, 0u);
  EXPECT_THAT(f.explain(tensor({10}, x)).detail,
              HasSubstr("capture of 'f' failed: matmul: stream is capturing"));
  EXPECT_THAT(warnings.lines(), Contains(HasSubstr("matmul: stream is capturing")));
}

TEST_P(FailureTest, AnExceptionOfTheCapturesIsThrownWhereAGraphIsRequired) {
  CompiledFunction f = compile(context(), "f",
                               [](Tensor x) {
                                 if (current_stream().is_capturing())
                                   throw std::range_error("not while capturing");
                                 return affine(x, 2, 0);
                               },
                               {.require_graph = true});
  const Tensor x = random_tensor({10});
  (void)f(x);

  EXPECT_THROW((void)f(x), std::range_error);
  EXPECT_THROW((void)f(x), std::range_error);
  expect_stream_works();
}

// Exceptions of the step function that do not depend on the capture never count as capture
// failures.
TEST_P(FailureTest, ErrorsOfTheUsersOwnDoNotUseUpTheCaptures) {
  bool fails = false;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    if (fails) throw std::runtime_error("the user's own");
    return affine(x, 2, 0);
  });
  const Tensor x = random_tensor({10});
  (void)f(x);

  fails = true;
  for (int call = 0; call < 10; ++call)
    EXPECT_THROW((void)f(x), std::runtime_error);
  fails = false;
  (void)f(x);

  EXPECT_EQ(f.stats().recordings, 1u);
  EXPECT_EQ(f.stats().failures, 10u);
}

TEST_P(FailureTest, ASignatureThatCannotBeCapturedLeavesTheOthersAlone) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) {
    if (x.dim(0) == 3) current_stream().synchronize();
    return affine(x, 2, 0);
  });
  for (const std::int64_t size : {2, 3, 4}) {
    for (int call = 0; call < 3; ++call)
      (void)f(random_tensor({size}));
  }
  EXPECT_EQ(f.stats().recordings, 2u);

  const std::uint64_t replays = f.stats().replays;
  for (const std::int64_t size : {2, 3, 4, 3, 2}) {
    const std::vector<float> x = random_floats(size);
    EXPECT_EQ(values(f(tensor({size}, x))), affine_of(x, 2, 0));
  }
  EXPECT_EQ(f.stats().replays, replays + 3);
  EXPECT_EQ(f.stats().skipped(SkipReason::kCaptureFailed), 4u);
  EXPECT_THAT(f.explain(random_tensor({3})).detail, HasSubstr("capture of 'f' failed"));
  EXPECT_EQ(f.explain(random_tensor({2})).outcome, Outcome::kReplay);
}

TEST_P(FailureTest, ACaptureThatSucceedsForgetsTheFailuresBefore) {
  int fails = 0;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    if (fails > 0 && current_stream().is_capturing()) {
      --fails;
      throw std::runtime_error("busy");
    }
    return affine(x, 2, 0);
  });
  std::vector<Tensor> held = {f(random_tensor({4}))};

  for (std::size_t recordings = 1; recordings <= 4; ++recordings) {  // another slot for each output
    fails = 2;
    for (int call = 0; call < 3; ++call)
      held.push_back(f(random_tensor({4})));
    EXPECT_EQ(f.stats().recordings, recordings);
  }
}

// After three failures a signature waits, and is then captured once; the wait doubles each time.
TEST_P(FailureTest, ASignatureWhoseCapturesFailedIsTriedAgainAtGrowingDistances) {
  bool fails = true;
  int call = 0;
  std::vector<int> captures;  // the calls that captured
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    if (fails && current_stream().is_capturing()) {
      captures.push_back(call);
      throw std::runtime_error("busy");
    }
    return affine(x, 2, 0);
  });
  const Tensor x = random_tensor({4});
  const auto run = [&](int calls) {
    for (const int end = call + calls; call < end; ++call)
      EXPECT_EQ(values(f(x)), affine_of(values(x), 2, 0));
  };
  run(600);
  EXPECT_EQ(captures, (std::vector<int>{1, 2, 3, 68, 197, 454}));
  EXPECT_THAT(f.explain(x).detail,
              AllOf(HasSubstr("busy"), HasSubstr("tried again after 367 more calls")));

  fails = false;  // as if the resource was free again
  run(366);
  EXPECT_EQ(f.stats().recordings, 0u);
  run(1);
  EXPECT_EQ(f.explain(x).outcome, Outcome::kRecord);
  run(2);
  EXPECT_EQ(f.stats().recordings, 1u);
  EXPECT_EQ(f.stats().replays, 1u);

  // Success has reset the wait. The recording does not fit while its output is held.
  const Tensor held = f(x);
  captures.clear();
  fails = true;
  call = 0;
  run(100);
  EXPECT_EQ(captures, (std::vector<int>{0, 1, 2, 67}));
}

TEST_P(FailureTest, ASignatureThatBreaksTheRulesOfCapturesIsNotTriedAgain) {
  int captures = 0;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    captures += current_stream().is_capturing();
    current_stream().synchronize();
    return affine(x, 2, 0);
  });
  const Tensor x = random_tensor({4});
  for (int call = 0; call < 300; ++call)
    (void)f(x);
  EXPECT_EQ(captures, 1);
  EXPECT_THAT(f.explain(x).detail, HasSubstr("it is not tried again"));
}

// Work of another thread would break each capture: one attempt is enough.
TEST_P(FailureTest, ACaptureThatAnotherThreadEndedIsNotTriedAgain) {
  int captures = 0;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    if (current_stream().is_capturing()) {
      ++captures;
      throw_code(Code::kStreamCaptureWrongThread, "end the capture");
    }
    return affine(x, 2, 0);
  });
  for (int call = 0; call < 4; ++call)
    (void)f(random_tensor({4}));

  EXPECT_EQ(captures, 1);
  EXPECT_EQ(f.stats().skipped(SkipReason::kCaptureFailed), 3u);
}

// Row 4.3 graph_concurrent_replay, of one pool: the second thread is refused.
// Acceptance: graphs graph_concurrent_replay.
TEST_P(FailureTest, ASecondThreadIsRefusedAndNothingBreaks) {
  std::promise<void> inside;
  std::promise<void> leave;
  bool block = true;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    if (std::exchange(block, false)) {
      inside.set_value();
      leave.get_future().wait();
    }
    return affine(x, 2, 0);
  });
  const Tensor x = random_tensor({3});
  const auto first = std::async(std::launch::async, [&] { return values(f(x)); });
  inside.get_future().wait();

  EXPECT_THROW((void)f(x), ConcurrentUse);
  EXPECT_THROW(context().mark_step(), ConcurrentUse);

  leave.set_value();
  first.wait();
  EXPECT_EQ(values(f(x)), affine_of(values(x), 2, 0));
}

TEST_P(FailureTest, WrongCallsAreRefusedWithBothSides) {
  CompiledFunction f =
      compile(context(), "f", [](std::span<const Tensor> x) { return affine(x[0], 1, 0); });
  EXPECT_THROW((void)f(std::vector<Tensor>(1)), InvalidArgument);
  EXPECT_THROW((void)compile(context(), "", [](Tensor x) { return x; }), InvalidArgument);

  CompiledFunction pair = compile(
      context(), "pair", [](std::span<const Tensor>) { return std::pair<Tensor, Tensor>(); });
  try {
    (void)pair({});
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(std::string(error.message()), HasSubstr("output 0 of 'pair' is a null tensor"));
  }
  EXPECT_THROW(Context(Device::host(99)), InvalidArgument);
  const Stream elsewhere(Device::host(1));
  EXPECT_THROW(Context(device(), {.stream = elsewhere.ref()}), InvalidArgument);
}

TEST_P(FailureTest, TheBudgetOfAContextIsKept) {
  make_context({.max_bytes = std::size_t{8} << 20});
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 1, 1); });

  EXPECT_THROW((void)f(random_tensor({4 << 20})), OutOfMemory);
  const std::vector<float> x = random_floats(100);
  for (int call = 0; call < 3; ++call) {
    EXPECT_EQ(values(f(tensor({100}, x))), affine_of(x, 1, 1));
  }
  EXPECT_LE(stats().pool_reserved_bytes, std::size_t{8} << 20);
}

}  // namespace
}  // namespace cgtree::testing
