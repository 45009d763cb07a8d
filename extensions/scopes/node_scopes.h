// NodeScopes: the nodes of a recording, and the scopes that each was captured in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "interop/device/graph_api.h"
#include "interop/device/node_contents.h"

namespace cgtree {

// A ScopedNode is a node of a recording, with the scopes that it was captured in.
struct ScopedNode {
  NodeType type = NodeType::kOther;
  std::uint32_t kernel = 0;  // NodeScopes::kernels[i]
  std::uint32_t path = 0;    // NodeScopes::paths[i]
  ProfileIds ids;
};

// Empty if a recording has no node in a scope.
struct NodeScopes {
  std::vector<std::string> paths;  // the first one is "": outside of all scopes
  // Names, as the compiler spells them; the first one is "": no kernel, or not known.
  std::vector<std::string> kernels;
  std::vector<ScopedNode> nodes;  // by the order of GraphAPI::graph_nodes(), over all graphs
};

}  // namespace cgtree
