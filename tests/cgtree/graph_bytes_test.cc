// The estimate of the device memory of graphs, against measurements on a GPU.
#include "extensions/audit/graph_estimate.h"
#include "interop/device/graph_api.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace cgtree::testing {
namespace {

// A graph that is built node by node; the order of its handles is arbitrary.
class ForkedGraph {
 public:
  std::size_t add(std::vector<std::size_t> dependencies, NodeType type = NodeType::kKernel,
                  std::size_t parameter_bytes = 16) {
    NodeContents node{.node = static_cast<NodeHandle>(1 + 7919 * (nodes_.size() + 1) % 10007),
                      .type = type,
                      .is_decoded = true};
    node.bytes.resize(parameter_bytes);
    for (const std::size_t dependency : dependencies)
      edges_.push_back({nodes_[dependency].node, node.node});
    nodes_.push_back(std::move(node));
    return nodes_.size() - 1;
  }
  // Returns the last node; `first`: the nodes that the chain depends on.
  std::size_t add_chain(std::vector<std::size_t> first, std::size_t length) {
    std::size_t last = add(std::move(first));
    for (std::size_t i = 1; i < length; ++i)
      last = add({last});
    return last;
  }
  std::size_t bytes() const { return estimate_graph_bytes(nodes_, edges_); }
  std::size_t shuffled_bytes(std::mt19937& random) {
    std::ranges::shuffle(nodes_, random);
    std::ranges::shuffle(edges_, random);
    return bytes();
  }

 private:
  std::vector<NodeContents> nodes_;
  std::vector<GraphEdge> edges_;
};

void expect_near(std::size_t estimate, double measured) {
  EXPECT_NEAR(static_cast<double>(estimate), measured, 0.03 * measured);
}

// Returns a graph of chains between two kernels.
ForkedGraph fork_of(std::size_t branches, std::size_t length) {
  ForkedGraph graph;
  const std::size_t first = graph.add({});
  std::vector<std::size_t> ends;
  for (std::size_t i = 0; i < branches; ++i)
    ends.push_back(graph.add_chain({first}, length));
  graph.add(ends);
  return graph;
}

TEST(GraphBytesTest, AGraphWithoutNodesTakesNothing) {
  EXPECT_EQ(ForkedGraph().bytes(), 0u);
  EXPECT_EQ(graph_bytes_of_chain(0), 0u);
}

TEST(GraphBytesTest, AChainTakesOneBranchAndItsNodes) {
  const std::pair<std::size_t, double> measured[] = {{1, 116'602},  {2, 118'908},  {4, 124'151},
                                                     {10, 137'993}, {30, 183'784}, {100, 348'127}};
  for (const auto& [nodes, bytes] : measured) {
    ForkedGraph graph;
    graph.add_chain({}, nodes);
    expect_near(graph.bytes(), bytes);
    EXPECT_EQ(graph.bytes(), graph_bytes_of_chain(nodes));
  }
}

TEST(GraphBytesTest, EachBranchTakesItsOwn) {
  const std::pair<std::size_t, double> measured[] = {
      {2, 243'270}, {3, 364'904}, {4, 478'151}, {8, 964'690}, {16, 1'916'797}};
  for (const auto& [branches, bytes] : measured)
    expect_near(fork_of(branches, 2).bytes(), bytes);
  ForkedGraph roots;
  roots.add({roots.add({}), roots.add({}), roots.add({}), roots.add({})});
  expect_near(roots.bytes(), 480'248);
}

TEST(GraphBytesTest, BranchesThatFollowEachOtherAreOne) {
  ForkedGraph graph;
  std::size_t last = graph.add({});
  for (int i = 0; i < 5; ++i)
    last = graph.add({graph.add({last}), graph.add({last})});
  EXPECT_EQ(graph.bytes(), 2 * kGraphBytesPerBranch + 16 * kGraphBytesPerNode);
}

TEST(GraphBytesTest, TheOrderOfNodesAndEdgesIsOfNoAccount) {
  std::mt19937 random(std::random_device{}());
  ForkedGraph graph = fork_of(5, 4);
  const std::size_t bytes = graph.bytes();
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(graph.shuffled_bytes(random), bytes);
}

TEST(GraphBytesTest, LargeParametersTakeMore) {
  const std::pair<std::size_t, std::size_t> measured[] = {
      {1024, 2'304}, {1025, 3'328}, {2048, 3'328}, {2049, 8'704}, {4000, 8'704}};
  for (const auto& [parameter_bytes, bytes] : measured) {
    ForkedGraph graph;
    graph.add({}, NodeType::kKernel, parameter_bytes);
    EXPECT_EQ(graph.bytes(), kGraphBytesPerBranch + bytes);
  }
}

TEST(GraphBytesTest, MemsetsAndHostFunctionsTakeNothingBeyondTheirBranch) {
  for (const NodeType type : {NodeType::kMemset, NodeType::kHost, NodeType::kEmpty}) {
    ForkedGraph graph;
    graph.add({graph.add({}, type)}, type);
    EXPECT_EQ(graph.bytes(), kGraphBytesPerBranch);
  }
}

}  // namespace
}  // namespace cgtree::testing
