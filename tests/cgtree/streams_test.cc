// Streams: calls are ordered with the caller's stream; side streams may join; contexts stand apart.
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

class StreamsTest : public TreeTest {};
CGTREE_ON_ALL_DEVICES(StreamsTest);

// An output may be the last that needs the stream.
TEST_P(StreamsTest, WhatOwnsTheStreamIsKeptUntilContextAndOutputsAreGone) {
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

// Row 43 warmup_stream_sync: results of every phase are visible on the caller's stream.
TEST_P(StreamsTest, ACallerOnAStreamOfItsOwnNeedsNoSynchronisation) {
  Stream stream(device());
  CompiledFunction f = compile(context(), "f", [](Tensor x) {
    for (int i = 0; i < 100; ++i)
      x = affine(x, 1, 1);  // long enough to be late
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
      update(scratch, 1, 1);  // forgot current_stream()
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

// Another thread may read an output while the context records: it must not end up in the graph.
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
  EXPECT_EQ(nlohmann::json::parse(context().snapshot_json())["nodes"][0]["graph_nodes"], 2);
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

// Row 4.3 graph_concurrent_replay, of separate pools: contexts side by side on one device, each on
// a thread of its own, record and replay at once.
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

}  // namespace
}  // namespace cgtree::testing
