// choose_rebound(): the inputs for which patching the nodes that use them is cheaper than copying.
//
// A replay with moved inputs either patches the root node once and copies them, or patches each
// node that uses a moved input. So few nodes or many bytes favour patching: 4 KiB are worth 4
// nodes, and 256 MiB are worth 400. Nodes that use several inputs are patched once for all of them,
// and one root makes all copies; so inputs are not chosen one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cgtree {

// The added time of a replay, from its call to the end of its work, in microseconds. Source:
// measured by bare calls of the driver, one H200, driver 580: 1 to 16 nodes, 4 KiB to 256 MiB.
struct RebindCosts {
  double first_patch = 0.25;  // per replay, beside that of the node
  double patch = 0.35;        // per node
  double gather_node = 1.7;   // a root node that is patched and runs, or a tail node
  double bytes = 1.95e6;      // copied in 1 us
};

struct RebindCandidate {
  std::size_t bytes = 0;             // of a copy, in one direction
  std::vector<std::uint32_t> nodes;  // patched nodes
  bool is_copied_in = true;
  bool is_copied_out = false;  // by the tail: a mutated input, or an output
  bool is_forced = false;      // is rebound at any cost
};

// Returns for each candidate whether to rebind it. `has_root`, `has_tail`: true if that node exists
// in any case. Pure.
std::vector<bool> choose_rebound(std::span<const RebindCandidate> candidates, bool has_root,
                                 bool has_tail, const RebindCosts& costs = {});

}  // namespace cgtree
