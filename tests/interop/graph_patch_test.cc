// Patched addresses in nodes of executable graphs: the same results on every device.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <vector>

#include "interop/device/graph_api.h"
#include "interop/device/node_contents.h"
#include "tests/support/device_bench.h"

namespace cgtree::testing {
namespace {

class GraphPatchTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(GetParam()); }

  // An executable graph of one node that can be patched.
  struct Made {
    ExecHandle exec;
    NodePatch patch;
  };
  template <typename Work>
  static Made capture(DeviceBench& bench, StreamHandle stream, Work&& work) {
    check(bench.graphs.begin_capture(stream, CaptureMode::kThreadLocal), "begin a capture");
    check(work(), "capture");
    const GraphHandle graph = bench.end(stream);
    std::vector<NodeHandle> nodes;
    check(bench.graphs.graph_nodes(graph, &nodes), "list nodes");
    EXPECT_EQ(nodes.size(), 1u);
    Made made{bench.instantiate(graph), {}};
    check(bench.graphs.prepare_patch(nodes.at(0), &made.patch), "prepare a patch");
    return made;
  }
  // Replaces an address at each place in the node. Requires: there is one.
  static void replace(NodePatch& patch, const void* before, const void* after) {
    int replaced = 0;
    for (std::size_t i = 0; i + sizeof(before) <= patch.bytes.size(); i += sizeof(before)) {
      if (std::memcmp(patch.bytes.data() + i, &before, sizeof(before)) != 0) continue;
      std::memcpy(patch.bytes.data() + i, &after, sizeof(after));
      ++replaced;
    }
    EXPECT_EQ(replaced, 1);
  }
  static void set_and_launch(DeviceBench& bench, const Made& made, StreamHandle stream) {
    check(bench.graphs.set_node(made.exec, made.patch), "set a node");
    check(bench.graphs.launch(made.exec, stream), "launch");
  }
};

TEST_P(GraphPatchTest, AKernelUsesTheAddressesThatWereSetAndKeepsItsOtherParameters) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(1, 2);
  float* const other_x = bench.floats(1, 5);
  float* const y = bench.floats(1, 0);
  float* const other_y = bench.floats(1, 1);
  Made made = capture(bench, stream, [&] {
    return bench.graphs.launch_kernel(stream, axpy_kernel(), dims_for(1),
                                      arguments_of(10.0f, x, y, std::int64_t{1}));
  });

  replace(made.patch, x, other_x);
  set_and_launch(bench, made, stream);
  EXPECT_EQ(bench.read(y), 50);

  replace(made.patch, y, other_y);
  replace(made.patch, other_x, x);
  set_and_launch(bench, made, stream);
  EXPECT_EQ(bench.read(y), 50);
  EXPECT_EQ(bench.read(other_y), 21);
}

TEST_P(GraphPatchTest, AStructBesideTheAddressStays) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const y = bench.floats(1);
  float* const other = bench.floats(1);
  Weights weights{};
  weights.values[19] = 3;
  Made made = capture(bench, stream, [&] {
    return bench.graphs.launch_kernel(stream, sum_kernel(), dims_for(1), arguments_of(weights, y));
  });
  replace(made.patch, y, other);
  set_and_launch(bench, made, stream);
  EXPECT_EQ(bench.read(other), 3);
  EXPECT_EQ(bench.read(y), 0);
}

TEST_P(GraphPatchTest, ACopyReadsAndWritesWhereItIsTold) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const from = bench.floats(1, 1);
  float* const other_from = bench.floats(1, 2);
  float* const to = bench.floats(1, 0);
  float* const other_to = bench.floats(1, 0);
  Made made =
      capture(bench, stream, [&] { return bench.api.copy(stream, to, from, sizeof(float)); });
  replace(made.patch, from, other_from);
  set_and_launch(bench, made, stream);
  EXPECT_EQ(bench.read(to), 2);
  replace(made.patch, to, other_to);
  replace(made.patch, other_from, from);
  set_and_launch(bench, made, stream);
  EXPECT_EQ(bench.read(to), 2);
  EXPECT_EQ(bench.read(other_to), 1);
}

TEST_P(GraphPatchTest, AMemsetWritesWhereItIsTold) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(1, 1);
  float* const other = bench.floats(1, 1);
  Made made =
      capture(bench, stream, [&] { return bench.graphs.memset(stream, x, 0, sizeof(float)); });
  replace(made.patch, x, other);
  set_and_launch(bench, made, stream);
  EXPECT_EQ(bench.read(x), 1);
  EXPECT_EQ(bench.read(other), 0);
}

TEST_P(GraphPatchTest, LaunchesThatAreEnqueuedKeepTheirAddresses) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  std::vector<float*> targets;
  for (int i = 0; i < 32; ++i)
    targets.push_back(bench.floats(1, static_cast<float>(i)));
  Made made = capture(bench, stream, [&] { return bench.add_one(stream, targets[0]); });
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (i > 0) replace(made.patch, targets[i - 1], targets[i]);
    set_and_launch(bench, made, stream);
  }
  for (std::size_t i = 0; i < targets.size(); ++i)
    EXPECT_EQ(bench.read(targets[i]), static_cast<float>(i) + 1);
}

TEST_P(GraphPatchTest, AHostFunctionCannotBePatched) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  check(bench.graphs.begin_capture(stream, CaptureMode::kThreadLocal), "begin a capture");
  check(bench.graphs.launch_host_function(
            stream, [](void*) {}, nullptr),
        "capture");
  const GraphHandle graph = bench.end(stream);
  std::vector<NodeHandle> nodes;
  check(bench.graphs.graph_nodes(graph, &nodes), "list nodes");
  NodePatch patch;
  EXPECT_EQ(bench.graphs.prepare_patch(nodes.at(0), &patch), Code::kNotSupported);
  EXPECT_EQ(bench.graphs.peek_last_error(), Code::kSuccess);
}

// Nodes of four types: a kernel, a copy, a memset and a host function.
TEST_P(GraphPatchTest, NodesThatAreNotEnabledAreLeftOutAndKeepWhatTheyHave) {
  DeviceBench bench(GetParam());
  GraphAPI& graphs = bench.graphs;
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(4);
  float* const source = bench.floats(1, 5);
  static int calls = 0;
  calls = 0;
  check(graphs.begin_capture(stream, CaptureMode::kThreadLocal), "begin a capture");
  check(bench.add_one(stream, x), "capture");
  check(bench.api.copy(stream, x + 1, source, sizeof(float)), "capture");
  check(graphs.memset(stream, x + 2, 0x40, sizeof(float)), "capture");
  check(graphs.launch_host_function(
            stream, [](void*) { ++calls; }, nullptr),
        "capture");
  const GraphHandle graph = bench.end(stream);
  const ExecHandle exec = bench.instantiate(graph);
  const ExecHandle whole = bench.instantiate(graph);
  std::vector<NodeHandle> nodes;
  check(graphs.graph_nodes(graph, &nodes), "list nodes");
  ASSERT_EQ(nodes.size(), 4u);
  const auto enable_all = [&](bool is_enabled) {
    for (const NodeHandle node : nodes)
      EXPECT_EQ(graphs.enable_node(exec, node, is_enabled), Code::kSuccess);
  };
  enable_all(false);
  const auto state = [&] {
    return std::vector<float>{bench.read(x), bench.read(x + 1), bench.read(x + 2),
                              static_cast<float>(calls)};
  };
  const float filled = std::bit_cast<float>(0x40404040);

  check(graphs.launch(exec, stream), "launch");
  EXPECT_EQ(state(), (std::vector<float>{0, 0, 0, 0}));
  std::vector<float> expected(4, 0);
  const std::vector<float> done = {1, 5, filled, 1};
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    EXPECT_EQ(graphs.enable_node(exec, nodes[i], true), Code::kSuccess);
    check(graphs.launch(exec, stream), "launch");
    check(bench.api.synchronize_device(0), "wait");
    EXPECT_EQ(graphs.enable_node(exec, nodes[i], false), Code::kSuccess);
    expected[i] = done[i];
    EXPECT_EQ(state(), expected) << i;
  }
  enable_all(true);
  check(graphs.launch(exec, stream), "launch");
  EXPECT_EQ(state()[0], 2);
  EXPECT_EQ(calls, 2);
  enable_all(false);
  check(graphs.launch(whole, stream), "launch");
  EXPECT_EQ(state()[0], 3);
}

TEST_P(GraphPatchTest, AGraphDoesWhatAnAlikeOneDidThatIsGone) {
  constexpr std::int64_t kCount = 1000;
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(kCount, 3);
  float* const y = bench.floats(kCount, 1);
  const auto capture_axpy = [&](float a, std::int64_t count) {
    check(bench.graphs.begin_capture(stream, CaptureMode::kThreadLocal), "begin a capture");
    check(bench.graphs.launch_kernel(stream, axpy_kernel(), dims_for(count),
                                     arguments_of(a, x, y, count)),
          "capture");
    GraphHandle graph = GraphHandle::kNull;
    check(bench.graphs.end_capture(stream, &graph), "end the capture");
    return graph;
  };
  const GraphHandle one = capture_axpy(100, 1);
  const GraphHandle all = capture_axpy(2, kCount);
  std::vector<NodeHandle> nodes;
  check(bench.graphs.graph_nodes(one, &nodes), "list nodes");
  std::vector<NodeHandle> others;
  check(bench.graphs.graph_nodes(all, &others), "list nodes");
  EXPECT_TRUE(bench.graphs.are_alike(one, all));
  NodePatch patch;
  check(bench.graphs.prepare_patch(others.at(0), &patch), "prepare a patch");
  EXPECT_EQ(patch.dims, dims_for(kCount));
  patch.node = nodes.at(0);
  check(bench.graphs.destroy_graph(all), "destroy a graph");

  ExecHandle exec = ExecHandle::kNull;
  check(bench.graphs.instantiate(one, &exec), "instantiate");
  check(bench.graphs.set_node(exec, patch), "set a node");
  check(bench.graphs.launch(exec, stream), "launch");

  EXPECT_EQ(bench.read(y), 7);
  EXPECT_EQ(bench.read(y + kCount - 1), 7);
  check(bench.graphs.destroy_exec(exec), "destroy an executable graph");
  check(bench.graphs.destroy_graph(one), "destroy a graph");
}

TEST_P(GraphPatchTest, GraphsThatDifferInMoreThanPatchesHoldAreNotAlike) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  const StreamHandle side = bench.stream();
  float* const x = bench.floats(4);
  float* const y = bench.floats(4);
  GraphAPI& graphs = bench.graphs;
  const auto add_one = [&](StreamHandle on) { return bench.add_one(on, x); };
  static constexpr auto kNothing = [](void*) {};
  static constexpr auto kOther = [](void* data) { *static_cast<volatile int*>(data) = 0; };
  const std::vector<std::function<void()>> captured = {
      [&] { check(add_one(stream), "add one"); },
      [&] { check(graphs.memset(stream, x, 0, 8), "set"); },
      [&] { check(graphs.memset(stream, x, 1, 8), "set"); },
      [&] { check(graphs.memset(stream, x, 0, 4), "set"); },
      [&] { check(bench.api.copy(stream, x, y, 4), "copy"); },
      [&] { check(bench.api.copy(stream, x, y, 8), "copy"); },
      [&] { check(graphs.launch_host_function(stream, kNothing, nullptr), "call"); },
      [&] { check(graphs.launch_host_function(stream, kNothing, x), "call"); },
      [&] { check(graphs.launch_host_function(stream, kOther, nullptr), "call"); },
      [&] {
        check(graphs.launch_kernel(stream, fill_kernel(), dims_for(1),
                                   arguments_of(x, 1.0f, std::int64_t{1})),
              "fill");
      },
      [&] {
        for (int i = 0; i < 3; ++i)
          check(add_one(stream), "add one");
      },
      [&] {  // the same three, two of them in parallel branches
        check(add_one(stream), "add one");
        EventHandle event = EventHandle::kNull;
        check(graphs.create_event(&event), "create an event");
        check(graphs.record_event(event, stream), "record");
        check(graphs.wait_event(side, event), "wait");
        check(add_one(stream), "add one");
        check(add_one(side), "add one");
        check(graphs.record_event(event, side), "record");
        check(graphs.wait_event(stream, event), "wait");
        check(graphs.destroy_event(event), "destroy an event");
      },
  };
  const auto capture_all = [&] {
    std::vector<GraphHandle> made;
    for (const auto& work : captured) {
      check(graphs.begin_capture(stream, CaptureMode::kThreadLocal), "begin a capture");
      work();
      made.push_back(bench.end(stream));
    }
    return made;
  };
  const std::vector<GraphHandle> first = capture_all();
  const std::vector<GraphHandle> second = capture_all();
  for (std::size_t i = 0; i < first.size(); ++i) {
    for (std::size_t j = 0; j < second.size(); ++j)
      EXPECT_EQ(graphs.are_alike(first[i], second[j]), i == j) << i << ", " << j;
  }
  EXPECT_EQ(graphs.peek_last_error(), Code::kSuccess);
}

INSTANTIATE_TEST_SUITE_P(Devices, GraphPatchTest, ::testing::ValuesIn(executors_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cgtree::testing
