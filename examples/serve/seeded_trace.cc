// Draws arrivals and lengths from a hash of the seed.
#include "examples/serve/seeded_trace.h"

#include "examples/serve/hash.h"

namespace cgtree::serve {

std::vector<Request> seeded_trace(std::uint64_t seed, std::size_t requests) {
  std::uint64_t state = mix(seed);
  const auto draw = [&state](std::uint64_t bound) {
    state = mix(state);
    return static_cast<std::int64_t>(state % bound);
  };
  std::vector<Request> trace;
  trace.reserve(requests);
  std::int64_t arrival_ms = 0;
  for (std::size_t i = 0; i < requests; ++i) {
    trace.push_back({arrival_ms * 1'000'000, 1 + draw(256), 16 + draw(128)});
    // Three short gaps to one long one: mean 3/4 * 19.5 + 1/4 * 299.5 ms.
    arrival_ms += draw(4) != 0 ? draw(40) : draw(600);
  }
  return trace;
}

}  // namespace cgtree::serve
