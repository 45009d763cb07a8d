// Probe: a capture of a step with its inputs where the caller has them. It is compared with the
// capture that is kept, where they are copies: what differs is their addresses.
//
// Both captures allocate the same, copies included, and a pool places alike what is allocated
// alike. So nothing else differs, unless the step function does something else each time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cgtree/memory/context_memory.h"
#include "cgtree/record/recorder.h"
#include "extensions/rebind/address_words.h"
#include "extensions/rebind/read_graph.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// A Probe is what a capture that was not kept has shown.
struct Probe {
  std::string failure;     // why it has shown nothing, or ""
  GraphContents contents;  // of its graph
  // The allocations of the step that became outputs with a buffer that may be rebound, by number in
  // the step, and the number of the buffer among all inputs; sorted.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> buffers;
};

// Captures the call as often as it takes to know which words of its graph are addresses of inputs
// that may be rebound. `output_allocations`: what the warm-up has noted.
Probe make_probe(const Call& call, ContextMemory& memory, Recorder& recorder,
                 const std::vector<std::uint32_t>& output_allocations);

}  // namespace cgtree
