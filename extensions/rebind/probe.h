// Probe: a capture of a step with its inputs at the caller's addresses. It is compared with the
// kept capture, whose inputs are copies: the differences are the addresses of inputs.
//
// Both captures make the same allocations, including copies, and a pool places equal sequences of
// allocations equally. So nothing else differs, unless the step function's work differs each time.
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

// A Probe is the result of a capture that was not kept.
struct Probe {
  std::string failure;     // the reason why it has no result, or ""
  GraphContents contents;  // of its graph
  // The allocations of the step that became outputs with a buffer that may be rebound, by number in
  // the step, and the number of the buffer among all inputs; sorted.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> buffers;
};

// Captures the call until it is known which words of its graph are addresses of inputs that may be
// rebound. `output_allocations`: those that the warm-up noted.
Probe make_probe(const Call& call, ContextMemory& memory, Recorder& recorder,
                 const std::vector<std::uint32_t>& output_allocations);

}  // namespace cgtree
