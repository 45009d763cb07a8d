// Prefill for those who came, decode for those who go on.
#include "examples/serve/step_lane.h"

namespace cgtree::serve {
namespace {

void add(Work& work, std::int64_t rows, std::int64_t with_padding) {
  work.rows += with_padding;
  work.padded += with_padding - rows;
}

}  // namespace

StepLane::StepLane(const Model& model, const SizePlan& plan, std::int64_t max_prompt, CacheUse use,
                   bool compiled)
    : plan_(plan),
      compiled_(compiled),
      context_(model.device()),
      decode_(compile(
          context_, "decode",
          [&model](Tensor batch, Tensor kv_cache) { return model.decode(batch, kv_cache); },
          plan.decode(use, compiled))),
      prefill_(compile(
          context_, "prefill",
          [&model](Tensor tokens, Tensor slots, Tensor kv_cache) {
            return model.prefill(tokens, slots, kv_cache);
          },
          plan.prefill(use, compiled))),
      kv_cache_(model.make_kv_cache()),
      buffers_(model.device(), static_cast<int>(model.sizes().slots), max_prompt) {
}

void StepLane::launch(const Scheduler& scheduler) {
  const StreamRef stream = context_.stream();
  prompts_ = scheduler.prompts().size();
  rows_ = scheduler.rows().size();
  context_.mark_step();
  if (prompts_ > 0) {
    const PromptTensors inputs = buffers_.upload_prompts(stream, scheduler);
    buffers_.download_first(stream, prefill_(inputs.tokens, inputs.slots, kv_cache_));
    std::int64_t tokens = 0;
    for (const Prompt& prompt : scheduler.prompts())
      tokens += prompt.length;
    const std::int64_t length = inputs.tokens.dim(1);
    const auto count = static_cast<std::int64_t>(prompts_);
    add(prefill_work_, tokens, compiled_ ? plan_.prefill_rows(count, length) : count * length);
  }
  if (rows_ > 0) {
    const Tensor& batch = buffers_.upload_rows(stream, scheduler.rows());
    buffers_.download_next(stream, decode_(batch, kv_cache_));
    const auto count = static_cast<std::int64_t>(rows_);
    add(decode_work_, count, compiled_ ? plan_.decode_rows(count) : count);
  }
}

}  // namespace cgtree::serve
