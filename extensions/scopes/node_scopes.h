// NodeScopes: the nodes of a recording, and the scopes in which each was captured.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "interop/device/graph_api.h"
#include "interop/device/node_contents.h"

namespace cgtree {

// A ScopedNode is a node of a recording, with the scopes in which it was captured.
struct ScopedNode {
  NodeType type = NodeType::kOther;
  std::uint32_t kernel = 0;  // index in NodeScopes::kernels
  std::uint32_t path = 0;    // index in NodeScopes::paths
  ProfileIds ids;
};

// Empty if a recording has no node in a scope.
struct NodeScopes {
  std::vector<std::string> paths;  // the first one is "": outside of all scopes
  // Names, as the compiler spells them; the first one is "": no kernel, or not known.
  std::vector<std::string> kernels;
  std::vector<ScopedNode> nodes;  // in the order of GraphAPI::graph_nodes(), over all graphs
};

}  // namespace cgtree
