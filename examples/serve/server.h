// Server: a context with the two compiled functions of a model, and the inputs of their steps.
//
// One step of continuous batching:
//
//   scheduler.begin_step()                      which requests are fed
//   server.launch(scheduler)                    mark_step(), upload, prefill, decode, download
//   server.wait()                               the tokens are on the host
//   scheduler.end_step(server.first(), server.next(), server.depth())
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "allocator/device/pinned_memory.h"
#include "cgtree/cgtree.h"
#include "examples/serve/model.h"
#include "examples/serve/ranks.h"
#include "examples/serve/rounds.h"
#include "examples/serve/scheduler.h"
#include "extensions/ranks/collectives.h"
#include "extensions/ranks/communicator.h"
#include "extensions/sizes/size_learner.h"
#include "extensions/verify/verification.h"
#include "extensions/watch/monitor.h"

namespace cgtree::serve {

// The options with which the two functions are compiled. The batch of decode() varies in one axis,
// and the prompts of prefill() in two; the options of an axis choose the sizes that get recordings.
// The KV cache is a static input that the functions write into.
CompileOptions decode_options(AxisOptions batch);
CompileOptions prefill_options(AxisOptions batch, AxisOptions length);

// Sizes to which a server pads steps itself, as a program without cgtree would, ascending; an empty
// list and sizes above the largest are not padded. Products of other sizes may be rounded
// differently, so tokens can be compared only between calls with equal padding.
struct StepBuckets {
  std::vector<std::int64_t> decode_batch, prefill_batch, prefill_length;

  static std::int64_t pad(const std::vector<std::int64_t>& buckets, std::int64_t size);
};

// Returns 1, 2, 4, ... and `largest` itself.
std::vector<std::int64_t> powers_of_two(std::int64_t largest);

// Thread safety: one thread at a time.
class Server {
 public:
  // Serves the steps of schedulers with the same options. Tokens are drawn if there is a
  // temperature. `context`: of the server's context; its group is that of the rank. Requires: the
  // model outlives the server, and is that of the rank. `rounds`: steps of more than one token, on
  // one rank. Throws InvalidArgument for invalid rounds; OutOfMemory.
  Server(const Model& model, const SchedulerOptions& options, CompileOptions decode,
         CompileOptions prefill, float temperature = 0, const Rank& rank = {},
         ContextOptions context = {}, const RoundsOptions& rounds = {});
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // From now on steps are padded by the server.
  void pad_to(StepBuckets buckets) { buckets_ = std::move(buckets); }
  // From now on learn_between_steps() records those batches of decode() that pay. Requires: its
  // axis has AxisPolicy::kLearned.
  void learn(const LearnOptions& options);
  // Does nothing unless learn() was called. Requires: wait() since the last launch.
  LearnerStep learn_between_steps();
  // Enqueues one step: the scheduler's prompts, then its rows. The outputs of the last step are
  // invalidated. Requires: wait() since the last launch. Throws as calls of compiled functions.
  void launch(const Scheduler& scheduler);
  // Blocks until the tokens of the step are on the host. Tokens of rounds are passed on as they
  // come. Throws GroupError if another rank fails.
  void wait(const Rounds::OnRound& on_round = nullptr);
  // The tokens of the last step by prompt, and by row up to depth(), followed by -1; after wait().
  std::span<const std::int32_t> first() const { return {received_, prompt_count_}; }
  std::span<const std::int32_t> next() const {
    return std::span(next_).first(row_count_ * static_cast<std::size_t>(depth()));
  }
  std::int64_t depth() const noexcept { return rounds_ ? rounds_->options().depth() : 1; }

  // The learned batches that are recorded now.
  Sizes learned() const { return learner_ ? learner_->sizes() : Sizes(); }
  FunctionStats decode_stats() const { return rounds_ ? rounds_->stats() : decode_.stats(); }
  FunctionStats prefill_stats() const { return prefill_.stats(); }
  ContextStats stats() const { return context_.stats(); }
  ContextMetrics metrics() const { return metrics_of(context_); }  // any thread
  Verification verification() const { return verification_of(context_); }

 private:
  // Each enqueues copies to the device, the call, and the copy of its tokens to the host.
  void launch_prefill(const Scheduler& scheduler);
  void launch_decode(const Scheduler& scheduler);
  Communicator* communicator() { return communicator_ ? &*communicator_ : nullptr; }
  void send(const Tensor& to, const std::int32_t* from);
  void receive(std::int32_t* to, const Tensor& from);

  const std::int64_t max_batch_;
  const std::int64_t table_;  // blocks of a request
  const std::shared_ptr<Collectives> collectives_;
  StepBuckets buckets_;
  Context context_;
  std::optional<Communicator> communicator_;
  Generator generator_;
  CompiledFunction<Tensor(Tensor, Tensor)> decode_;
  CompiledFunction<Tensor(Tensor, Tensor, Tensor)> prefill_;
  std::optional<Rounds> rounds_;
  std::optional<SizeLearner> learner_;  // of decode_
  Tensor kv_cache_;
  // Inputs on the device, allocated once for all steps; a step uses the front of each.
  Tensor batch_;            // int32 {max_batch, 2 + table}
  Tensor tokens_;           // int32 {max_batch * max_prompt}
  Tensor tables_;           // int32 {max_batch, table}
  Tensor left_;             // int32 {max_batch}
  Tensor pinned_;           // buffer for the copies of send() and receive()
  std::int32_t* sent_;      // batch, tables, tokens, left
  std::int32_t* received_;  // first, next
  std::vector<std::int32_t> next_;
  std::size_t prompt_count_ = 0;
  std::size_t row_count_ = 0;
};

}  // namespace cgtree::serve
