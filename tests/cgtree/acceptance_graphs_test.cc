// Graphs that are captured by hand, and recordings in the cases where such graphs go wrong.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "extensions/watch/monitor.h"
#include "interop/device/device_api.h"
#include "interop/device/graph.h"
#include "interop/tensor/empty.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;

class AcceptanceGraphsTest : public TreeTest {
 protected:
  static Graph captured(StreamRef stream, const Tensor& x, int count) {
    Graph graph;
    Capture capture(stream, CaptureMode::kThreadLocal);
    const StreamScope scope(stream);
    for (int i = 0; i < count; ++i)
      update(x, 1, 1);
    check(capture.end(&graph), "capture");
    return graph;
  }
  static void launch(const GraphExec& exec, StreamRef stream) {
    check(exec.api().launch(exec.handle(), stream.handle()), "launch");
    stream.synchronize();
  }
  static std::int64_t reserved(Context& context, const char* pool) {
    const auto snapshot = nlohmann::json::parse(snapshot_json(context));
    return snapshot["pools"][pool]["reserved_bytes"]["current"];
  }
};
CGTREE_ON_ALL_DEVICES(AcceptanceGraphsTest);

// Row 4.3 graph_is_current_stream_capturing.
// Acceptance: graphs graph_is_current_stream_capturing.
TEST_P(AcceptanceGraphsTest, AStreamKnowsWhetherItCaptures) {
  const Stream stream(device());
  EXPECT_FALSE(stream.ref().is_capturing());
  {
    Graph graph;
    Capture capture(stream, CaptureMode::kThreadLocal);
    EXPECT_TRUE(stream.ref().is_capturing());
    ASSERT_EQ(capture.end(&graph), Code::kSuccess);
  }
  EXPECT_FALSE(stream.ref().is_capturing());

  std::vector<bool> seen;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    seen.push_back(current_stream().is_capturing());
    return affine(x, 2, 0);
  });
  for (int call = 0; call < 3; ++call)
    (void)f(random_tensor({2}));
  EXPECT_EQ(seen, (std::vector<bool>{false, true}));
}

// Row 4.3 graph_capture_simple.
// Acceptance: graphs graph_capture_simple.
TEST_P(AcceptanceGraphsTest, TenAdditionsAreReplayed) {
  const Stream stream(device());
  const Tensor x = tensor({3}, std::vector<float>{0, 100, 200});
  const Graph graph = captured(stream, x, 10);
  EXPECT_EQ(values(x)[0], 0);
  const GraphExec exec(stream.ref().graphs(), graph);

  launch(exec, stream);
  EXPECT_EQ(values(x), (std::vector<float>{10, 110, 210}));
  launch(exec, stream);
  EXPECT_EQ(values(x), (std::vector<float>{20, 120, 220}));
}

// Rows 4.3 graph_capture_reset_recapture and cuda_graph_raw_graph_reset_and_recapture.
// Acceptance: graphs graph_capture_reset_recapture, raw_graph.
TEST_P(AcceptanceGraphsTest, AGraphThatWasDroppedIsCapturedAgainOnTheSameStream) {
  const Stream stream(device());
  const Tensor x = tensor({1}, std::vector<float>{0});
  Graph graph = captured(stream, x, 2);
  GraphExec exec(stream.ref().graphs(), graph);
  launch(exec, stream);

  exec = GraphExec();
  graph = Graph();
  graph = captured(stream, x, 5);
  exec = GraphExec(stream.ref().graphs(), graph);
  launch(exec, stream);

  EXPECT_EQ(values(x)[0], 7);
}

// Rows 4.3 cuda_graph_raw_graph, _raw_graph_exec and _keep_graph_false: handles live as long as
// their owners; a graph that is instantiated twice gives two executables that outlive it.
// Acceptance: graphs raw_graph.
TEST_P(AcceptanceGraphsTest, OneGraphIsInstantiatedTwiceAndItsHandlesAreThereWhileItIs) {
  const Stream stream(device());
  const Tensor x = tensor({1}, std::vector<float>{0});
  Graph graph = captured(stream, x, 3);
  EXPECT_NE(graph.handle(), GraphHandle::kNull);
  const GraphExec one(stream.ref().graphs(), graph);
  const GraphExec two(stream.ref().graphs(), graph);
  EXPECT_NE(one.handle(), two.handle());
  launch(one, stream);
  launch(two, stream);
  EXPECT_EQ(values(x)[0], 6);

  graph = Graph();
  EXPECT_EQ(graph.handle(), GraphHandle::kNull);
  EXPECT_EQ(GraphExec().handle(), ExecHandle::kNull);
  launch(one, stream);
  EXPECT_EQ(values(x)[0], 9);
}

// Row 4.3 graph_error: the default stream cannot be captured.
// Acceptance: graphs graph_error.
TEST_P(AcceptanceGraphsTest, CapturingTheLegacyStreamIsRefusedInWords) {
  const StreamRef legacy(device(), StreamHandle::kLegacy);
  try {
    const Capture capture(legacy, CaptureMode::kThreadLocal);
    FAIL() << "nothing was thrown";
  } catch (const CaptureError& error) {
    EXPECT_EQ(error.code(), static_cast<int>(Code::kStreamCaptureUnsupported));
    EXPECT_THAT(std::string(error.message()), HasSubstr("cudaErrorStreamCaptureUnsupported"));
    EXPECT_THAT(std::string(error.message()), HasSubstr("legacy"));
  }
  (void)legacy.graphs().take_last_error();
  EXPECT_FALSE(legacy.is_capturing());
}

// Row 4.3 graph_two_successive: a pool that two graphs share has exactly one segment of 2 MiB fewer
// than two pools.
// Acceptance: graphs graph_two_successive.
TEST_P(AcceptanceGraphsTest, TwoFunctionsThatShareAPoolSaveOneSegment) {
  const auto run = [&](Context& first, Context& second) {
    CompiledFunction f =
        compile(first, "f", [](Tensor x) { return affine(affine(x, 2, 0), 1, 1); });
    CompiledFunction g =
        compile(second, "g", [](Tensor x) { return affine(affine(x, 3, 0), 1, 1); });
    for (int call = 0; call < 4; ++call) {
      const std::vector<float> x = random_floats(5);
      const Tensor y = f(tensor({5}, x));
      EXPECT_EQ(values(g(y)), affine_of(affine_of(x, 2, 1), 3, 1));
    }
  };
  Context shared(device()), one(device()), other(device());
  run(shared, shared);
  run(one, other);

  for (const char* pool : {"output", "scratch"}) {
    EXPECT_EQ(reserved(shared, pool), 2 << 20) << pool;
    EXPECT_EQ(reserved(one, pool) + reserved(other, pool) - reserved(shared, pool), 2 << 20)
        << pool;
  }
}

// Row 4.3 graph_three_successive: replays in every order overwrite no output while all are held.
// Acceptance: graphs graph_three_successive, graph_make_graphed_callables.
TEST_P(AcceptanceGraphsTest, ThreeFunctionsOfOnePoolMayReplayInAnyOrder) {
  std::vector<CompiledFunction<Tensor(Tensor)>> functions;
  for (const float scale : {2.0f, 3.0f, 4.0f}) {
    functions.push_back(compile(context(), fmt::format("times{}", scale),
                                [=](Tensor x) { return affine(affine(x, 1, 1), scale, 0); }));
  }
  // Without held outputs, so that all three record at the same addresses.
  for (const auto& function : functions) {
    for (int call = 0; call < 2; ++call)
      (void)function(random_tensor({100}));
  }
  std::vector<int> order = {0, 1, 2};
  for (int round = 0; round < 3; ++round) {
    do {
      std::vector<Tensor> held;
      std::vector<std::vector<float>> expected;
      for (const int i : order) {
        const std::vector<float> x = random_floats(100);
        held.push_back(functions[i](tensor({100}, x)));
        expected.push_back(affine_of(affine_of(x, 1, 1), 2.0f + i, 0));
      }
      for (std::size_t i = 0; i < held.size(); ++i)
        EXPECT_EQ(values(held[i]), expected[i]);
    } while (std::next_permutation(order.begin(), order.end()));
  }
  EXPECT_GT(stats().replays, 30u);
}

// Row 4.3 graph_concurrent_replay: two callers' streams share a pool; their replays are ordered.
// Acceptance: graphs graph_concurrent_replay.
TEST_P(AcceptanceGraphsTest, ReplaysForTwoStreamsThatShareAPoolRunOneAfterTheOther) {
  const Stream streams[] = {Stream(device()), Stream(device())};
  const auto long_step = [](float shift) {
    return [=](Tensor x) {
      for (int i = 0; i < 50; ++i)
        x = affine(x, 1, shift);
      return x;
    };
  };
  CompiledFunction f = compile(context(), "f", long_step(1));
  CompiledFunction g = compile(context(), "g", long_step(2));

  for (int call = 0; call < 2; ++call) {  // without held outputs, so that both write at one address
    (void)f(random_tensor({1 << 14}));
    (void)g(random_tensor({1 << 14}));
  }
  for (int call = 0; call < 6; ++call) {
    const Tensor x = tensor({1 << 14}, std::vector<float>(1 << 14, static_cast<float>(call)));
    Tensor y, z;
    {
      const StreamScope scope(streams[0]);
      y = f(x);
    }
    {
      const StreamScope scope(streams[1]);
      z = g(x);
    }
    std::vector<float> first(1 << 14), second(1 << 14);
    y.copy_to_host(first.data(), y.bytes(), streams[0]);
    z.copy_to_host(second.data(), z.bytes(), streams[1]);
    EXPECT_EQ(first, std::vector<float>(1 << 14, call + 50.0f));
    EXPECT_EQ(second, std::vector<float>(1 << 14, call + 100.0f));
  }
  EXPECT_GE(stats().replays, 6u);
}

// Row 4.3 repeat_graph_capture_cublas_workspace_memory: a hundred captures of a function with a
// workspace take no more memory than the first few.
// Acceptance: graphs repeat_graph_capture_cublas_workspace_memory.
TEST_P(AcceptanceGraphsTest, AHundredCapturesTakeNoMoreMemoryThanTheFirst) {
  CompiledFunction f =
      compile(context(), "f",
              [](Tensor x) {
                const Workspace workspace(x.device(), 8 << 20);
                return affine(x, 2, 0);
              },
              {.require_graph = true, .max_recordings = 1, .at_limit = AtLimit::kEvict});
  std::size_t before = 0;
  for (int round = 0; round < 51; ++round) {
    if (round == 1) before = stats().pool_reserved_bytes;
    for (const std::int64_t size : {2, 2, 3, 3})
      (void)f(random_tensor({size}));
  }

  EXPECT_GE(f.stats().recordings, 100u);
  EXPECT_GE(before, std::size_t{8} << 20);
  EXPECT_EQ(stats().pool_reserved_bytes, before);
}

// Row 4.3 cuda_graph_error_options: another thread may allocate while a step function is recorded.
// Acceptance: graphs cuda_graph_error_options.
TEST_P(AcceptanceGraphsTest, AnotherThreadMayAllocateWhileAFunctionIsRecorded) {
  CompiledFunction f = compile(context(), "f",
                               [&](Tensor x) {
                                 std::thread([&] {
                                   const Tensor other = empty({1 << 16}, DType::kFloat32, device());
                                   EXPECT_NE(other.data(), nullptr);
                                 }).join();
                                 return affine(x, 2, 0);
                               },
                               {.require_graph = true});

  for (int call = 0; call < 3; ++call) {
    const std::vector<float> x = random_floats(4);
    EXPECT_EQ(values(f(tensor({4}, x))), affine_of(x, 2, 0));
  }
  EXPECT_EQ(f.stats().replays, 1u);
}

}  // namespace
}  // namespace cgtree::testing
