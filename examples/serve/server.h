// The server loop: serves a whole trace in one mode and measures every step.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cgtree/stats.h"
#include "examples/serve/model.h"
#include "examples/serve/scheduler.h"
#include "examples/serve/trace.h"

namespace cgtree::serve {

// What serving a trace once came to. Times are wall-clock.
struct Served {
  std::vector<std::vector<std::int32_t>> tokens;  // generated, by request
  std::int64_t generated = 0;                     // sum of their sizes
  std::int64_t steps = 0;
  double seconds = 0;
  // From the start of building a step until the copy of its tokens is enqueued; mean.
  double host_us_per_step = 0;
  // Until the tokens are on the host.
  double step_us_p50 = 0;
  double step_us_p99 = 0;
  FunctionStats stats;         // of the decode function
  std::size_t pool_bytes = 0;  // device memory of the context's pools
  // Share of the steps after the first hundred that replayed; none if there are no such steps.
  std::optional<double> replay_share_after_100;

  double tokens_per_second() const;
};

// Runs each batch size once in a context of its own, so that loading kernels and libraries counts
// for no mode.
void prime(const Model& model);

// `compiled`: through recordings, else eagerly: the same function, shapes and kernels, no graph.
// `requests` are ordered by arrival. Throws what cgtree throws.
Served serve(const Model& model, std::span<const Request> requests, const SchedulerOptions& options,
             bool compiled);

}  // namespace cgtree::serve
