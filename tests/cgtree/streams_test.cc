// Streams: calls are ordered with the caller's stream; side streams may join; contexts are
// independent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <thread>

#include "base/error.h"
#include "cgtree/steps.h"
#include "cgtree/values/eager_break.h"
#include "extensions/verify/verify.h"
#include "extensions/watch/monitor.h"
#include "interop/device/device_api.h"
#include "interop/device/graph.h"
#include "interop/exchange/foreign_array.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/stream_synchronization.h"
#include "simulator/strict_memory.h"
#include "tests/cgtree/stream_order_fixture.h"
#include "tests/support/call_trace.h"
#include "tests/support/captured_log.h"
#include "tests/support/full_stream.h"
#include "tests/support/gate.h"
#include "tests/support/host_slot.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

class StreamsTest : public TreeTest {};
CGTREE_ON_ALL_DEVICES(StreamsTest);

// Needs two devices, since the tests are about streams of another device.
class TwoDevicesTest : public StreamsTest {
 protected:
  void SetUp() override {
    StreamsTest::SetUp();
    if (!find_device_api(device().type)->has_device(1)) GTEST_SKIP() << "there is one device";
  }
  Device second() const { return {device().type, 1}; }
};
CGTREE_ON_ALL_DEVICES(TwoDevicesTest);

TEST_P(TwoDevicesTest, AReplayOnTheDefaultStreamOfADeviceThatIsNotCurrentRunsThere) {
  const StreamRef legacy(second(), StreamHandle::kLegacy);
  Context context(second(), {.stream = legacy});
  const CompiledFunction f = compile(context, "f", [](Tensor x) { return affine(x, 2, 1); });
  for (int call = 0; call < 5; ++call) {
    const std::vector<float> x = random_floats(1 << 16);
    const Tensor given = from_host<float>({1 << 16}, x, second());
    const Tensor y = f(given);
    legacy.synchronize();
    EXPECT_EQ(y.to_vector<float>(), affine_of(x, 2, 1)) << call;
  }
  EXPECT_EQ(f.stats().replays, 3u);
}

// As PyTorch's record_stream(), which does not know the stream's device.
TEST_P(TwoDevicesTest, AReaderOnAnotherDeviceIsWaitedForIfItsHandleAloneIsKnown) {
  constexpr std::int64_t kCount = 1 << 20;
  const Stream side(second());
  const StreamRef handle(side.ref().api(), device(), side.ref().handle());
  const CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  const Tensor read = from_host<float>({kCount}, std::vector<float>(kCount), second());
  for (int call = 0; call < 5; ++call) {
    const std::vector<float> x = random_floats(kCount);
    Tensor y = f(tensor({kCount}, x));
    side.ref().wait_for(context().stream());
    for (int copies = 0; copies < 20; ++copies)
      check(side.ref().api().copy(side.ref().handle(), read.data(), y.data(), y.bytes()), "copy");
    note_use(y.storage(), handle);
    y = Tensor();
    (void)f(random_tensor({kCount}));
    side.synchronize();
    EXPECT_EQ(read.to_vector<float>(), affine_of(x, 2, 0)) << call;
  }
}

// An output may be the last object that needs the stream.
TEST_P(StreamsTest, TheOwnerOfTheStreamIsKeptUntilContextAndOutputsEnd) {
  auto owner = std::make_shared<const Stream>(device());
  const std::weak_ptr<const Stream> watched = owner;
  std::optional<Context> own(std::in_place, device(),
                             ContextOptions{.stream = owner->ref(), .owner = owner});
  owner.reset();
  const std::vector<float> x = random_floats(3);
  std::optional<CompiledFunction<Tensor(Tensor)>> f =
      compile(*own, "f", [](Tensor given) { return affine(given, 2, 0); });
  std::optional<Tensor> y = (*f)(tensor({3}, x));
  f.reset();
  own.reset();

  EXPECT_EQ(values(*y), affine_of(x, 2, 0));
  EXPECT_FALSE(watched.expired());
  y.reset();
  EXPECT_TRUE(watched.expired());
}

// The driver crashes if it is given a destroyed stream, and the contexts of a device share its
// allocator.
TEST_P(StreamsTest, NothingIsAskedOfAStreamWhoseContextsHaveEnded) {
  const Context other(device());
  DeviceAPI& api = device_api(device());
  StreamHandle handle = StreamHandle::kNull;
  check(api.create_stream(device().id, StreamKind::kNonBlocking, &handle), "create");
  {
    Context own(device(), {.stream = StreamRef(api, device(), handle)});
    Steps steps(own, "step", {.bindings = {{.name = "block", .host_bytes = sizeof(float)}}});
    auto f = compile(own, "f", [](Tensor given) { return affine(given, 2, 0); });
    const Tensor x = tensor({3}, random_floats(3));
    for (int i = 0; i < 4; ++i) {
      const float word = 1;
      const Binding block{&word, sizeof(word)};
      for (Step step = steps.begin(Key{{"n", 1}}, {&block, 1}); step.must_run(); step.end()) {
      }
      (void)f(x);
    }
    own.release_memory();
    (void)f(x);
  }
  check(api.destroy_stream(handle), "destroy");

  const CapturedLog log;
  {
    Context later(device());
    auto f = compile(later, "f", [](Tensor given) { return affine(given, 3, 0); });
    (void)f(tensor({3}, random_floats(3)));
  }
  EXPECT_THAT(log.lines(),
              ::testing::Not(::testing::Contains(::testing::HasSubstr("stream_event_failed"))));
}

// Row 43 warmup_stream_sync: results of every phase are visible on the caller's stream.
// Acceptance: trees 43.
TEST_P(StreamsTest, ACallerOnAStreamOfItsOwnNeedsNoSynchronisation) {
  Stream stream(device());
  CompiledFunction f = compile(context(), "f", [](Tensor x) {
    for (int i = 0; i < 100; ++i)
      x = affine(x, 1, 1);  // long enough for a missing wait to show
    return x;
  });

  for (int call = 0; call < 5; ++call) {
    const std::vector<float> x = random_floats(1 << 16);
    const Tensor input = tensor({1 << 16}, std::vector<float>(1 << 16, -1));
    const Tensor copy = tensor({1 << 16}, x);
    const StreamScope scope(stream);
    // Writes the input on the caller's stream, just before the call.
    check(stream.ref().api().copy(stream.ref().handle(), input.data(), copy.data(), input.bytes()),
          "copy");
    const Tensor y = f(input);
    std::vector<float> host(1 << 16, -2);
    y.copy_to_host(host.data(), y.bytes(), stream);
    std::vector<float> expected = x;
    for (int i = 0; i < 100; ++i)
      expected = affine_of(expected, 1, 1);
    EXPECT_EQ(host, expected);
  }
}

TEST_P(StreamsTest, CallsRunOnTheStreamTheContextWasGiven) {
  Stream stream(device());
  make_context({.stream = stream.ref()});
  EXPECT_EQ(context().stream(), stream.ref());
  StreamRef seen;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    seen = current_stream();
    return affine(x, 2, 0);
  });

  for (int call = 0; call < 3; ++call) {
    const std::vector<float> x = random_floats(4);
    EXPECT_EQ(values(f(tensor({4}, x))), affine_of(x, 2, 0));
  }

  EXPECT_NE(seen, stream.ref()) << "captures have a stream of their own";
  context_.reset();  // before its stream
}

TEST_P(StreamsTest, SideStreamsForkAndJoinInsideAStep) {
  Stream side(device());
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    side.ref().wait_for(current_stream());
    Tensor left;
    {
      const StreamScope scope(side);
      left = affine(x, 2, 0);
    }
    const Tensor right = affine(x, 3, 0);
    current_stream().wait_for(side);
    return add(left, right);
  });

  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(1000);
    const std::vector<float> y = values(f(tensor({1000}, x)));
    for (int i = 0; i < 1000; ++i)
      EXPECT_FLOAT_EQ(y[i], 2 * x[i] + 3 * x[i]);
  }
  EXPECT_EQ(f.stats().replays, 2u);
}

TEST_P(StreamsTest, ACheckedContextReplaysTheSame) {
  make_context({.checked = true});
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });

  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(8);
    EXPECT_EQ(values(f(tensor({8}, x))), affine_of(x, 2, 0));
  }
  EXPECT_EQ(f.stats().replays, 2u);
}

TEST_P(StreamsTest, ACheckedContextNoticesWorkOnTheLegacyStream) {
  make_context({.checked = true});
  const Tensor scratch = random_tensor({8});
  CompiledFunction f = compile(context(), "unrecorded", [&](Tensor x) {
    {
      const StreamScope scope(StreamRef(device(), StreamHandle::kLegacy));
      update(scratch, 1, 1);  // as code that does not use current_stream()
    }
    return affine(x, 2, 0);
  });

  for (int call = 0; call < 3; ++call) {
    const std::vector<float> x = random_floats(8);
    EXPECT_EQ(values(f(tensor({8}, x))), affine_of(x, 2, 0));
  }
  EXPECT_EQ(f.stats().skips[static_cast<int>(SkipReason::kCaptureFailed)], 2u);
}

TEST_P(StreamsTest, ACheckedContextNoticesWorkOnTheContextsStream) {
  make_context({.checked = true});
  const Tensor scratch = random_tensor({8});
  CompiledFunction f = compile(context(), "unrecorded", [&](Tensor x) {
    {
      const StreamScope scope(context().stream());
      update(scratch, 1, 1);
    }
    return affine(x, 2, 0);
  });

  for (int call = 0; call < 3; ++call) {
    const std::vector<float> x = random_floats(8);
    EXPECT_EQ(values(f(tensor({8}, x))), affine_of(x, 2, 0));
  }
  EXPECT_EQ(f.stats().skips[static_cast<int>(SkipReason::kCaptureFailed)], 2u);
}

// Another thread may read an output during a recording: the read must not become part of the graph.
TEST_P(StreamsTest, ReadingAnOutputElsewhereWhileRecordingIsNoPartOfTheRecording) {
  const std::vector<float> x = random_floats(16);
  CompiledFunction f = compile(context(), "f", [](Tensor t) { return affine(t, 2, 0); });
  const Tensor held = f(tensor({16}, x));
  CompiledFunction g = compile(context(), "g", [&](Tensor t) {
    std::thread([&] { EXPECT_EQ(held.to_vector<float>(), affine_of(x, 2, 0)); }).join();
    return affine(t, 3, 0);
  });

  for (int call = 0; call < 3; ++call) {
    EXPECT_EQ(values(g(tensor({16}, x))), affine_of(x, 3, 0));
  }
  EXPECT_EQ(g.stats().replays, 1u);
  EXPECT_EQ(nlohmann::json::parse(snapshot_json(context()))["nodes"][0]["graph_nodes"], 2);
}

TEST_P(StreamsTest, AFunctionOfAnotherContextMayEndWhileThisOneRecords) {
  Context other(device());
  std::optional<CompiledFunction<Tensor(Tensor)>> ending;
  const std::vector<float> x = random_floats(8);
  CompiledFunction f = compile(context(), "f",
                               [&](Tensor t) {
                                 ending.reset();
                                 return affine(t, 2, 0);
                               },
                               {.require_graph = true});
  (void)f(tensor({8}, x));  // the warm-up
  ending.emplace(compile(other, "ending", [](Tensor t) { return affine(t, 1, 1); }));
  for (int call = 0; call < 2; ++call)
    (void)(*ending)(tensor({8}, x));

  EXPECT_EQ(values(f(tensor({8}, x))), affine_of(x, 2, 0));
  EXPECT_EQ(values(f(tensor({8}, x))), affine_of(x, 2, 0));
  EXPECT_EQ(f.stats().replays, 1u);
}

// Row 4.3 graph_concurrent_replay, with separate pools: contexts on one device, with a thread each,
// record and replay at the same time.
// Acceptance: graphs graph_concurrent_replay.
TEST_P(StreamsTest, ContextsSideBySideDoNotDisturbEachOther) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      Context mine(device());
      CompiledFunction f = compile(mine, "f", [t](Tensor x) { return affine(x, 2, t); });
      for (int call = 0; call < 40; ++call) {
        const std::vector<float> x(50 + call % 4, static_cast<float>(call));
        const Shape shape{static_cast<std::int64_t>(x.size())};
        EXPECT_EQ(f(tensor(shape, x)).to_vector<float>(), affine_of(x, 2, t));
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
}

// Captures calls of the context on a stream, as a caller that builds its own graph does.
class CallersGraphTest : public TreeTest {
 protected:
  // Returns the result of `body`.
  template <typename Body>
  auto capture(Body body) {
    Capture capture(stream(), CaptureMode::kThreadLocal);
    auto made = [&] {
      const StreamScope scope(stream());
      return body();
    }();
    EXPECT_EQ(capture.end(&graph_), Code::kSuccess);
    exec_ = GraphExec(stream().graphs(), graph_);
    return made;
  }
  void launch() {
    stream().wait_for(context().stream());
    check(exec_.api().launch(exec_.handle(), stream().handle()), "launch");
    stream().synchronize();
  }
  StreamRef stream() {
    if (!stream_) stream_.emplace(device());
    return *stream_;
  }
  Tensor eager(const std::vector<float>& values) {
    const Tensor source = tensor({static_cast<std::int64_t>(values.size())}, values);
    return context().eager([&] { return affine(source, 1, 0); });
  }

  std::optional<Stream> stream_;
  Graph graph_;
  GraphExec exec_;
};
CGTREE_ON_ALL_DEVICES(CallersGraphTest);

TEST_P(CallersGraphTest, KeepsTheMemoryItUsesUntilTheContextIsToldThatItIsGone) {
  const std::vector<float> x = random_floats(100);
  CompiledFunction f =
      compile(context(), "f", [](Tensor t) { return affine(affine(affine(t, 2, 0), 1, 1), 1, 1); });
  std::vector<std::uintptr_t> used;
  Tensor input = tensor({100}, x);
  const Tensor y = capture([&] { return f(input); });
  input = Tensor();
  std::vector<Tensor> tables;
  std::vector<std::vector<float>> written;
  for (int i = 0; i < 8; ++i) {
    written.push_back(random_floats(100));
    tables.push_back(eager(written.back()));
  }

  for (int i = 0; i < 3; ++i)
    launch();

  EXPECT_EQ(values(y), affine_of(affine_of(affine_of(x, 2, 0), 1, 1), 1, 1));
  for (std::size_t i = 0; i < tables.size(); ++i)
    EXPECT_EQ(values(tables[i]), written[i]) << i;
  EXPECT_EQ(context().release_captured(), 4u);  // the input, two intermediates, the output
  EXPECT_EQ(context().release_captured(), 0u);
}

TEST_P(CallersGraphTest, IsReleasedByTheIdOfItsCapture) {
  CompiledFunction f = compile(context(), "f", [](Tensor t) { return affine(t, 2, 0); });
  const Tensor x = random_tensor({8});
  std::uint64_t id = 0;
  (void)capture([&] {
    id = capture_of(stream());
    return f(x);
  });
  EXPECT_EQ(context().release_captured(id + 1), 0u);
  EXPECT_EQ(context().release_captured(id), 2u);
}

TEST_P(CallersGraphTest, ReadsAnOutputThatMarkStepDoesNotTakeAway) {
  CompiledFunction f = compile(context(), "f", [](Tensor t) { return affine(t, 2, 0); });
  CompiledFunction g = compile(context(), "g", [](Tensor t) { return affine(t, 1, 1); });
  const std::vector<float> x = random_floats(8);
  for (int call = 0; call < 3; ++call)
    (void)f(tensor({8}, x));
  Tensor y = f(tensor({8}, x));
  const Tensor z = capture([&] { return g(y); });
  y = Tensor();
  context().mark_step();
  for (int call = 0; call < 3; ++call)
    (void)f(random_tensor({8}));

  launch();

  EXPECT_EQ(values(z), affine_of(affine_of(x, 2, 0), 1, 1));
  (void)context().release_captured();
}

TEST_P(CallersGraphTest, KeepsWhatNoteUseSaysItReads) {
  const std::vector<float> x = random_floats(8);
  Tensor y = eager(x);
  const Tensor read = random_tensor({8});
  (void)capture([&] {
    copy(read, y);
    return 0;
  });
  y = Tensor();
  const Tensor other = eager(random_floats(8));

  launch();

  EXPECT_EQ(values(read), x);
  EXPECT_EQ(context().release_captured(), 1u);
}

TEST_P(CallersGraphTest, MayHoldAnEagerGap) {
  const std::vector<float> x = random_floats(8);
  const Tensor input = tensor({8}, x);
  const Tensor y =
      capture([&] { return context().eager([&] { return affine(affine(input, 2, 0), 1, 1); }); });
  const std::vector<float> written = random_floats(8);
  const Tensor table = eager(written);

  launch();

  EXPECT_EQ(values(y), affine_of(affine_of(x, 2, 0), 1, 1));
  EXPECT_EQ(values(table), written);
  EXPECT_EQ(context().release_captured(), 3u);  // its input, too
}

// A steady call does not ask whether its stream captures: the device refuses the launch.
TEST_P(CallersGraphTest, BegunInsideAScopeIsNeverSilentlyWrong) {
  CompiledFunction f = compile(context(), "f", [](Tensor t) { return affine(t, 2, 0); });
  const std::vector<float> x = random_floats(8);
  const Tensor input = tensor({8}, x);
  const StreamScope scope(stream());
  for (int call = 0; call < 4; ++call)
    (void)f(input);
  {
    const Capture capture(stream(), CaptureMode::kThreadLocal);
    EXPECT_THROW((void)f(input), CaptureError);
  }
  EXPECT_EQ(values(f(input)), affine_of(x, 2, 0));
  const Tensor longer = random_tensor({16});
  const Tensor y = capture([&] { return f(longer); });
  launch();
  EXPECT_EQ(values(y), affine_of(values(longer), 2, 0));
  EXPECT_EQ(f.stats().skips[static_cast<int>(SkipReason::kForeignCapture)], 1u);
  (void)context().release_captured();
}

// While the stream captures, the end of the function's replays cannot be determined.
TEST_P(StreamsTest, AFunctionThatEndsWhileItsStreamCapturesKeepsNothing) {
  for (const bool ends_generation : {false, true}) {
    Context other(device());
    const CompiledFunction g = compile(other, "g", [](Tensor x) { return affine(x, 1, 0); });
    const Tensor x = random_tensor({4});
    Tensor captured = g(x);
    std::optional<CompiledFunction<Tensor(Tensor)>> f =
        compile(context(), "f", [captured](Tensor y) { return add(y, captured); });
    captured = Tensor();
    const Stream own(device());
    const StreamScope scope(own);
    for (int call = 0; call < 3; ++call)
      (void)(*f)(x);
    {
      const Capture capture(own, CaptureMode::kThreadLocal);
      f.reset();
      EXPECT_EQ(other.stats().live_outputs, 1u);
    }
    // Either context may be used first.
    ends_generation ? other.mark_step() : context().mark_step();
    EXPECT_EQ(other.stats().live_outputs, 0u);
    EXPECT_EQ(other.release_captured(), 0u);
    EXPECT_EQ(context().release_captured(), 0u);
  }
}

// The context owns the memory that its recording keeps, which must not keep the context alive.
TEST_P(StreamsTest, AContextThatEndsWhileItsStreamCapturesLeavesNothingBehind) {
  const Stream own(device());
  Tensor table;
  std::optional<CompiledFunction<Tensor(Tensor)>> f = compile(context(), "f", [&](Tensor x) {
    if (!table.defined()) table = affine(x, 1, 0);
    return add(x, table);
  });
  {
    const StreamScope scope(own);
    for (int call = 0; call < 3; ++call)
      (void)(*f)(random_tensor({4}));
  }
  table = Tensor();
  {
    const Capture capture(own, CaptureMode::kThreadLocal);
    context_.reset();
    f.reset();  // the last owner of the context
  }
  EXPECT_EQ(segments_->held(), 0);
}

TEST_P(StreamsTest, ACallInsideAStepOfAnotherContextIsRefused) {
  Context other(device());
  CompiledFunction inner = compile(other, "inner", [](Tensor x) { return affine(x, 2, 0); });
  CompiledFunction calls = compile(context(), "calls", [&](Tensor x) { return inner(x); });
  CompiledFunction opens = compile(
      context(), "opens", [&](Tensor x) { return other.eager([&] { return affine(x, 2, 0); }); });
  const Tensor x = random_tensor({8});

  EXPECT_THROW((void)calls(x), InvalidArgument);
  EXPECT_THROW((void)opens(x), InvalidArgument);
  EXPECT_EQ(values(inner(x)), affine_of(values(x), 2, 0));
}

TEST_F(StreamOrderTest, TheSourceOfACopyOnAnotherStreamIsNotOverwrittenByTheNextReplay) {
  expect_right_in_any_order([](Device device) {
    Context context(device);
    const CompiledFunction f = compile(context, "f", [](Tensor x) { return twice(x); });
    const Tensor one = filled(device, 1), two = filled(device, 2), read = filled(device, 0);
    warm(f, one);
    const Stream side(device);
    Tensor y = f(one);
    side.ref().wait_for(context.stream());
    copy(read, y, side);
    y = Tensor();
    (void)f(two);
    wait_for_all(device);
    return f.stats().replays == 3 && holds(read, 2);
  });
}

// The side stream waits for the context's stream at the fork. The eager run starts after the
// neighbour's writes.
TEST_F(StreamOrderTest, AVerifiedReplayIsBehindTheNeighbour) {
  expect_right_in_any_order([](Device device) {
    Context a(device), b(device, {.extensions = {verify({.every = 1})}});
    const Tensor cache = filled(device, 0);
    std::vector<Tensor> x;
    for (int i = 0; i < 6; ++i)
      x.push_back(filled(device, static_cast<float>(i)));
    const CompiledFunction write =
        compile(a, "write",
                [](Tensor x, Tensor cache) {
                  const Tensor y = twice(x);
                  update(cache, 0, 0);
                  enqueue_copy(current_stream(), cache, y);
                },
                {.inputs = {{}, {.is_static = true, .is_mutated = true}}});
    const CompiledFunction advance =
        compile(b, "advance", [](Tensor cache) { update(cache, 3, 1); },
                {.inputs = {{.is_static = true, .is_mutated = true}}});
    bool is_right = true;
    for (int round = 1; round <= 5; ++round) {
      write(x[round], cache);
      advance(cache);
      wait_for_all(device);
      is_right = is_right && holds(cache, static_cast<float>(6 * round + 1));
    }
    return is_right && advance.stats().verified > 0;
  });
}

TEST_F(StreamOrderTest, TheSourceOfACopyOnAnotherStreamIsNotOverwrittenByASideStream) {
  expect_right_in_any_order([](Device device) {
    Context context(device);
    const Stream side(device), reader(device);
    const auto on_side = [&](const Tensor& x, float scale) {
      side.ref().wait_for(current_stream());
      const StreamScope scope(side);
      return affine(x, scale, 0);
    };
    const CompiledFunction f = compile(context, "f", [&](Tensor x) { return on_side(x, 2); });
    const CompiledFunction g = compile(context, "g", [&](Tensor x) {
      const Tensor y = on_side(x, 3);
      current_stream().wait_for(side);
      return affine(y, 1, 0);
    });
    const Tensor one = filled(device, 1), read = filled(device, 0);
    Tensor y = f(one);
    side.ref().synchronize();
    copy(read, y, reader);
    y = Tensor();
    (void)g(one);
    wait_for_all(device);
    return holds(read, 2);
  });
}

TEST_F(StreamOrderTest, TheSourceOfACopyOnAnotherStreamIsNotOverwrittenAfterMarkStep) {
  expect_right_in_any_order([](Device device) {
    Context context(device);
    const CompiledFunction f = compile(context, "f", [](Tensor x) { return twice(x); });
    const Tensor one = filled(device, 1), two = filled(device, 2), read = filled(device, 0);
    warm(f, one);
    const Stream side(device);
    const Tensor y = f(one);
    side.ref().wait_for(context.stream());
    copy(read, y, side);
    context.mark_step();
    (void)f(two);
    wait_for_all(device);
    return holds(read, 2);
  });
}

TEST_F(StreamOrderTest, TheSourceOfACopyOnAnotherStreamIsNotOverwrittenByEagerWork) {
  expect_right_in_any_order([](Device device) {
    Context context(device);
    const Tensor one = filled(device, 1), two = filled(device, 2), read = filled(device, 0);
    const Stream side(device);
    Tensor y = context.eager([&] { return affine(one, 2, 0); });
    side.ref().wait_for(context.stream());
    copy(read, y, side);
    const std::uintptr_t before = y.address();
    y = Tensor();
    y = context.eager([&] { return affine(two, 2, 0); });
    wait_for_all(device);
    return y.address() == before && holds(read, 2);
  });
}

TEST_F(StreamOrderTest, AnInputReadOnAnotherStreamIsNotMutatedByAnotherContext) {
  expect_right_in_any_order([](Device device) {
    Context context(device), another(device);
    const CompiledFunction f = compile(another, "f", [](Tensor x) { return twice(x); });
    const CompiledFunction g = compile(context, "g", [](Tensor y) { update(y, 0, 9); },
                                       {.inputs = {{.is_mutated = true}}});
    const Tensor one = filled(device, 1), read = filled(device, 0);
    const Stream side(device);
    bool is_right = true;
    for (int call = 0; call < 6; ++call) {
      const Tensor y = f(one);
      side.ref().wait_for(another.stream());
      copy(read, y, side);
      g(y);
      wait_for_all(device);
      is_right = is_right && holds(read, 2);
    }
    return is_right;
  });
}

// Plain memory has no owner to track its readers.
TEST_F(StreamOrderTest, AReaderOfPlainMemoryIsOrderedByTheCaller) {
  expect_right_in_any_order([](Device device) {
    Context context(device);
    const CompiledFunction f = compile(context, "f", [](Tensor x) { return twice(x); });
    const Tensor one = filled(device, 1), three = filled(device, 3);
    const Tensor buffer = filled(device, 0), read = filled(device, 0);
    const Stream side(device);
    bool is_right = true;
    for (int call = 0; call < 4; ++call) {
      (void)f.into(buffer)(one);
      side.ref().wait_for(context.stream());
      copy(read, buffer, side);
      context.stream().wait_for(side);
      (void)f.into(buffer)(three);
      wait_for_all(device);
      is_right = is_right && holds(read, 2);
    }
    return is_right;
  });
}

TEST_F(StreamOrderTest, AnInputReadOnAnotherStreamIsNotMutated) {
  expect_right_in_any_order([](Device device) {
    Context context(device);
    const CompiledFunction f = compile(context, "f", [](Tensor x) { return twice(x); });
    const CompiledFunction g = compile(context, "g",
                                       [](Tensor y) {
                                         update(y, 0, 9);
                                         return affine(y, 1, 0);
                                       },
                                       {.inputs = {{.is_mutated = true}}});
    const Tensor one = filled(device, 1), read = filled(device, 0);
    const Stream side(device);
    bool is_right = true;
    for (int call = 0; call < 4; ++call) {
      const Tensor y = f(one);
      side.ref().wait_for(context.stream());
      copy(read, y, side);
      (void)g(y);
      wait_for_all(device);
      is_right = is_right && holds(read, 2);
    }
    return is_right;
  });
}

TEST_F(StreamOrderTest, AContextWaitsForTheOneThatMadeItsInput) {
  expect_right_in_any_order([](Device device) {
    Context context(device), other(device);
    const CompiledFunction f = compile(context, "f", [](Tensor x) { return twice(x); });
    const CompiledFunction g = compile(other, "g", [](Tensor x) { return affine(x, 1, 1); });
    const Tensor one = filled(device, 1);
    bool is_right = true;
    for (int call = 0; call < 5; ++call) {
      const Tensor z = g(f(one));
      is_right = is_right && holds(z, 3);
    }
    return is_right && g.stats().replays == 3;
  });
}

TEST_F(StreamOrderTest, AContextDoesNotOverwriteWhatAnotherReads) {
  expect_right_in_any_order([](Device device) {
    Context context(device), other(device);
    const CompiledFunction f = compile(context, "f", [](Tensor x) { return twice(x); });
    const CompiledFunction g = compile(other, "g", [](Tensor x) { return affine(x, 1, 1); });
    const Tensor one = filled(device, 1), two = filled(device, 2);
    bool is_right = true;
    for (int call = 0; call < 5; ++call) {
      const Tensor z = g(f(one));
      (void)f(two);
      is_right = is_right && holds(z, 3);
    }
    return is_right;
  });
}

// The output is not an input: only the recording knows that it is read.
TEST_F(StreamOrderTest, AContextDoesNotOverwriteWhatARecordingOfAnotherHasCaptured) {
  expect_right_in_any_order([](Device device) {
    Context context(device), other(device);
    const CompiledFunction f = compile(other, "f", [](Tensor x) { return twice(x); });
    const Tensor one = filled(device, 1), two = filled(device, 2);
    (void)f(one);
    const Tensor captured = f(one);  // at the address that the recording uses
    wait_for_all(device);
    const CompiledFunction g =
        compile(context, "g", [&](Tensor x) { return add(affine(x, 1, 1), captured); });
    warm(g, one);
    const Tensor z = g(one);
    other.mark_step();
    const Tensor again = f(two);
    return again.address() == captured.address() && holds(z, 4) && g.stats().replays == 2;
  });
}

// During the capture the device cannot be asked whether earlier replays are done.
TEST_F(StreamOrderTest, TensorsOfARecordingStayWhileItsContextCapturesAStep) {
  expect_right_in_any_order([](Device device) {
    Context context(device), other(device);
    const CompiledFunction f = compile(other, "f", [](Tensor x) { return twice(x); });
    const Tensor one = filled(device, 1), two = filled(device, 2), cache = filled(device, 0);
    (void)f(one);
    const Tensor captured = f(one);  // at the address that the recording uses
    const auto is_stale = [&] { return captured.storage()->state() == Storage::State::kStale; };
    wait_for_all(device);
    const CompiledFunction g =
        compile(context, "g", [&](Tensor x) { return add(affine(x, 1, 1), captured); });
    Steps steps(context, "steps", {.bindings = {{.name = "cache", .is_mutated = true}}});
    const Binding given[] = {{reinterpret_cast<const void*>(cache.address()), cache.bytes()}};
    std::optional<StreamScope> scope;
    const Stream own(device);
    scope.emplace(own);
    const auto step = [&](auto&& inside) {
      for (Step step = steps.begin({}, given); step.must_run(); step.end()) {
        update(cache, 1, 1);
        inside(step.is_captured());
      }
    };
    step([](bool) {});
    warm(g, one);
    wait_for_all(device);
    const Tensor z = g(one);
    bool was_captured = false;
    step([&](bool is_captured) {
      was_captured = is_captured;
      other.mark_step();
    });
    scope.reset();
    const bool stays = !is_stale();
    (void)f(two);
    wait_for_all(device);
    const bool is_right = was_captured && stays && holds(z, 4);
    const Tensor again = g(one);
    other.mark_step();  // now it ends
    (void)f(two);
    wait_for_all(device);
    return is_right && is_stale() && holds(again, 4) && holds(cache, 2);
  });
}

// The second part of the step reads an output that the break has ended; an eager run throws
// StaleTensor.
TEST_F(StreamOrderTest, AnOutputEndedInABreakIsNotReadAfterIt) {
  expect_right_in_any_order([](Device device) {
    Context context(device), other(device);
    const CompiledFunction f = compile(other, "f", [](Tensor x) { return twice(x); });
    const Tensor one = filled(device, 1), two = filled(device, 2);
    (void)f(one);
    const Tensor captured = f(one);  // at the address that the recording uses
    wait_for_all(device);
    bool ends = false;
    const CompiledFunction g = compile(context, "g", [&](Tensor x) {
      const Tensor y = affine(x, 1, 1);
      eager_break([&](const StepValues&) {
        if (ends) other.mark_step();
      });
      return add(y, captured);
    });
    warm(g, one);
    ends = true;
    try {
      const Tensor z = g(one);
      (void)f(two);
      wait_for_all(device);
      return holds(z, 4);
    } catch (const StaleTensor&) {
      return true;
    }
  });
}

// The graph overwrites memory that the reader may still read: its launch is not ordered behind the
// reader.
TEST_F(StreamOrderTest, AnInputReadOnAnotherStreamIsNotMutatedByACapturedCall) {
  expect_right_in_any_order([](Device device) {
    Context context(device);
    const CompiledFunction f = compile(context, "f", [](Tensor x) { return twice(x); });
    const CompiledFunction g = compile(context, "g", [](Tensor y) { update(y, 0, 9); },
                                       {.inputs = {{.is_mutated = true}}});
    const Tensor one = filled(device, 1), read = filled(device, 0);
    const Stream side(device), callers(device);
    const Tensor y = f(one);
    side.ref().wait_for(context.stream());
    copy(read, y, side);
    Graph graph;
    {
      Capture capture(callers, CaptureMode::kThreadLocal);
      const StreamScope scope(callers);
      g(y);
      check(capture.end(&graph), "end the capture");
    }
    const GraphExec exec(callers.ref().graphs(), graph);
    callers.ref().wait_for(context.stream());
    check(exec.api().launch(exec.handle(), callers.ref().handle()), "launch");
    wait_for_all(device);
    const bool is_right = holds(read, 2) && holds(y, 9);
    (void)context.release_captured();
    return is_right;
  });
}

// The context's stream captures, and cannot wait for work outside the capture.
TEST_F(StreamOrderTest, ACapturedCallOnTheContextsOwnStreamComesBehindReadersAndProducers) {
  expect_right_in_any_order([](Device device) {
    const Stream own(device);
    Context context(device, {.stream = own.ref()}), other(device);
    const CompiledFunction f = compile(context, "f", [](Tensor x) { return twice(x); });
    const CompiledFunction h = compile(other, "h", [](Tensor x) { return twice(twice(x)); });
    const CompiledFunction g = compile(context, "g",
                                       [](Tensor y, Tensor x) {
                                         update(y, 0, 9);
                                         return affine(x, 1, 1);
                                       },
                                       {.inputs = {{.is_mutated = true}}});
    const Tensor one = filled(device, 1), read = filled(device, 0);
    const Stream side(device);
    const Tensor y = f(one);
    side.ref().wait_for(own);
    copy(read, y, side);
    const Tensor made = h(one);
    Graph graph;
    Tensor z;
    {
      Capture capture(own, CaptureMode::kThreadLocal);
      z = g(y, made);
      check(capture.end(&graph), "end the capture");
    }
    const GraphExec exec(own.ref().graphs(), graph);
    check(exec.api().launch(exec.handle(), own.ref().handle()), "launch");
    wait_for_all(device);
    const bool is_right = holds(read, 2) && holds(y, 9) && holds(z, 5);
    (void)context.release_captured();
    (void)other.release_captured();
    return is_right;
  });
}

// Another context has worked on the stream that now captures, so that no event can be recorded on
// it. One context is on its own stream, the other on that stream.
TEST_F(StreamOrderTest, ACapturedCallTakesWhatWasMadeOnTheStreamThatCaptures) {
  for (const bool is_at_home : {true, false}) {
    expect_right_in_any_order([is_at_home](Device device) {
      const Stream stream(device);
      Context context(device), other(device);
      const CompiledFunction f = compile(context, "f", [](Tensor x) { return affine(x, 1, 1); });
      const CompiledFunction h = compile(other, "h", [](Tensor x) { return twice(twice(x)); });
      const Tensor one = filled(device, 1);
      Tensor made, z;
      Graph graph;
      {
        const StreamScope scope(stream);
        if (!is_at_home) (void)f(one);
        made = h(one);
        Capture capture(stream, CaptureMode::kThreadLocal);
        const StreamScope inside(stream);
        z = f(made);
        check(capture.end(&graph), "end the capture");
      }
      context.stream().wait_for(stream);
      const GraphExec exec(stream.ref().graphs(), graph);
      check(exec.api().launch(exec.handle(), stream.ref().handle()), "launch");
      wait_for_all(device);
      const bool is_right = holds(made, 4) && holds(z, 5);
      (void)context.release_captured();
      (void)other.release_captured();
      return is_right;
    });
  }
}

// The context has worked on the stream on which the capture began, and the call is on a branch.
TEST_F(StreamOrderTest, ACallOnABranchOfACaptureTakesWhatWasMadeOutsideOfIt) {
  expect_right_in_any_order([](Device device) {
    const Stream stream(device), branch(device);
    Context context(device), other(device);
    const CompiledFunction f = compile(context, "f", [](Tensor x) { return affine(x, 1, 1); });
    const CompiledFunction h = compile(other, "h", [](Tensor x) { return twice(twice(x)); });
    const Tensor one = filled(device, 1);
    {
      const StreamScope scope(stream);
      (void)f(one);
    }
    const Tensor made = h(one);
    Tensor z;
    Graph graph;
    {
      Capture capture(stream, CaptureMode::kThreadLocal);
      branch.ref().wait_for(stream);
      {
        const StreamScope inside(branch);
        z = f(made);
      }
      stream.ref().wait_for(branch);
      check(capture.end(&graph), "end the capture");
    }
    const GraphExec exec(stream.ref().graphs(), graph);
    check(exec.api().launch(exec.handle(), stream.ref().handle()), "launch");
    wait_for_all(device);
    const bool is_right = holds(z, 5);
    (void)context.release_captured();
    (void)other.release_captured();
    return is_right;
  });
}

// The library works on a branch of the capture, before and after the call.
TEST_F(StreamOrderTest, ACapturedCallIsOrderedWithALibraryInTheSameCapture) {
  expect_right_in_any_order([](Device device) {
    const Stream stream(device), branch(device);
    Context context(device);
    const CompiledFunction f = compile(context, "f", [](Tensor x) { return affine(x, 1, 1); });
    const Tensor four = filled(device, 4), nine = filled(device, 9), memory = filled(device, 0);
    ForeignArray array = array_of(memory);
    array.owner = std::make_shared<Tensor>(memory);
    const Tensor lent = wrap_array(std::move(array), branch, branch);
    Tensor z;
    Graph graph;
    {
      Capture capture(stream, CaptureMode::kThreadLocal);
      branch.ref().wait_for(stream);
      enqueue_copy(branch, memory, four);
      {
        const StreamScope inside(stream);
        z = f(lent);
      }
      enqueue_copy(branch, memory, nine);
      stream.ref().wait_for(branch);
      check(capture.end(&graph), "end the capture");
    }
    const GraphExec exec(stream.ref().graphs(), graph);
    check(exec.api().launch(exec.handle(), stream.ref().handle()), "launch");
    wait_for_all(device);
    const bool is_right = holds(z, 5) && holds(memory, 9);
    (void)context.release_captured();
    return is_right;
  });
}

// The outer step function has the tensor in its closure.
TEST_F(StreamOrderTest, AnInputReadOnAnotherStreamIsNotMutatedByANestedCall) {
  expect_right_in_any_order([](Device device) {
    Context context(device);
    const CompileOptions mutates{.inputs = {{.is_mutated = true}}};
    const CompiledFunction f = compile(context, "f", [](Tensor x) { return twice(x); });
    const CompiledFunction set = compile(
        context, "set", [](Tensor y) { update(y, 0, 2); }, mutates);
    const CompiledFunction inner = compile(
        context, "inner", [](Tensor y) { update(y, 0, 9); }, mutates);
    const Tensor one = filled(device, 1), read = filled(device, 0);
    const Tensor table = f(one);
    const CompiledFunction g = compile(context, "g", [&](Tensor x) {
      inner(table);
      return affine(x, 1, 1);
    });
    const Stream side(device);
    bool is_right = true;
    for (int call = 0; call < 5; ++call) {
      set(table);
      side.ref().wait_for(context.stream());
      copy(read, table, side);
      (void)g(one);
      wait_for_all(device);
      is_right = is_right && holds(read, 2) && holds(table, 9);
    }
    return is_right && g.stats().replays == 3;
  });
}

// A replay does not ask another context for readers of memory that is not an input.
TEST_P(StreamsTest, AnOutputOfAnotherContextThatANestedCallWritesIsToBePassedIn) {
  Context other(device());
  const CompiledFunction f = compile(other, "f", [](Tensor x) { return affine(x, 2, 0); });
  const CompiledFunction inner = compile(context(), "inner", [](Tensor y) { update(y, 1, 1); },
                                         {.inputs = {{.is_mutated = true}}});
  const std::vector<float> x = random_floats(4);
  const Tensor table = f(tensor({4}, x));
  const CompiledFunction g = compile(context(), "g", [&](Tensor y) {
    inner(table);
    return affine(y, 1, 1);
  });
  const CapturedLog log;
  for (int call = 0; call < 3; ++call)
    (void)g(tensor({4}, x));
  context().synchronize();
  EXPECT_EQ(values(table), affine_of(x, 2, 3));
  EXPECT_EQ(g.stats().recordings, 0u);
  EXPECT_THAT(log.lines(), ::testing::Contains(::testing::AllOf(
                               ::testing::HasSubstr("skip function=g"),
                               ::testing::HasSubstr("pass it as an input that is mutated"))));
}

// A graph launched behind the context's stream may run before the other context has made the input.
TEST_F(StreamOrderTest, ACapturedCallWaitsForTheContextThatMadeItsInput) {
  expect_right_in_any_order([](Device device) {
    Context context(device), other(device);
    const CompiledFunction f = compile(other, "f", [](Tensor x) { return twice(x); });
    const CompiledFunction g = compile(context, "g", [](Tensor x) { return affine(x, 1, 1); });
    const Tensor one = filled(device, 1);
    const Stream callers(device);
    const Tensor y = f(one);
    Graph graph;
    Tensor z;
    {
      Capture capture(callers, CaptureMode::kThreadLocal);
      const StreamScope scope(callers);
      z = g(y);
      check(capture.end(&graph), "end the capture");
    }
    const GraphExec exec(callers.ref().graphs(), graph);
    callers.ref().wait_for(context.stream());
    check(exec.api().launch(exec.handle(), callers.ref().handle()), "launch");
    wait_for_all(device);
    const bool is_right = holds(z, 3);
    (void)context.release_captured();
    (void)other.release_captured();
    return is_right;
  });
}

TEST_F(StreamOrderTest, WorkOfBeforeFirstLaunchIsInFrontOfTheLaunch) {
  expect_right_in_any_order([](Device device) {
    const Tensor table = filled(device, 1), seven = filled(device, 7);
    Context context(device, {.before_first_launch = [&](const NewRecording&) {
                      enqueue_copy(current_stream(), table, seven);
                    }});
    const CompiledFunction f = compile(context, "f", [&](Tensor x) { return add(x, table); });
    const Tensor one = filled(device, 1);
    (void)f(one);
    const Tensor y = f(one);
    wait_for_all(device);
    return holds(y, 8);
  });
}

TEST_F(StreamOrderTest, AReaderThatBeforeFirstLaunchAnnouncesIsWaitedFor) {
  expect_right_in_any_order([](Device device) {
    const Tensor one = filled(device, 1), two = filled(device, 2), read = filled(device, 0);
    const Stream side(device);
    Tensor y;
    Context context(device, {.before_first_launch = [&](const NewRecording&) {
                      if (!y.defined()) return;
                      side.ref().wait_for(current_stream());
                      copy(read, y, side);
                    }});
    const CompiledFunction f = compile(context, "f", [](Tensor x) { return twice(x); });
    const CompiledFunction g = compile(context, "g", [](Tensor x) { return affine(x, 1, 0); });
    warm(f, one);
    (void)g(one);
    y = f(one);
    (void)g(one);
    y = Tensor();
    (void)f(two);
    wait_for_all(device);
    return holds(read, 2);
  });
}

TEST_F(StreamOrderTest, AllocationsOfBeforeFirstLaunchAreNotReadByAnotherStreamLater) {
  expect_right_in_any_order([](Device device) {
    const Tensor one = filled(device, 1), read = filled(device, 0);
    const Stream side(device);
    Context context(device, {.before_first_launch = [&](const NewRecording&) {
                      Tensor table = empty({kSize}, DType::kFloat32);
                      update(table, 0, 2);
                      side.ref().wait_for(current_stream());
                      copy(read, table, side);
                      table = Tensor();
                      table = empty({kSize}, DType::kFloat32);
                      update(table, 0, 3);
                    }});
    const CompiledFunction f = compile(context, "f", [](Tensor x) { return twice(x); });
    warm(f, one);
    wait_for_all(device);
    return holds(read, 2);
  });
}

TEST_F(StreamOrderTest, AReaderThatIsAnnouncedAfterMarkStepIsWaitedFor) {
  expect_right_in_any_order([](Device device) {
    Context context(device);
    const CompiledFunction f = compile(context, "f", [](Tensor x) { return twice(x); });
    const Tensor one = filled(device, 1), two = filled(device, 2), read = filled(device, 0);
    warm(f, one);
    const Stream side(device);
    const Tensor y = f(one);
    side.ref().wait_for(context.stream());
    enqueue_copy(side, read, y);
    context.mark_step();
    note_use(y.storage(), side);  // y stays held
    (void)f(two);
    side.synchronize();
    return holds(read, 2);
  });
}

TEST_F(StreamOrderTest, AStaticInputOfAnotherContextIsOrderedToo) {
  expect_right_in_any_order([](Device device) {
    Context context(device), other(device);
    const CompiledFunction g = compile(other, "g", [](Tensor x) { return affine(x, 1, 1); },
                                       {.inputs = {{.is_static = true}}});
    const Tensor state = context.eager([&] { return affine(filled(device, 1), 1, 0); });
    bool is_right = true;
    for (int call = 0; call < 5; ++call) {
      const auto value = static_cast<float>(call);
      context.eager([&] { update(state, 0, value); });
      is_right = is_right && holds(g(state), value + 1);
    }
    return is_right && g.stats().replays == 3;
  });
}

TEST_F(StreamOrderTest, CallersThatTakeTurnsOnTwoStreamsDoNotOverwriteEachOthersOutputs) {
  expect_right_in_any_order([](Device device) {
    Context context(device);
    const CompiledFunction f = compile(context, "f", [](Tensor x) { return twice(x); });
    const Tensor one = filled(device, 1), two = filled(device, 2);
    const Tensor first_read = filled(device, 0), second_read = filled(device, 0);
    const Stream first(device), second(device);
    warm(f, one);
    for (int turn = 0; turn < 3; ++turn) {
      {
        const StreamScope scope(first);
        enqueue_copy(first, first_read, f(one));
      }
      const StreamScope scope(second);
      enqueue_copy(second, second_read, f(two));
    }
    wait_for_all(device);
    return holds(first_read, 2) && holds(second_read, 4);
  });
}

// In both directions and for every kind of call: warm-up, recording, replay, eager.
TEST_F(StreamOrderTest, ACallIsBehindWhatItsCallerEnqueuedAndBeforeWhatTheCallerEnqueuesNext) {
  expect_right_in_any_order([](Device device) {
    Context context(device);
    const CompiledFunction f =
        compile(context, "f", [](Tensor x) { return twice(x); }, {.inputs = {{.is_static = true}}});
    const Tensor x = filled(device, -1), read = filled(device, -1), poison = filled(device, -2);
    std::vector<Tensor> sources;
    for (int call = 0; call < 5; ++call)
      sources.push_back(filled(device, static_cast<float>(call)));
    const Stream stream(device);
    bool is_right = true;
    for (int call = 0; call < 5; ++call) {
      {
        const StreamScope scope(stream);
        enqueue_copy(stream, x, sources[static_cast<std::size_t>(call)]);
        const Tensor y = call == 4 ? context.eager([&] { return twice(x); }) : f(x);
        enqueue_copy(stream, x, poison);
        enqueue_copy(stream, read, y);
      }
      wait_for_all(device);
      is_right = is_right && holds(read, 2 * static_cast<float>(call));
    }
    return is_right;
  });
}

TEST_F(StreamOrderTest, ACallerWithoutAStreamComesAfterOneThatHasOne) {
  expect_right_in_any_order([](Device device) {
    Context context(device);
    const CompiledFunction f = compile(context, "f", [](Tensor x) { return twice(x); });
    const Tensor one = filled(device, 1), two = filled(device, 2), read = filled(device, 0);
    const Stream stream(device);
    warm(f, one);
    {
      const StreamScope scope(stream);
      enqueue_copy(stream, read, f(one));
    }
    const bool is_right = holds(f(two), 4);
    wait_for_all(device);
    return is_right && holds(read, 2);
  });
}

TEST_F(StreamOrderTest, AStreamMayBeDestroyedWhileItsWorkIsPending) {
  expect_right_in_any_order([](Device device) {
    Context context(device);
    const CompiledFunction f = compile(context, "f", [](Tensor x) { return twice(x); });
    const Tensor one = filled(device, 1), two = filled(device, 2), read = filled(device, 0);
    Tensor last;
    for (int call = 0; call < 5; ++call) {
      const Stream stream(device);
      const StreamScope scope(stream);
      last = f(one);
      enqueue_copy(stream, read, last);
      last = Tensor();
    }
    last = f(two);
    const bool is_right = holds(last, 4);
    wait_for_all(device);
    return is_right && holds(read, 2);
  });
}

TEST_F(StreamOrderTest, AReadersStreamMayBeDestroyedBeforeTheTensorIsReleased) {
  expect_right_in_any_order([](Device device) {
    Context context(device);
    const CompiledFunction f = compile(context, "f", [](Tensor x) { return twice(x); });
    const Tensor one = filled(device, 1), two = filled(device, 2), read = filled(device, 0);
    warm(f, one);
    Tensor y = f(one);
    {
      const Stream side(device);
      side.ref().wait_for(context.stream());
      copy(read, y, side);
    }
    y = Tensor();
    (void)f(two);
    wait_for_all(device);
    return holds(read, 2);
  });
}

TEST_F(StreamOrderTest, AContextThatEndsWaitsForTheReadersOfItsMemory) {
  expect_right_in_any_order(
      [](Device device) {
        const Stream side(device), caller(device);
        const Tensor one = filled(device, 1);
        const Tensor read = filled(device, 0), other_read = filled(device, 0);
        {
          Context context(device);
          const CompiledFunction f = compile(context, "f", [](Tensor x) { return twice(x); });
          Tensor y = f(one);
          side.ref().wait_for(context.stream());
          copy(read, y, side);
          const StreamScope scope(caller);
          y = f(one);
          enqueue_copy(caller, other_read, y);
        }
        static_cast<void>(
            device_api(device).synchronize_device(device.id));  // findings are reported
        return holds(read, 2) && holds(other_read, 2);
      },
      /*free_waits=*/false);
}

TEST(EndingContextTest, WorkIsWaitedForBeforeItsMemoryGoesToOthers) {
  for (const DeviceUnderTest& under_test : devices_that_work_later()) {
    if (!under_test.missing.empty()) continue;
    const Context other(under_test.device);  // keeps the device's memory
    auto context = std::make_unique<Context>(under_test.device);
    Gate gate(context->stream());
    const auto opens = std::async(std::launch::async, [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      gate.open();
    });
    context.reset();
    EXPECT_FALSE(gate.is_closed());
  }
}

// The end of a context waits for its work, which may wait for later work of other threads: for
// instance a part of a collective, on a stream or in a context that they have yet to make.
TEST(EndingContextTest, StreamsAndContextsComeAndGoMeanwhile) {
  FullStream driver;
  const Device device = driver.device();
  std::future<void> ending, destroying, making;
  {
    auto context = std::make_unique<Context>(device);
    auto used = std::make_unique<Stream>(device);
    auto unused = std::make_unique<Stream>(device);
    {
      const StreamScope scope(*used);
      const CompiledFunction f = compile(*context, "f", [](Tensor x) { return affine(x, 2, 1); });
      (void)f(from_host<float>({3}, std::vector<float>{1, 2, 3}, device));
    }
    driver.stall();
    ending = std::async(std::launch::async, [&] { context.reset(); });
    ASSERT_TRUE(driver.wait_until_blocked());

    EXPECT_TRUE(ends_soon(destroying, [&] {
      unused.reset();
      used.reset();  // the stream of the context
    }));
    EXPECT_TRUE(ends_soon(making, [&] {
      const StreamWatch watch([](StreamRef, StreamIdentity) {});
      const Stream stream(device);
    }));
    driver.drain();
    ending.get();
    destroying.get();
    making.get();
  }
}

// With a trace.
TEST(StreamsTraceTest, ASteadyLoopOnTheCallersStreamMakesOneDriverCallPerReplay) {
  CallTrace trace(host_device_api());
  HostSlot::instance().put(trace.device());
  const Device device = HostSlot::instance().device();
  {
    Context context(device);
    const CompiledFunction f = compile(context, "f", [](Tensor x) { return affine(x, 2, 1); });
    const std::vector<float> values = {1, 2, 3};
    const Tensor x = from_host<float>({3}, values, device);
    const Stream stream(device);
    const StreamScope scope(stream);
    for (int call = 0; call < 4; ++call)
      (void)f(x);
    trace.clear();

    for (int call = 0; call < 10; ++call)
      (void)f(x);

    EXPECT_EQ(trace.calls().size(), 10u);
    for (const TracedCall& call : trace.calls()) {
      EXPECT_STREQ(call.function, "launch") << to_string(call);
      EXPECT_EQ(call.stream, stream.ref().handle()) << to_string(call);
    }
  }
  HostSlot::instance().put(host_device_api());
}

}  // namespace
}  // namespace cgtree::testing
