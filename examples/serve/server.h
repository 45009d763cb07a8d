// Server: a context with the two compiled functions of a model, and the inputs of their steps.
//
// One step of continuous batching:
//
//   scheduler.begin_step()                      which requests are fed
//   server.launch(scheduler)                    mark_step(), upload, prefill, decode, download
//   server.wait()                               the tokens are on the host
//   scheduler.end_step(server.first(), server.next())
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cgtree/cgtree.h"
#include "examples/serve/model.h"
#include "examples/serve/scheduler.h"

namespace cgtree::serve {

// How the two functions are compiled. The batch of decode() varies in one axis, and the prompts of
// prefill() in two; the options of an axis say which of its sizes get recordings. The KV cache is a
// static input that the functions write into.
CompileOptions decode_options(AxisOptions batch);
CompileOptions prefill_options(AxisOptions batch, AxisOptions length);

// Returns 1, 2, 4, ... and `largest` itself.
std::vector<std::int64_t> powers_of_two(std::int64_t largest);

// PinnedInts are integers in host memory that the device copies from and to directly.
class PinnedInts {
 public:
  PinnedInts(Device device, std::size_t count);
  ~PinnedInts();
  PinnedInts(const PinnedInts&) = delete;
  PinnedInts& operator=(const PinnedInts&) = delete;

  std::int32_t* data() const noexcept { return data_; }

 private:
  DeviceAPI& api_;
  std::int32_t* data_ = nullptr;
};

// Thread safety: one thread at a time.
class Server {
 public:
  // `max_prompt` is in tokens. Requires: the model outlives the server. Throws OutOfMemory.
  Server(const Model& model, std::int64_t max_prompt, CompileOptions decode,
         CompileOptions prefill);

  // Enqueues one step: the scheduler's prompts, then its rows. The outputs of the last step are
  // invalidated. Requires: wait() since the last launch. Throws what calls of compiled functions
  // throw.
  void launch(const Scheduler& scheduler);
  // Blocks until the tokens of the step are on the host.
  void wait() { context_.synchronize(); }
  // The tokens by prompt and by row of the last step; after wait().
  std::span<const std::int32_t> first() const { return {received_.data(), prompt_count_}; }
  std::span<const std::int32_t> next() const { return {received_.data() + max_batch_, row_count_}; }

  FunctionStats decode_stats() const { return decode_.stats(); }
  FunctionStats prefill_stats() const { return prefill_.stats(); }
  ContextStats stats() const { return context_.stats(); }

 private:
  // Each enqueues copies to the device, the call, and the copy of its tokens to the host.
  void launch_prefill(const Scheduler& scheduler);
  void launch_decode(std::span<const Row> rows);
  void send(const Tensor& to, const std::int32_t* from);
  void receive(std::int32_t* to, const Tensor& from);

  std::size_t max_batch_;
  Context context_;
  CompiledFunction<Tensor(Tensor, Tensor)> decode_;
  CompiledFunction<Tensor(Tensor, Tensor, Tensor)> prefill_;
  Tensor kv_cache_;
  // Inputs on the device, allocated once for all steps; a step uses the front of each.
  std::vector<Tensor> batches_;  // int32 {3, count}, by count - 1; all in one storage
  Tensor tokens_;                // int32 {max_batch * max_prompt}
  Tensor slots_;                 // int32 {max_batch}
  PinnedInts sent_;              // batch, slots, tokens
  PinnedInts received_;          // first, next
  std::size_t prompt_count_ = 0;
  std::size_t row_count_ = 0;
};

}  // namespace cgtree::serve
