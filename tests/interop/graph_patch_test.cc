// Nodes of executable graphs whose addresses are changed: the same promises on every device.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "interop/device/node_contents.h"
#include "tests/support/device_bench.h"

namespace cgtree::testing {
namespace {

class GraphPatchTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(GetParam()); }

  // An executable graph of one node, which can be patched.
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
  // Replaces an address, wherever the node has it; it must have it.
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

INSTANTIATE_TEST_SUITE_P(Devices, GraphPatchTest, ::testing::ValuesIn(executors_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cgtree::testing
