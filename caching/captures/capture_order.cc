// Walks a captured graph backwards.
#include "caching/captures/capture_order.h"

#include <algorithm>

namespace cgtree {

bool DagOrder::precedes(std::span<const NodeId> nodes, StreamId stream) {
  const std::optional<std::vector<NodeId>> terminals = dag_.terminals(stream);
  if (!terminals) return false;
  Known& known = known_[stream];
  if (known.terminals != *terminals) {
    try {
      advance(known, *terminals);
    } catch (...) {
      known_.erase(stream);  // an unfinished walk proves nothing
      throw;
    }
  }
  return std::all_of(nodes.begin(), nodes.end(),
                     [&](NodeId node) { return known.reached.contains(node); });
}

void DagOrder::advance(Known& known, const std::vector<NodeId>& terminals) {
  if (!walk(known, terminals)) {
    known = {};
    walk(known, terminals);
  }
  known.terminals = terminals;
}

// Adds the nodes before `terminals`. Returns false if these do not come after all former terminals:
// then `known` may hold too much.
bool DagOrder::walk(Known& known, const std::vector<NodeId>& terminals) {
  std::unordered_set<NodeId> not_met(known.terminals.begin(), known.terminals.end());
  std::vector<NodeId> to_visit = terminals;
  while (!to_visit.empty()) {
    const NodeId node = to_visit.back();
    to_visit.pop_back();
    not_met.erase(node);
    if (!known.reached.insert(node).second) continue;
    const std::vector<NodeId> before = dag_.dependencies(node);
    to_visit.insert(to_visit.end(), before.begin(), before.end());
  }
  return not_met.empty();
}

}  // namespace cgtree
