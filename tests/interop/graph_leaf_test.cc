// A kernel appended to a captured graph: the same results on every device.
#include <gtest/gtest.h>

#include <algorithm>

#include "interop/device/code.h"
#include "tests/support/device_bench.h"

namespace cgtree::testing {
namespace {

class GraphLeafTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(GetParam()); }

  // *y += factor * *x
  static Code add_leaf(DeviceBench& bench, GraphHandle graph, float factor, const float* x,
                       float* y, NodeHandle* node) {
    const std::int64_t count = 1;
    return bench.graphs.add_leaf_kernel(graph, axpy_kernel(), dims_for(1),
                                        arguments_of(factor, x, y, count), node);
  }
  static std::vector<NodeHandle> dependencies(DeviceBench& bench, NodeHandle node) {
    std::vector<NodeHandle> found;
    check(bench.graphs.node_dependencies(node, &found), "ask for dependencies");
    std::sort(found.begin(), found.end());
    return found;
  }
};

TEST_P(GraphLeafTest, DependsOnTheEndOfEveryBranchAndOnNothingElse) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  const StreamHandle side = bench.stream();
  float* const x = bench.floats(1);
  float* const y = bench.floats(1);
  check(bench.graphs.begin_capture(stream, CaptureMode::kThreadLocal), "begin a capture");
  check(bench.add_one(stream, x), "capture");
  bench.order(stream, side);
  check(bench.add_one(side, y), "capture");
  check(bench.add_one(stream, x), "capture");
  std::vector<NodeHandle> ends = bench.info(stream).dependencies;
  for (const NodeHandle node : bench.info(side).dependencies)
    ends.push_back(node);
  std::sort(ends.begin(), ends.end());
  bench.order(side, stream);
  const GraphHandle graph = bench.end(stream);

  NodeHandle leaf = NodeHandle::kNull;
  ASSERT_EQ(add_leaf(bench, graph, 10, x, y, &leaf), Code::kSuccess);

  EXPECT_EQ(ends.size(), 2u);
  EXPECT_EQ(dependencies(bench, leaf), ends);
  check(bench.graphs.launch(bench.instantiate(graph), stream), "launch");
  EXPECT_EQ(bench.read(y), 21);  // 1, plus ten times 2
}

TEST_P(GraphLeafTest, TheLastAddedRunsLastAndEachCanBePatched) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const a = bench.floats(1);
  float* const b = bench.floats(1);
  float* const c = bench.floats(1);
  check(bench.graphs.begin_capture(stream, CaptureMode::kThreadLocal), "begin a capture");
  check(bench.add_one(stream, a), "capture");
  const GraphHandle graph = bench.end(stream);
  NodeHandle first = NodeHandle::kNull;
  NodeHandle second = NodeHandle::kNull;
  ASSERT_EQ(add_leaf(bench, graph, 2, a, b, &first), Code::kSuccess);
  ASSERT_EQ(add_leaf(bench, graph, 10, b, c, &second), Code::kSuccess);
  EXPECT_EQ(dependencies(bench, second), std::vector<NodeHandle>{first});
  const ExecHandle exec = bench.instantiate(graph);
  check(bench.graphs.launch(exec, stream), "launch");
  EXPECT_EQ(bench.read(c), 20);  // a = 1, b = 2

  const float factor = 1;
  const std::int64_t count = 1;
  check(bench.graphs.set_kernel_node(exec, second, axpy_kernel(), dims_for(1),
                                     arguments_of(factor, b, c, count)),
        "patch");
  check(bench.graphs.launch(exec, stream), "launch");
  EXPECT_EQ(bench.read(c), 26);  // a = 2, b = 6
}

TEST_P(GraphLeafTest, BehindAnEmptyGraphARootStillComesFirst) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(1, 1);
  float* const y = bench.floats(1);
  float* const z = bench.floats(1);
  check(bench.graphs.begin_capture(stream, CaptureMode::kThreadLocal), "begin a capture");
  const GraphHandle graph = bench.end(stream);
  NodeHandle leaf = NodeHandle::kNull;
  ASSERT_EQ(add_leaf(bench, graph, 3, y, z, &leaf), Code::kSuccess);
  EXPECT_TRUE(dependencies(bench, leaf).empty());
  NodeHandle root = NodeHandle::kNull;
  const float factor = 5;
  const std::int64_t count = 1;
  ASSERT_EQ(bench.graphs.add_root_kernel(graph, axpy_kernel(), dims_for(1),
                                         arguments_of(factor, x, y, count), &root),
            Code::kSuccess);

  EXPECT_EQ(dependencies(bench, leaf), std::vector<NodeHandle>{root});
  check(bench.graphs.launch(bench.instantiate(graph), stream), "launch");
  EXPECT_EQ(bench.read(z), 15);
}

INSTANTIATE_TEST_SUITE_P(Devices, GraphLeafTest, ::testing::ValuesIn(devices_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cgtree::testing
