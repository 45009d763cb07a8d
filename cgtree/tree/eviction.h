// Which recording goes first when a budget is spent.
#pragma once

#include <memory>
#include <span>

#include "cgtree/tree/node.h"

namespace cgtree {

// The node that counts(node) and was used longest ago: a leaf if there is one, since what was
// recorded after a node is reached through it. Never one of a pinned function; null if none is
// left. Pure.
template <typename Counts>
Node* next_to_evict(std::span<const std::unique_ptr<Node>> nodes, Counts counts) {
  const auto is_leaf = [&](const Node& node) {
    for (const auto& other : nodes)
      if (other->parent == &node) return false;
    return true;
  };
  const auto is_before = [&](const Node& a, bool a_is_leaf, const Node& b, bool b_is_leaf) {
    return a_is_leaf != b_is_leaf ? a_is_leaf : a.last_used < b.last_used;
  };
  Node* found = nullptr;
  bool found_is_leaf = false;
  for (const auto& node : nodes) {
    if (node->function->options.is_pinned || !counts(*node)) continue;
    const bool leaf = is_leaf(*node);
    if (found != nullptr && !is_before(*node, leaf, *found, found_is_leaf)) continue;
    found = node.get();
    found_is_leaf = leaf;
  }
  return found;
}

}  // namespace cgtree
