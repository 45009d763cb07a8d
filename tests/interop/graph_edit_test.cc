// Edges and printed graphs: the same results on every device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "interop/device/graph_api.h"
#include "tests/support/device_bench.h"

namespace cgtree::testing {
namespace {

class GraphEditTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(GetParam()); }

  static void begin(DeviceBench& bench, StreamHandle stream) {
    check(bench.graphs.begin_capture(stream, CaptureMode::kThreadLocal), "begin a capture");
  }
  static std::vector<NodeHandle> nodes_of(DeviceBench& bench, GraphHandle graph) {
    std::vector<NodeHandle> nodes;
    check(bench.graphs.graph_nodes(graph, &nodes), "list nodes");
    return nodes;
  }
  static std::vector<GraphEdge> edges_of(DeviceBench& bench, GraphHandle graph) {
    std::vector<GraphEdge> edges;
    check(bench.graphs.graph_edges(graph, &edges), "list edges");
    std::sort(edges.begin(), edges.end());
    return edges;
  }
  // x = value, then x += 1 `times` times.
  static GraphHandle chain(DeviceBench& bench, StreamHandle stream, float* x, float value,
                           int times) {
    begin(bench, stream);
    check(bench.fill(stream, x, value), "capture");
    for (int i = 0; i < times; ++i)
      check(bench.add_one(stream, x), "capture");
    return bench.end(stream);
  }
};

TEST_P(GraphEditTest, ListsEachEdgeOnce) {
  DeviceBench bench(GetParam());
  const StreamHandle origin = bench.stream();
  const StreamHandle side = bench.stream();
  float* const x = bench.floats(1);
  float* const y = bench.floats(1);
  begin(bench, origin);
  check(bench.fill(origin, x, 1), "capture");
  bench.order(origin, side);
  check(bench.api.copy(side, y, x, sizeof(float)), "capture");
  check(bench.graphs.memset(origin, x, 0, sizeof(float)), "capture");
  bench.order(side, origin);
  check(bench.graphs.launch_host_function(
            origin, [](void*) {}, nullptr),
        "capture");
  const GraphHandle graph = bench.end(origin);

  std::vector<GraphEdge> expected;
  for (const NodeHandle node : nodes_of(bench, graph)) {
    std::vector<NodeHandle> dependencies;
    check(bench.graphs.node_dependencies(node, &dependencies), "ask for dependencies");
    for (const NodeHandle dependency : dependencies)
      expected.push_back({dependency, node});
  }
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(expected.size(), 4u);
  EXPECT_EQ(edges_of(bench, graph), expected);
}

// Acceptance: graphs graph_debugdump.
TEST_P(GraphEditTest, WritesAFileForGraphviz) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(1);
  const GraphHandle graph = chain(bench, stream, x, 1, 1);
  const std::string path = ::testing::TempDir() + "/" + GetParam().name + "_graph.dot";

  EXPECT_EQ(bench.graphs.write_dot(graph, path.c_str()), Code::kSuccess);

  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_NE(text.find("digraph"), std::string::npos) << text;
  EXPECT_NE(text.find("->"), std::string::npos) << text;
  EXPECT_NE(text.find("fill"), std::string::npos) << text;
}

TEST_P(GraphEditTest, RefusesNullHandles) {
  DeviceBench bench(GetParam());
  std::vector<GraphEdge> edges;

  EXPECT_EQ(bench.graphs.graph_edges(GraphHandle::kNull, &edges), Code::kInvalidValue);
  EXPECT_EQ(bench.graphs.write_dot(GraphHandle::kNull, "unused"), Code::kInvalidValue);
}

INSTANTIATE_TEST_SUITE_P(Devices, GraphEditTest, ::testing::ValuesIn(executors_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cgtree::testing
