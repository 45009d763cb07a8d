// A trace made from a seed, for runs without a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "examples/serve/trace.h"

namespace cgtree::serve {

// Requests that come 90 ms apart on average, in bursts and pauses, with 1 to 256 tokens of context
// and 16 to 143 tokens to generate. The same seed gives the same trace everywhere.
std::vector<Request> seeded_trace(std::uint64_t seed, std::size_t requests);

}  // namespace cgtree::serve
