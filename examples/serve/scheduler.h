// Scheduler: assigns requests to slots at every step, by a virtual clock, and blocks of the cache
// to requests.
//
// The schedule is pure: it knows no device and no real time, so that the same requests give the
// same steps for any way of serving them. The prompt of a request goes in whole in the step that
// admits it, which yields its first generated token; each later step feeds one token and yields the
// next. So a request of g generated tokens takes g steps. With max_batch = 2 and requests a (2
// tokens), b (3 tokens) and c (1 token), which have all arrived:
//
//   step   prompts   rows   generated        slots after it
//   0      a b              a0 b0            a b
//   1                a b    a1 b1            - b    a is finished
//   2      c         b      c0 b2            - -
//
// An admitted request gets all the blocks that its prompt and its tokens will need; requests wait,
// in order, until there are enough. So no request is interrupted after it began.
//
// Invariants, at every step:
//   the slots of prompts and rows are distinct, and so are their blocks,
//   free slots + prompts.size() + rows.size() = max_batch,
//   free blocks + blocks of all slots = blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "examples/serve/kernels.h"

namespace cgtree::serve {

struct Request {
  std::int64_t arrival_ns = 0;  // since the first request
  std::int64_t context_tokens = 0;
  std::int64_t generated_tokens = 1;

  bool operator==(const Request&) const = default;
};

// Returns requests that come 90 ms apart on average, in bursts and pauses, with 1 to 256 tokens of
// context and 16 to 143 tokens to generate. The same seed gives the same requests everywhere.
std::vector<Request> seeded_requests(std::uint64_t seed, std::size_t count);

struct SchedulerOptions {
  int max_batch = 8;
  std::int64_t max_prompt = 32;  // tokens; longer contexts are cut
  // The most tokens of a request, of which the last is not fed back; further generated tokens are
  // cut. Requires: max_prompt <= context.
  std::int64_t context = 256;
  std::int64_t blocks = 8 * 16;       // of the cache, at least context / kBlockSize
  std::int64_t step_ns = 20'000'000;  // duration of a step on the virtual clock
  std::int32_t vocabulary = 256;      // prompt tokens are below this
  std::uint64_t seed = 1;
};

// A request that is admitted in this step: its whole prompt is fed.
struct Prompt {
  std::int32_t request = 0;  // index of the request
  std::int32_t slot = 0;
  std::int64_t length = 0;  // tokens, at least 1
};

// A request that was admitted in an earlier step: one token is fed.
struct Row {
  std::int32_t request = 0;  // index of the request
  std::int32_t slot = 0;
  std::int32_t position = 0;  // of the token fed, counted from the request's first
  std::int32_t token = 0;     // the token fed
  std::int32_t left = 0;      // tokens that the request still generates
};

// Returns the tokens of the longest prompt; 0 without prompts.
std::int64_t longest(std::span<const Prompt> prompts);

class Scheduler {
 public:
  // Requires: `requests` are ordered by arrival and outlive the scheduler.
  Scheduler(std::span<const Request> requests, const SchedulerOptions& options);

  // Admits requests that have arrived, in order, while slots and enough blocks are free. When no
  // slot is in use, the clock jumps to the next arrival. Returns false when every request is
  // finished.
  bool begin_step();
  // The inputs of this step, by slot, until end_step(). At least one of them is not empty.
  std::span<const Prompt> prompts() const noexcept { return prompts_; }
  std::span<const Row> rows() const noexcept { return rows_; }
  std::int32_t prompt_token(std::int32_t request, std::int64_t position) const;
  // Returns the blocks of the request in a slot, in the order of its tokens.
  std::span<const std::int32_t> blocks(std::int32_t slot) const {
    return slots_[static_cast<std::size_t>(slot)].blocks;
  }
  std::int64_t free_blocks() const noexcept { return std::ssize(free_blocks_); }
  // Returns how many tokens a request generates, after cutting.
  std::int64_t generated_tokens(std::int32_t request) const;
  // Takes the tokens that the model generated: `first` by prompt, and `next` by row, up to `depth`
  // of each, followed by -1. The step takes as long as the row with the most tokens.
  void end_step(std::span<const std::int32_t> first, std::span<const std::int32_t> next,
                std::int64_t depth = 1);

  std::int64_t now_ns() const noexcept { return now_ns_; }
  std::int64_t generated() const noexcept { return generated_; }
  // The tokens generated so far, by request.
  const std::vector<std::vector<std::int32_t>>& tokens() const noexcept { return tokens_; }

 private:
  struct Slot {
    std::int32_t request = -1;  // -1: free
    std::int32_t position = 0;
    std::int32_t token = 0;
    std::vector<std::int32_t> blocks;
  };

  bool is_admissible(std::int32_t request) const;
  void admit(std::size_t slot, std::int32_t request);
  void take(Slot& slot, std::int32_t next);
  std::int64_t blocks_needed(std::int32_t request) const;
  std::int64_t prompt_length(std::int32_t request) const;

  std::span<const Request> requests_;
  SchedulerOptions options_;
  std::vector<Slot> slots_;
  std::vector<std::int32_t> free_blocks_;  // the last block is taken first
  std::vector<Prompt> prompts_;
  std::vector<Row> rows_;
  std::vector<std::vector<std::int32_t>> tokens_;
  std::size_t arrived_ = 0;  // requests admitted so far
  std::int64_t now_ns_ = 0;
  std::int64_t generated_ = 0;
};

}  // namespace cgtree::serve
