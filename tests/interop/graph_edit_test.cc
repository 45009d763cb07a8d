// Graphs made by hand, cloned, nested, updated and printed: the same promises on every device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

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
  static GraphHandle copies(DeviceBench& bench, StreamHandle stream, float* to, const float* from) {
    begin(bench, stream);
    check(bench.api.copy(stream, to, from, sizeof(float)), "capture");
    return bench.end(stream);
  }
  static GraphHandle memsets(DeviceBench& bench, StreamHandle stream, float* x, int value,
                             std::size_t bytes) {
    begin(bench, stream);
    check(bench.graphs.memset(stream, x, static_cast<std::uint8_t>(value), bytes), "capture");
    return bench.end(stream);
  }
  static void launch(DeviceBench& bench, ExecHandle exec, StreamHandle stream) {
    check(bench.graphs.launch(exec, stream), "launch");
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

TEST_P(GraphEditTest, ACloneDoesTheSameAndOutlivesItsOriginal) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(1);
  const GraphHandle graph = chain(bench, stream, x, 4, 2);
  GraphHandle clone = GraphHandle::kNull;
  ASSERT_EQ(bench.graphs.clone_graph(graph, &clone), Code::kSuccess);
  const std::vector<NodeHandle> originals = nodes_of(bench, graph);
  std::vector<GraphEdge> edges;
  for (const GraphEdge& edge : edges_of(bench, graph)) {
    GraphEdge copy{};
    EXPECT_EQ(bench.graphs.find_in_clone(edge.from, clone, &copy.from), Code::kSuccess);
    EXPECT_EQ(bench.graphs.find_in_clone(edge.to, clone, &copy.to), Code::kSuccess);
    edges.push_back(copy);
  }
  std::sort(edges.begin(), edges.end());
  EXPECT_EQ(edges_of(bench, clone), edges);
  bench.forget(graph);
  check(bench.graphs.destroy_graph(graph), "destroy");

  launch(bench, bench.instantiate(clone), stream);
  EXPECT_EQ(bench.read(x), 6);
  EXPECT_EQ(bench.graphs.destroy_graph(clone), Code::kSuccess);
}

TEST_P(GraphEditTest, WhatIsAddedToTheOriginalIsNotInItsClone) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(1, 1);
  float* const y = bench.floats(1);
  const GraphHandle graph = chain(bench, stream, y, 3, 0);
  GraphHandle clone = GraphHandle::kNull;
  check(bench.graphs.clone_graph(graph, &clone), "clone");
  const std::int64_t count = 1;
  const float value = 9;
  NodeHandle root = NodeHandle::kNull;
  check(bench.graphs.add_root_kernel(graph, fill_kernel(), dims_for(1),
                                     arguments_of(x, value, count), &root),
        "add");

  EXPECT_EQ(bench.node_count(clone), 1u);
  launch(bench, bench.instantiate(clone), stream);
  EXPECT_EQ(bench.read(x), 1);
  EXPECT_EQ(bench.read(y), 3);
  EXPECT_EQ(bench.graphs.destroy_graph(clone), Code::kSuccess);
}

TEST_P(GraphEditTest, AChildGraphRunsBetweenWhatItDependsOnAndWhatDependsOnIt) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(1);
  const GraphHandle first = chain(bench, stream, x, 5, 1);
  begin(bench, stream);
  check(bench.add_one(stream, x), "capture");
  check(bench.add_one(stream, x), "capture");
  const GraphHandle second = bench.end(stream);
  GraphHandle parent = GraphHandle::kNull;
  ASSERT_EQ(bench.graphs.create_graph(&parent), Code::kSuccess);
  NodeHandle one = NodeHandle::kNull;
  NodeHandle two = NodeHandle::kNull;
  ASSERT_EQ(bench.graphs.add_child_graph(parent, {}, first, &one), Code::kSuccess);
  ASSERT_EQ(bench.graphs.add_child_graph(parent, {&one, 1}, second, &two), Code::kSuccess);
  NodeType type = NodeType::kOther;
  check(bench.graphs.node_type(two, &type), "ask for the type");
  for (const GraphHandle child : {first, second}) {
    bench.forget(child);
    check(bench.graphs.destroy_graph(child), "destroy");
  }

  EXPECT_EQ(type, NodeType::kChildGraph);
  EXPECT_EQ(bench.node_count(parent), 2u);
  EXPECT_EQ(edges_of(bench, parent), (std::vector<GraphEdge>{{one, two}}));
  const ExecHandle exec = bench.instantiate(parent);
  launch(bench, exec, stream);
  launch(bench, exec, stream);
  EXPECT_EQ(bench.read(x), 8);
  EXPECT_EQ(bench.graphs.destroy_graph(parent), Code::kSuccess);
}

TEST_P(GraphEditTest, AnUpdateTakesOtherArguments) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(1);
  float* const y = bench.floats(1);
  const ExecHandle exec = bench.instantiate(chain(bench, stream, x, 1, 1));
  ExecUpdate update{UpdateResult::kError, NodeHandle::kNull};

  EXPECT_EQ(bench.graphs.update_exec(exec, chain(bench, stream, y, 7, 1), &update), Code::kSuccess);
  EXPECT_EQ(update.result, UpdateResult::kSuccess);
  launch(bench, exec, stream);
  EXPECT_EQ(bench.read(x), 0);
  EXPECT_EQ(bench.read(y), 8);
}

TEST_P(GraphEditTest, AnUpdateTakesAnotherFunction) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(1, 3);
  begin(bench, stream);
  check(bench.add_one(stream, x), "capture");
  const ExecHandle exec = bench.instantiate(bench.end(stream));
  ExecUpdate update;

  EXPECT_EQ(bench.graphs.update_exec(exec, chain(bench, stream, x, 9, 0), &update), Code::kSuccess);
  launch(bench, exec, stream);
  EXPECT_EQ(bench.read(x), 9);
}

TEST_P(GraphEditTest, AnUpdateTakesOtherCopiesAndMemsets) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(2, 1);
  float* const pinned = bench.pinned_floats(1, 6);
  const ExecHandle copy = bench.instantiate(copies(bench, stream, x, x + 1));
  const ExecHandle fill = bench.instantiate(memsets(bench, stream, x, 0, 1));
  ExecUpdate update;

  EXPECT_EQ(bench.graphs.update_exec(copy, copies(bench, stream, x, pinned), &update),
            Code::kSuccess);
  EXPECT_EQ(bench.graphs.update_exec(fill, memsets(bench, stream, x + 1, 0, 4), &update),
            Code::kSuccess);
  launch(bench, copy, stream);
  launch(bench, fill, stream);
  EXPECT_EQ(bench.read(x), 6);
  EXPECT_EQ(bench.read(x + 1), 0);
}

TEST_P(GraphEditTest, AnUpdateRefusesAnotherNumberOfNodesAndNamesNone) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(1);
  const ExecHandle exec = bench.instantiate(chain(bench, stream, x, 1, 1));
  ExecUpdate update;

  EXPECT_EQ(bench.graphs.update_exec(exec, chain(bench, stream, x, 50, 2), &update),
            Code::kGraphExecUpdateFailure);
  EXPECT_EQ(update.result, UpdateResult::kTopologyChanged);
  EXPECT_EQ(update.node, NodeHandle::kNull);
  launch(bench, exec, stream);
  EXPECT_EQ(bench.read(x), 2);
}

TEST_P(GraphEditTest, AnUpdateRefusesAnotherTypeAndNamesTheNode) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(1);
  const ExecHandle exec = bench.instantiate(chain(bench, stream, x, 1, 0));
  const GraphHandle other = memsets(bench, stream, x, 0, 4);
  ExecUpdate update;

  EXPECT_EQ(bench.graphs.update_exec(exec, other, &update), Code::kGraphExecUpdateFailure);
  EXPECT_EQ(update.result, UpdateResult::kNodeTypeChanged);
  EXPECT_EQ(update.node, nodes_of(bench, other)[0]);
  launch(bench, exec, stream);
  EXPECT_EQ(bench.read(x), 1);
}

TEST_P(GraphEditTest, AnUpdateRefusesOtherEdges) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  const StreamHandle side = bench.stream();
  float* const x = bench.floats(2);
  const ExecHandle exec = bench.instantiate(chain(bench, stream, x, 1, 1));
  begin(bench, stream);
  bench.order(stream, side);
  check(bench.fill(stream, x, 1), "capture");
  check(bench.add_one(side, x + 1), "capture");
  bench.order(side, stream);
  ExecUpdate update;

  EXPECT_EQ(bench.graphs.update_exec(exec, bench.end(stream), &update),
            Code::kGraphExecUpdateFailure);
  EXPECT_EQ(update.result, UpdateResult::kTopologyChanged);
}

TEST_P(GraphEditTest, ANodeThatIsNotEnabledDoesNothingInThatExec) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(1);
  const GraphHandle graph = chain(bench, stream, x, 5, 2);
  const NodeHandle middle = nodes_of(bench, graph)[1];
  const ExecHandle exec = bench.instantiate(graph);
  const ExecHandle untouched = bench.instantiate(graph);
  bool is_enabled = false;
  check(bench.graphs.node_enabled(exec, middle, &is_enabled), "ask");
  EXPECT_TRUE(is_enabled);

  EXPECT_EQ(bench.graphs.set_node_enabled(exec, middle, false), Code::kSuccess);
  check(bench.graphs.node_enabled(exec, middle, &is_enabled), "ask");
  EXPECT_FALSE(is_enabled);
  launch(bench, exec, stream);
  EXPECT_EQ(bench.read(x), 6);
  launch(bench, untouched, stream);
  EXPECT_EQ(bench.read(x), 7);

  EXPECT_EQ(bench.graphs.set_node_enabled(exec, middle, true), Code::kSuccess);
  launch(bench, exec, stream);
  EXPECT_EQ(bench.read(x), 7);
}

TEST_P(GraphEditTest, AHostFunctionCannotBeDisabled) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  begin(bench, stream);
  check(bench.graphs.launch_host_function(
            stream, [](void*) {}, nullptr),
        "capture");
  const GraphHandle graph = bench.end(stream);
  const ExecHandle exec = bench.instantiate(graph);

  EXPECT_EQ(bench.graphs.set_node_enabled(exec, nodes_of(bench, graph)[0], false),
            Code::kInvalidValue);
}

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
  GraphHandle graph = GraphHandle::kNull;
  std::vector<GraphEdge> edges;

  EXPECT_EQ(bench.graphs.clone_graph(GraphHandle::kNull, &graph), Code::kInvalidValue);
  EXPECT_EQ(bench.graphs.graph_edges(GraphHandle::kNull, &edges), Code::kInvalidValue);
  EXPECT_EQ(bench.graphs.write_dot(GraphHandle::kNull, "unused"), Code::kInvalidValue);
}

INSTANTIATE_TEST_SUITE_P(Devices, GraphEditTest, ::testing::ValuesIn(executors_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cgtree::testing
