// Edges between nodes, and the keys of a function.
#include "cgtree/tree/node.h"

#include <algorithm>

namespace cgtree {

void Node::put_first(Node* node) {
  const auto found =
      std::find_if(edges.begin(), edges.end(), [&](const Edge& edge) { return edge.node == node; });
  if (found == edges.end()) {
    edges.insert(edges.begin(), Edge{node->function, node});
  } else {
    std::rotate(edges.begin(), found, found + 1);
  }
}

KeyState* FunctionState::find(InputList inputs, std::uint64_t hash) const {
  const auto bucket = keys.find(hash);
  if (bucket == keys.end()) return nullptr;
  for (const auto& key : bucket->second) {
    if (key->signature.matches(inputs)) return key.get();
  }
  return nullptr;
}

KeyState& FunctionState::find_or_add(InputList inputs) {
  const std::uint64_t hash = Signature::hash(inputs);
  if (KeyState* key = find(inputs, hash)) return *key;
  auto& bucket = keys[hash];
  bucket.push_back(std::make_unique<KeyState>(Signature(inputs)));
  if (axes != nullptr) bucket.back()->axis_sizes = axes->seen();
  return *bucket.back();
}

}  // namespace cgtree
