// Measuring: serves a whole trace in one mode, times every step, and shows the progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/serve/policy.h"
#include "cgtree/values/stats.h"
#include "examples/serve/config.h"
#include "examples/serve/model.h"
#include "examples/serve/scheduler.h"
#include "examples/serve/server.h"

namespace cgtree::serve {

// The rows that calls computed.
struct Work {
  std::int64_t rows = 0;    // with the padding
  std::int64_t padded = 0;  // the padding

  double share() const { return rows == 0 ? 0 : static_cast<double>(padded) / rows; }
};

// The results of serving a trace once. Times are wall-clock.
struct Served {
  std::vector<std::vector<std::int32_t>> tokens;  // generated, by request
  std::int64_t generated = 0;                     // sum of their sizes
  std::int64_t steps = 0;
  double seconds = 0;
  // The mean time from the start of a step until the copy of its tokens is enqueued.
  double host_us_per_step = 0;
  // The time until the tokens are on the host.
  double step_us_p50 = 0;
  double step_us_p99 = 0;
  FunctionStats decode;
  FunctionStats prefill;
  ContextStats context;  // at the end
  Verification verification;
  Work decode_work;
  Work prefill_work;
  // The share of replays among the decode steps after the first hundred; null if there are no such
  // steps.
  std::optional<double> replay_share_after_100;

  // The share of replays among all decode steps.
  double replay_share() const;
  double tokens_per_second() const;
};

// Returns the smallest value that at least `percent` in a hundred values do not exceed (nearest
// rank), or 0 for an empty list. Requires: 0 < percent <= 100.
double percentile(std::vector<double> values, double percent);

// Runs both functions once in a separate context, so that no result includes loading kernels.
void prime(const Model& model, const SchedulerOptions& options, const Rank& rank = {});

// Serves `requests`, which take `steps` steps: if `compiled`, through recordings under `plan`, and
// otherwise eagerly, with the same functions and kernels on equally padded sizes. Requires:
// `requests` are ordered by arrival. Throws as cgtree.
Served serve(const Model& model, std::span<const Request> requests, const SchedulerOptions& options,
             const SizePlan& plan, std::int64_t steps, bool compiled, const Rank& rank = {},
             std::size_t verify_every = 0);

// Progress shows the progress of serving, in one line of a terminal.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  // Writes to `file` only if it is a terminal. `total` is the expected number of `unit`.
  Progress(std::FILE* file, std::string label, std::int64_t total, std::string unit = "step");
  ~Progress();  // clears the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Redraws at most ten times a second. The caller passes the time, because it has just read it.
  void update(std::int64_t done, std::int64_t tokens, Clock::time_point now) {
    if (file_ != nullptr && now >= next_draw_) draw(done, tokens, now);
  }

 private:
  void draw(std::int64_t done, std::int64_t tokens, Clock::time_point now);

  std::FILE* file_;  // null: quiet
  std::string label_;
  std::int64_t total_;
  std::string unit_;
  Clock::time_point start_;
  Clock::time_point next_draw_;
};

// Throws OutOfMemory, which shows needs and free memory, if a model with `contexts` servers does
// not fit. Does nothing on a device that does not report free memory.
void expect_memory(const ModelConfig& config, const SchedulerOptions& options,
                   std::int64_t contexts, Device device);

}  // namespace cgtree::serve
