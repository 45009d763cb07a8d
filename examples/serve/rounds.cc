// Compiles the loop, and collects the rows of its rounds.
#include "examples/serve/rounds.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "extensions/flow/control_flow.h"
#include "extensions/scopes/scope.h"
#include "interop/device/device_api.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"

namespace cgtree::serve {
namespace {

// Returns the rows that the model must check: each row of the batch, followed by the draft's
// proposals. The draft also feeds its last proposal, so that its cache has all tokens that may be
// accepted.
Tensor proposals_of(const RoundsOptions& options, const RoundState& state) {
  const StreamRef stream = current_stream();
  const std::int64_t rows = state.batch.dim(0);
  Tensor verify = empty({rows * options.width(), state.batch.dim(1)}, DType::kInt32);
  const Tensor fed = empty(state.batch.shape(), DType::kInt32);
  const Tensor proposed = empty(Shape(), DType::kInt32);
  lay_out_proposals(stream, state.batch, state.left, fed, verify, proposed);
  (void)loop(options.width(), [&] {
    const Scope scope("draft");
    const Tensor logits = options.draft->decode(fed, state.draft_cache, nullptr);
    const Tensor next = options.draft->choose_tokens(logits, 0, Generator(), nullptr);
    propose(current_stream(), next, fed, verify, proposed);
    return proposed;  // not 0: the limit ends the loop
  });
  return verify;
}

CompileOptions rounds_options(const CompileOptions& decode) {
  CompileOptions options = decode;
  InputOptions left = options.inputs[0];
  left.name = "left";
  InputOptions draft = options.inputs[1];
  draft.name = "draft_cache";
  options.inputs = {options.inputs[0], left, options.inputs[1], draft};
  options.outputs = {{.name = "rounds"}};
  return options;
}

}  // namespace

LoopRound decode_round(const Model& model, const RoundsOptions& options, const RoundState& state,
                       float temperature, const Generator& generator) {
  const std::int64_t rows = state.batch.dim(0);
  LoopRound round{empty(Shape(), DType::kInt32), empty({rows, options.width()}, DType::kInt32)};
  const Tensor fed = options.proposals > 0 ? proposals_of(options, state) : state.batch;
  const Tensor logits = model.decode(fed, state.kv_cache, nullptr);
  const Tensor chosen = model.choose_tokens(logits, temperature, generator, nullptr);
  accept(current_stream(), chosen, fed, state.batch, state.left, round.row, round.goes_on);
  return round;
}

Rounds::Rounds(Context& context, const Model& model, const SchedulerOptions& scheduler,
               const RoundsOptions& options, const CompileOptions& decode,
               const CompileOptions& prefill, float temperature, const Generator& generator)
    : context_(context),
      options_(options),
      stream_(
          model.device(),
          static_cast<std::size_t>(scheduler.max_batch * options.width()) * sizeof(std::int32_t),
          static_cast<std::size_t>(options.most)),
      tokens_(static_cast<std::size_t>(scheduler.max_batch * options.width())),
      draft_cache_(options.draft != nullptr ? options.draft->make_kv_cache(scheduler.blocks)
                                            : empty({1}, DType::kInt32, model.device())),
      decode_(compile(
          context, "decode_rounds",
          [this, &model, &generator, temperature](Tensor batch, Tensor left, Tensor kv_cache,
                                                  Tensor draft_cache) {
            const RoundState state{empty(batch.shape(), DType::kInt32),
                                   empty(left.shape(), DType::kInt32), kv_cache, draft_cache};
            copy_elements(current_stream(), state.batch, batch);
            copy_elements(current_stream(), state.left, left);
            return loop(
                options_.most, stream_,
                [&] { return decode_round(model, options_, state, temperature, generator); },
                {generator});
          },
          rounds_options(decode))) {
  CGTREE_CHECK(options.draft == nullptr || temperature == 0);
  if (options.draft == nullptr) return;
  prefill_.emplace(compile(
      context, "draft_prefill",
      [&draft = *options.draft](Tensor tokens, Tensor tables, Tensor cache) {
        return draft.prefill(tokens, tables, cache, nullptr);
      },
      prefill));
}

void Rounds::prefill(const Tensor& tokens, const Tensor& tables) {
  if (prefill_) (void)(*prefill_)(tokens, tables, draft_cache_);
}

void Rounds::launch(const Tensor& batch, const Tensor& left, const Tensor& kv_cache) {
  (void)stream_.drop();
  (void)decode_(batch, left, kv_cache, draft_cache_);
}

void Rounds::receive(std::span<std::int32_t> next, const OnRound& on_round) {
  const auto depth = static_cast<std::size_t>(options_.depth());
  const auto width = static_cast<std::size_t>(options_.width());
  const std::size_t rows = next.size() / depth;
  std::ranges::fill(next, -1);
  std::vector<std::size_t> counts(rows, 0);
  for (bool goes_on = true; goes_on;) {
    const auto row =
        stream_.next(std::as_writable_bytes(std::span(tokens_)), std::chrono::seconds(1));
    if (!row) {  // it takes long, or the device has failed
      const Code code = context_.stream().api().query_stream(context_.stream().handle());
      if (code != Code::kNotReady) check(code, "wait for the rounds of a launch");
      continue;
    }
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t i = 0; i < width && tokens_[r * width + i] >= 0; ++i)
        next[r * depth + counts[r]++] = tokens_[r * width + i];
    }
    if (on_round) on_round(std::span(tokens_).first(rows * width));
    goes_on = !row->is_last;
  }
}

}  // namespace cgtree::serve
