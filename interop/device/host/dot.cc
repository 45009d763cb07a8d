// Draws nodes and edges.
#include "interop/device/host/dot.h"

#include <fmt/format.h>

#include <iterator>

namespace cgtree::host {
namespace {

struct Describe {
  std::string operator()(const KernelWork& kernel) const {
    const Dim3& grid = kernel.dims.grid;
    const Dim3& block = kernel.dims.block;
    return fmt::format("kernel {} [{} {} {}] x [{} {} {}]", kernel.function.name, grid.x, grid.y,
                       grid.z, block.x, block.y, block.z);
  }
  std::string operator()(const CopyWork& copy) const {
    return fmt::format("copy of {} bytes from {} to {}", copy.bytes, copy.source, copy.destination);
  }
  std::string operator()(const MemsetWork& fill) const {
    return fmt::format("memset of {} bytes at {} to {}", fill.bytes, fill.destination,
                       int{fill.value});
  }
  std::string operator()(const HostWork&) const { return "host function"; }
  std::string operator()(const ChildWork& child) const {
    return fmt::format("child graph of {} nodes", child.graph->nodes().size());
  }
};

// Names are unique in the file: `prefix` names the way to a child.
void draw(const Graph& graph, const std::string& prefix, std::string& out) {
  const auto nodes = graph.nodes();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const std::string name = fmt::format("{}{}", prefix, i);
    fmt::format_to(std::back_inserter(out), "  \"{}\" [label=\"{}: {}\"];\n", name, i,
                   describe(nodes[i].work));
    if (const auto* child = std::get_if<ChildWork>(&nodes[i].work)) {
      fmt::format_to(std::back_inserter(out), "  subgraph \"cluster_{}\" {{\n", name);
      draw(*child->graph, name + ".", out);
      out += "  }\n";
    }
  }
  for (const GraphEdge& edge : graph.edges()) {
    fmt::format_to(std::back_inserter(out), "  \"{0}{1}\" -> \"{0}{2}\";\n", prefix,
                   Graph::index_of(edge.from), Graph::index_of(edge.to));
  }
}

}  // namespace

std::string describe(const Work& work) {
  return std::visit(Describe{}, work);
}

std::string to_dot(const Graph& graph) {
  std::string out = "digraph {\n  node [shape=box];\n";
  draw(graph, "", out);
  return out + "}\n";
}

}  // namespace cgtree::host
