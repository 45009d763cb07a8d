// StepLane: a context with the two compiled functions of a server, and their inputs.
#pragma once

#include <cstdint>
#include <span>

#include "cgtree/cgtree.h"
#include "examples/serve/model.h"
#include "examples/serve/policy.h"
#include "examples/serve/scheduler.h"
#include "examples/serve/step_buffers.h"

namespace cgtree::serve {

// What calls were padded to, in rows of the model.
struct Work {
  std::int64_t rows = 0;    // with the padding
  std::int64_t padded = 0;  // of them

  double share() const { return rows == 0 ? 0 : static_cast<double>(padded) / rows; }
};

// Used by one thread at a time; made once for all steps.
class StepLane {
 public:
  // `compiled`: through recordings, else eagerly, with true sizes. `max_prompt`: tokens. The model
  // must outlive the lane.
  StepLane(const Model& model, const SizePlan& plan, std::int64_t max_prompt, CacheUse use,
           bool compiled);

  // Enqueues the scheduler's step: its prompts, then its rows. What the step before answered is
  // given up.
  void launch(const Scheduler& scheduler);
  // Blocks until the tokens of the step are on the host.
  void wait() { context_.synchronize(); }
  // By prompt and by row of the last step; after wait().
  std::span<const std::int32_t> first() const { return {buffers_.first(), prompts_}; }
  std::span<const std::int32_t> next() const { return {buffers_.next(), rows_}; }

  FunctionStats decode_stats() const { return decode_.stats(); }
  FunctionStats prefill_stats() const { return prefill_.stats(); }
  ContextStats stats() const { return context_.stats(); }
  // Of the calls that did not run eagerly, for those see true sizes.
  const Work& decode_work() const { return decode_work_; }
  const Work& prefill_work() const { return prefill_work_; }

 private:
  SizePlan plan_;
  bool compiled_;
  Context context_;
  CompiledFunction<Tensor(Tensor, Tensor)> decode_;
  CompiledFunction<Tensor(Tensor, Tensor, Tensor)> prefill_;
  Tensor kv_cache_;
  StepBuffers buffers_;
  std::size_t prompts_ = 0;
  std::size_t rows_ = 0;
  Work decode_work_;
  Work prefill_work_;
};

}  // namespace cgtree::serve
