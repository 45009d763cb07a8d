// Counts the device memory of the graphs of a recording.
#include "extensions/audit/graph_estimate.h"

#include <vector>

#include "interop/device/graph_api.h"

namespace cgtree {

std::size_t estimate_graph_bytes(Recording& recording, GraphAPI& api) {
  std::vector<NodeContents> nodes;
  std::vector<GraphEdge> edges;
  std::size_t bytes = 0;
  bool is_read = true;
  recording.for_each_graph_and_body([&](GraphHandle graph) {
    is_read = is_read && ok(api.read_nodes(graph, &nodes)) && ok(api.graph_edges(graph, &edges));
    if (is_read) bytes += estimate_graph_bytes(nodes, edges);
  });
  return is_read ? bytes + recording.costs.allocated_bytes : recording.costs.graph_bytes;
}

}  // namespace cgtree
