// Rounds: many tokens of each request in one launch, by a loop on the device.
//
// A round feeds a token of each row and chooses the next one, as a step without rounds does. With a
// draft model it also feeds the draft's proposals, and accepts those that the model would have
// chosen itself. A row ends with its request; the launch ends when all rows have ended, or with the
// largest number of rounds. The tokens of each round are handed out at once
// (extensions/flow/loop_stream.h).
//
//   with 2 proposals   row 0, 5 tokens left   row 1, 2 tokens left
//   round 0            a, b, c                a
//   round 1            d                      b, its last
//   round 2            e, its last            -
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "cgtree/cgtree.h"
#include "examples/serve/model.h"
#include "examples/serve/scheduler.h"
#include "extensions/flow/loop_stream.h"

namespace cgtree::serve {

struct RoundsOptions {
  std::int64_t most = 1;         // rounds of a launch
  const Model* draft = nullptr;  // with the vocabulary and context of the model; null: no draft
  std::int64_t proposals = 0;    // of the draft, in each round

  // The most tokens of a row in a round, and in a launch.
  std::int64_t width() const noexcept { return proposals + 1; }
  std::int64_t depth() const noexcept { return most * width(); }
};

// The data that a round reads and changes.
struct RoundState {
  Tensor batch;  // as in kernels.h
  Tensor left;   // int32 {rows}: tokens to be generated
  Tensor kv_cache;
  Tensor draft_cache;  // undefined without a draft
};

// Enqueues a round on current_stream(). Its row has the tokens, int32 {rows, width()}, with -1 for
// missing ones. With a temperature they are drawn; then there must be no draft.
LoopRound decode_round(const Model& model, const RoundsOptions& options, const RoundState& state,
                       float temperature, const Generator& generator);

// Thread safety: one thread at a time.
class Rounds {
 public:
  // Borrows the context, the models and the generator. `decode` and `prefill`: of the functions of
  // a server without rounds.
  Rounds(Context& context, const Model& model, const SchedulerOptions& scheduler,
         const RoundsOptions& options, const CompileOptions& decode, const CompileOptions& prefill,
         float temperature, const Generator& generator);

  const RoundsOptions& options() const noexcept { return options_; }
  FunctionStats stats() const { return decode_.stats(); }

  // Enqueues the draft's share of a prefill; nothing without a draft.
  void prefill(const Tensor& tokens, const Tensor& tables);
  // Enqueues a launch, as Server does: `batch` and `left` may be padded. Requires: the last launch
  // has ended; rows of it that were not received are dropped.
  void launch(const Tensor& batch, const Tensor& left, const Tensor& kv_cache);

  // Called with the tokens of a round, int32 {rows, width()}.
  using OnRound = std::function<void(std::span<const std::int32_t>)>;
  // Waits for all rounds of the launch, and writes the tokens of its first rows to `next` {rows,
  // depth()}, followed by -1. Throws DeviceError.
  void receive(std::span<std::int32_t> next, const OnRound& on_round);

 private:
  Context& context_;
  const RoundsOptions options_;
  LoopStream stream_;
  std::vector<std::int32_t> tokens_;  // of a round
  Tensor draft_cache_;
  CompiledFunction<Tensor(Tensor, Tensor, Tensor, Tensor)> decode_;
  std::optional<CompiledFunction<Tensor(Tensor, Tensor, Tensor)>> prefill_;  // of the draft
};

}  // namespace cgtree::serve
