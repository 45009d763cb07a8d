// choose_rebound(): for which inputs patching the nodes that use them is cheaper than copying.
//
// A replay with moved inputs either patches the root node once and copies them, or patches each
// node that uses one. So few nodes or many bytes speak for patching: 4 KiB are worth 4 nodes, and
// 256 MiB are worth 400. Nodes that use several inputs are patched once for all of them, and one
// root copies all that is copied; so inputs are not chosen one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cgtree {

// What a replay takes longer, from its call to the end of its work, in microseconds. Source:
// measured by bare calls of the driver, one H200, driver 580: 1 to 16 nodes, 4 KiB to 256 MiB.
struct RebindCosts {
  double first_patch = 0.25;  // of a replay, beside the node's own
  double patch = 0.35;        // of one node
  double gather_node = 1.7;   // a root node that is patched and runs, or a tail node
  double bytes = 1.95e6;      // that are copied in 1 us
};

struct RebindCandidate {
  std::size_t bytes = 0;             // that a copy has, one way
  std::vector<std::uint32_t> nodes;  // that are patched
  bool is_copied_in = true;
  bool is_copied_out = false;  // by the tail: a mutated input, or an output
  bool is_forced = false;      // is rebound whatever it costs
};

// Returns whether each is to be rebound. `has_root`, `has_tail`: whether there is one in any case.
// Pure.
std::vector<bool> choose_rebound(std::span<const RebindCandidate> candidates, bool has_root,
                                 bool has_tail, const RebindCosts& costs = {});

}  // namespace cgtree
