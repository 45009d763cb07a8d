// Scheduler: which request sits in which slot at every step, by a virtual clock.
//
// Pure: it knows no device and no real time, so that a trace gives the same steps in every mode.
// The prompt of a request goes in whole in the step that admits it, which answers its first
// generated token; each later step feeds one token and answers the next. So a request of g
// generated tokens takes g steps. Invariants, at every step:
//   the slots of prompts and rows are distinct,
//   free slots + prompts.size() + rows.size() = max_batch.
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

// A request that is admitted: its whole prompt is fed.
struct Prompt {
  std::int32_t request = 0;  // index into the trace
  std::int32_t slot = 0;
  std::int64_t length = 0;  // tokens, at least 1
};

// A request that goes on: one token is fed.
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
  // What this step feeds, by slot; until end_step(). Not both are empty.
  std::span<const Prompt> prompts() const noexcept { return prompts_; }
  std::span<const Row> rows() const noexcept { return rows_; }
  std::int32_t prompt_token(std::int32_t request, std::int64_t position) const;
  // `first[i]` is what the model answered to prompts()[i], `next[i]` to rows()[i].
  void end_step(std::span<const std::int32_t> first, std::span<const std::int32_t> next);

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

  void admit(std::size_t slot, std::int32_t request);
  void take(Slot& slot, std::int32_t next);
  std::int64_t prompt_length(std::int32_t request) const;

  std::span<const Request> requests_;
  SchedulerOptions options_;
  std::vector<Slot> slots_;
  std::vector<Prompt> prompts_;
  std::vector<Row> rows_;
  std::vector<std::vector<std::int32_t>> tokens_;
  std::size_t arrived_ = 0;  // requests admitted so far
  std::int64_t now_ns_ = 0;
  std::int64_t generated_ = 0;
};

}  // namespace cgtree::serve
