// decide_rebinding(): which inputs and buffers a recording uses where the caller has them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cgtree/record/call.h"
#include "cgtree/record/probe.h"
#include "cgtree/record/rebinding.h"

namespace cgtree {

// A PlacedInput is an input, or buffer, that may be rebound, in the capture that is kept.
struct PlacedInput {
  std::uint32_t input = 0;
  // Of its copy, or of the output that its buffer is for; 0: of neither.
  std::uintptr_t address = 0;
  // The tail node copies from there to another input: the copy is needed.
  bool is_passed_on = false;
};

struct RebindDecision {
  std::vector<RebindChoice> choices;   // one for each
  std::vector<std::uint32_t> inputs;   // those that are rebound, in the order of Rebinding::bind()
  std::vector<std::size_t> alignment;  // that their addresses must have
  Rebinding rebinding;
};

// Compares the graph with the probe of the same step, null if there is none. `has_root`,
// `has_tail`: whether other inputs need one. Throws std::bad_alloc; what the device refuses is a
// reason to copy.
RebindDecision decide_rebinding(const Call& call, DeviceAPI& api, const Graph& graph,
                                const Probe* probe, std::span<const PlacedInput> placed,
                                bool has_root, bool has_tail);

}  // namespace cgtree
