// Rounds: many tokens of each request in one launch, by a loop on the device.
//
// A round feeds a token of each row and chooses the next one, as a step of the scheduler would;
// with a draft model it feeds what that proposes, too, and takes the proposals that the model would
// have chosen itself. A row ends with its request; the launch ends when all rows have, or after the
// largest number of rounds. Each round hands out its tokens at once (cgtree/loop_stream.h).
//
//   round   row 0 (5 tokens left)      row 1 (2 tokens left)
//   0       t0, and 2 proposals        t0
//   1       t3                         t1, the last
//   2       t4, the last               padding
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "cgtree/cgtree.h"
#include "examples/serve/model.h"
#include "examples/serve/scheduler.h"

namespace cgtree::serve {

struct RoundsOptions {
  std::int64_t most = 1;         // rounds of a launch
  const Model* draft = nullptr;  // proposes; of the same vocabulary and context as the model
  std::int64_t proposals = 0;    // of the draft in each round

  // The most tokens that a round yields for a row.
  std::int64_t width() const noexcept { return proposals + 1; }
  // The same for a launch.
  std::int64_t depth() const noexcept { return most * width(); }
};

// Tensors that a round works on. All are changed but for the caches' blocks of others.
struct RoundState {
  Tensor batch;     // as kernels.h has it
  Tensor left;      // int32 {rows}: tokens to be generated
  Tensor kv_cache;  // of the model
  Tensor draft_cache;
};

// Enqueues one round on current_stream(), and returns whether there are rows left, and the tokens,
// int32 {rows, width()}, with -1 where there is none. Tokens are drawn from the generator if there
// is a temperature. Requires: no draft with a temperature.
LoopRound decode_round(const Model& model, const RoundsOptions& options, const RoundState& state,
                       float temperature, const Generator& generator);

// Thread safety: one thread at a time.
class Rounds {
 public:
  // Borrows the context, both models and the generator. `batch`: the axis of rows.
  Rounds(Context& context, const Model& model, const SchedulerOptions& scheduler,
         const RoundsOptions& options, AxisOptions batch, bool is_compiled, float temperature,
         const Generator& generator);

  // Enqueues a launch. Outputs of the last one are invalidated. Requires: receive() since then.
  void launch(const Tensor& batch, const Tensor& left, const Tensor& kv_cache);
  // Enqueues the draft model's share of a prefill.
  void prefill(const Tensor& tokens, const Tensor& tables);

  // Called with the tokens of a round, int32 {rows, width()}.
  using OnRound = std::function<void(std::span<const std::int32_t> tokens)>;
  // Waits for all rounds of the launch, and appends the tokens of each of its first `rows` rows to
  // `next`, {rows, depth()}, with -1 behind them. Throws DeviceError if the device stops.
  void receive(std::size_t rows, std::span<std::int32_t> next, const OnRound& on_round);

  const RoundsOptions& options() const noexcept { return options_; }
  FunctionStats stats() const { return decode_.stats(); }

 private:
  Context& context_;
  const RoundsOptions options_;
  LoopStream rows_;
  std::vector<std::int32_t> row_;  // that was handed out
  Tensor draft_cache_;
  CompiledFunction<Tensor(Tensor, Tensor, Tensor, Tensor)> decode_;
  std::optional<CompiledFunction<Tensor(Tensor, Tensor, Tensor)>> prefill_;
};

}  // namespace cgtree::serve
