// The server loop: serves a whole trace in one mode and measures every step.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cgtree/stats.h"
#include "examples/serve/model.h"
#include "examples/serve/policy.h"
#include "examples/serve/scheduler.h"
#include "examples/serve/step_lane.h"
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
  FunctionStats decode;
  FunctionStats prefill;
  ContextStats context;  // when all was served
  Work decode_work;
  Work prefill_work;
  // Share of the decode steps after the first hundred that replayed; none if there are no such
  // steps.
  std::optional<double> replay_share_after_100;

  // Share of all decode steps that replayed.
  double replay_share() const;
  double tokens_per_second() const;
};

// Runs both functions once in a context of their own, so that loading kernels counts for no mode.
void prime(const Model& model, const SchedulerOptions& options);

// `compiled`: through recordings as `plan` says, else eagerly: the same functions and kernels, true
// sizes, no graph. `requests` are ordered by arrival, `steps`: how many they take. Throws what
// cgtree throws.
Served serve(const Model& model, std::span<const Request> requests, const SchedulerOptions& options,
             const SizePlan& plan, std::int64_t steps, bool compiled);

}  // namespace cgtree::serve
