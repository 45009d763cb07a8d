// A kernel inserted before a captured graph: the same results on every device.
#include <gtest/gtest.h>

#include <string>

#include "interop/device/code.h"
#include "tests/support/device_bench.h"

namespace cgtree::testing {
namespace {

class GraphRootTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(GetParam()); }

  // *y += factor * *x
  static Code add_root(DeviceBench& bench, GraphHandle graph, float factor, const float* x,
                       float* y, NodeHandle* node) {
    const std::int64_t count = 1;
    return bench.graphs.add_root_kernel(graph, axpy_kernel(), dims_for(1),
                                        arguments_of(factor, x, y, count), node);
  }
  static std::vector<NodeHandle> dependencies(DeviceBench& bench, NodeHandle node) {
    std::vector<NodeHandle> found;
    check(bench.graphs.node_dependencies(node, &found), "ask for dependencies");
    return found;
  }
};

TEST_P(GraphRootTest, RunsBeforeEveryBranch) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  const StreamHandle side = bench.stream();
  float* const x = bench.floats(1, 1);
  float* const y = bench.floats(1);
  float* const z = bench.floats(2);
  check(bench.graphs.begin_capture(stream, CaptureMode::kThreadLocal), "begin a capture");
  bench.order(stream, side);
  check(bench.api.copy(stream, z, y, sizeof(float)), "capture");
  check(bench.api.copy(side, z + 1, y, sizeof(float)), "capture");
  bench.order(side, stream);
  const GraphHandle graph = bench.end(stream);
  std::vector<NodeHandle> nodes;
  check(bench.graphs.graph_nodes(graph, &nodes), "list nodes");
  ASSERT_EQ(nodes.size(), 2u);

  NodeHandle root = NodeHandle::kNull;
  ASSERT_EQ(add_root(bench, graph, 7, x, y, &root), Code::kSuccess);

  EXPECT_EQ(bench.node_count(graph), 3u);
  EXPECT_TRUE(dependencies(bench, root).empty());
  for (const NodeHandle node : nodes)
    EXPECT_EQ(dependencies(bench, node), std::vector<NodeHandle>{root});
  const ExecHandle exec = bench.instantiate(graph);
  check(bench.graphs.launch(exec, stream), "launch");
  EXPECT_EQ(bench.read(z), 7);
  EXPECT_EQ(bench.read(z + 1), 7);
}

TEST_P(GraphRootTest, TheLastAddedRunsFirstAndEachCanBePatched) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const a = bench.floats(1, 1);
  float* const b = bench.floats(1);
  float* const c = bench.floats(1);
  check(bench.graphs.begin_capture(stream, CaptureMode::kThreadLocal), "begin a capture");
  check(bench.add_one(stream, c), "capture");
  const GraphHandle graph = bench.end(stream);
  NodeHandle second = NodeHandle::kNull;
  NodeHandle first = NodeHandle::kNull;
  ASSERT_EQ(add_root(bench, graph, 10, b, c, &second), Code::kSuccess);
  ASSERT_EQ(add_root(bench, graph, 2, a, b, &first), Code::kSuccess);
  const ExecHandle exec = bench.instantiate(graph);
  check(bench.graphs.launch(exec, stream), "launch");
  EXPECT_EQ(bench.read(c), 21);  // b = 2, c = 20 + 1

  const float factor = 1;
  const std::int64_t count = 1;
  check(bench.graphs.set_kernel_node(exec, first, axpy_kernel(), dims_for(1),
                                     arguments_of(factor, a, b, count)),
        "patch");
  check(bench.graphs.launch(exec, stream), "launch");
  EXPECT_EQ(bench.read(c), 52);  // b = 3, c = 21 + 30 + 1
}

TEST_P(GraphRootTest, IsAllOfAnEmptyGraph) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(1, 1);
  float* const y = bench.floats(1);
  check(bench.graphs.begin_capture(stream, CaptureMode::kThreadLocal), "begin a capture");
  const GraphHandle graph = bench.end(stream);
  NodeHandle root = NodeHandle::kNull;
  ASSERT_EQ(add_root(bench, graph, 3, x, y, &root), Code::kSuccess);

  check(bench.graphs.launch(bench.instantiate(graph), stream), "launch");
  EXPECT_EQ(bench.read(y), 3);
}

TEST_P(GraphRootTest, AnExecMadeBeforeDoesNotHaveIt) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(1, 1);
  float* const y = bench.floats(1);
  check(bench.graphs.begin_capture(stream, CaptureMode::kThreadLocal), "begin a capture");
  check(bench.add_one(stream, y), "capture");
  const GraphHandle graph = bench.end(stream);
  const ExecHandle exec = bench.instantiate(graph);
  NodeHandle root = NodeHandle::kNull;
  ASSERT_EQ(add_root(bench, graph, 3, x, y, &root), Code::kSuccess);

  check(bench.graphs.launch(exec, stream), "launch");
  EXPECT_EQ(bench.read(y), 1);
  const float factor = 1;
  const std::int64_t count = 1;
  EXPECT_NE(bench.graphs.set_kernel_node(exec, root, axpy_kernel(), dims_for(1),
                                         arguments_of(factor, x, y, count)),
            Code::kSuccess);
}

INSTANTIATE_TEST_SUITE_P(Devices, GraphRootTest, ::testing::ValuesIn(executors_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cgtree::testing
