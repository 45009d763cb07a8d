// plan_marks(): the positions of the marks in a graph, which show the progress of a launch.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "interop/device/graph_api.h"
#include "interop/device/node_contents.h"

namespace cgtree {

// A PlannedMark follows a stretch of nodes, which are consecutive in an order of the graph and were
// captured in the same scopes. A collective is always a separate stretch.
//
//   copy in | layer 0: norm, matmul | layer 0: all_reduce | layer 1: norm, matmul | ...
//           ^ mark 0                ^ mark 1              ^ mark 2
struct PlannedMark {
  std::string scope;                 // "(more)" for the last of kMostMarks, if there were more
  std::vector<std::string> kernels;  // the first kMostKernelNames different ones of the stretch
  bool is_collective = false;
  std::vector<NodeHandle> after;    // the nodes of the stretch without a successor in it
  std::vector<NodeHandle> before;   // the nodes that directly follow a node of the stretch
  std::vector<std::size_t> behind;  // the numbers of the marks that the stretch directly follows
};

inline constexpr std::size_t kMostKernelNames = 8;
inline constexpr std::size_t kMostMarks = 2048;     // of a graph
inline constexpr std::size_t kLongestStretch = 32;  // nodes

struct MarkPlan {
  std::vector<NodeHandle> first;   // the nodes without a predecessor
  std::vector<PlannedMark> marks;  // in an order of the graph: the marks may be added with their
                                   // `after` and `before`, one by one, without a cycle
};

// `scopes`: by node, or empty. A pure function.
MarkPlan plan_marks(std::span<const NodeContents> nodes, std::span<const GraphEdge> edges,
                    std::span<const std::string_view> scopes);

}  // namespace cgtree
