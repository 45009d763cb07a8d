// plan_marks(): where the marks of a graph lie, by which one sees how far a launch has come.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "interop/device/graph_api.h"
#include "interop/device/node_contents.h"

namespace cgtree {

// A PlannedMark lies behind a stretch of nodes: those that follow one another in an order of the
// graph and were captured in the same scopes. A collective is a stretch of its own.
//
//   copy in | layer 0: norm, matmul | layer 0: all_reduce | layer 1: norm, matmul | ...
//           ^ mark 0                ^ mark 1              ^ mark 2
struct PlannedMark {
  std::string scope;                 // of the last one of kMostMarks "(more)", if there were more
  std::vector<std::string> kernels;  // the first kMostKernelNames different ones of the stretch
  bool is_collective = false;
  std::vector<NodeHandle> after;    // the nodes of the stretch behind which no other of it comes
  std::vector<NodeHandle> before;   // those that directly follow a node of the stretch
  std::vector<std::size_t> behind;  // the numbers of the marks that the stretch directly follows
};

inline constexpr std::size_t kMostKernelNames = 8;
inline constexpr std::size_t kMostMarks = 2048;     // of a graph
inline constexpr std::size_t kLongestStretch = 32;  // nodes

struct MarkPlan {
  std::vector<NodeHandle> first;   // the nodes that come behind no other one
  std::vector<PlannedMark> marks;  // in an order of the graph: each may be added with its `after`
                                   // and `before`, one after the other, without a cycle
};

// `scopes`: of each node, or empty. A pure function.
MarkPlan plan_marks(std::span<const NodeContents> nodes, std::span<const GraphEdge> edges,
                    std::span<const std::string_view> scopes);

}  // namespace cgtree
