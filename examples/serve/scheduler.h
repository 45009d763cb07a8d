// Scheduler: which request sits in which slot at every step, by a virtual clock.
//
// Pure: it knows no device and no real time, so that a trace gives the same steps in every mode.
// There is no separate prefill: the tokens of a prompt go in one per step, as generated ones do.
// A request of p prompt tokens and g generated ones takes p + g - 1 steps; the step that feeds its
// last prompt token answers its first generated one. Invariants, at every step:
//   rows.size() <= max_batch, the slots of rows are distinct,
//   free slots + rows.size() = max_batch, or rows.size() = 0 before the first step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "examples/serve/trace.h"

namespace cgtree::serve {

struct SchedulerOptions {
  int max_batch = 8;
  std::int64_t max_prompt = 32;       // tokens; longer contexts are cut
  std::int64_t step_ns = 20'000'000;  // what one step takes on the virtual clock
  std::int32_t vocabulary = 256;      // prompt tokens are below this
  std::uint64_t seed = 1;
};

// What one slot does in one step.
struct Row {
  std::int32_t request = 0;  // index into the trace
  std::int32_t slot = 0;
  std::int32_t position = 0;  // of the token fed, counted from the request's first
  std::int32_t token = 0;     // the token fed
};

class Scheduler {
 public:
  // `requests`, ordered by arrival, must outlive the scheduler.
  Scheduler(std::span<const Request> requests, const SchedulerOptions& options);

  // Admits who has arrived, in order, while slots are free; when nobody is active, the clock jumps
  // to the next arrival. False: every request is finished.
  bool begin_step();
  // The active rows, by slot; until end_step().
  std::span<const Row> rows() const noexcept { return rows_; }
  // `next[i]` is what the model answered to rows()[i].
  void end_step(std::span<const std::int32_t> next);

  std::int64_t now_ns() const noexcept { return now_ns_; }
  std::int64_t generated() const noexcept { return generated_; }
  // By request: the tokens generated so far.
  const std::vector<std::vector<std::int32_t>>& tokens() const noexcept { return tokens_; }

 private:
  struct Slot {
    std::int32_t request = -1;  // -1: free
    std::int32_t position = 0;
    std::int32_t token = 0;
  };

  void admit(Slot& slot, std::int32_t request);
  void advance(Slot& slot, std::int32_t next);
  std::int64_t prompt_length(std::int32_t request) const;
  std::int32_t prompt_token(std::int32_t request, std::int32_t position) const;

  std::span<const Request> requests_;
  SchedulerOptions options_;
  std::vector<Slot> slots_;
  std::vector<Row> rows_;
  std::vector<std::vector<std::int32_t>> tokens_;
  std::size_t arrived_ = 0;  // requests admitted so far
  std::int64_t now_ns_ = 0;
  std::int64_t generated_ = 0;
};

// Steps that the trace takes; found by running the schedule without a model.
std::int64_t count_steps(std::span<const Request> requests, const SchedulerOptions& options);

}  // namespace cgtree::serve
