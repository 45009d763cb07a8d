// Compiles the two step functions, packs their inputs and launches their calls.
#include "examples/serve/server.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"
#include "interop/tensor/empty.h"

namespace cgtree::serve {
namespace {

const Padding kNone = Padding::of(-1);  // no token, no position, no block

InputOptions cache_options() {
  return {.name = "kv_cache", .is_static = true, .is_mutated = true};
}

ContextOptions of_rank(ContextOptions options, const Rank& rank) {
  options.group = rank.group;
  return options;
}

}  // namespace

CompileOptions decode_options(AxisOptions batch) {
  batch.name = "batch";
  return {
      .inputs = {{.name = "batch", .dynamic = {{0, "batch"}}, .padding = kNone}, cache_options()},
      .axes = {std::move(batch)},
      .outputs = {{.name = "next", .dynamic = {{0, "batch"}}}}};
}

CompileOptions prefill_options(AxisOptions batch, AxisOptions length) {
  batch.name = "batch";
  length.name = "length";
  return {.inputs = {{.name = "tokens", .dynamic = {{0, "batch"}, {1, "length"}}, .padding = kNone},
                     {.name = "tables", .dynamic = {{0, "batch"}}, .padding = kNone},
                     cache_options()},
          .axes = {std::move(batch), std::move(length)},
          .outputs = {{.name = "first", .dynamic = {{0, "batch"}}}}};
}

std::int64_t StepBuckets::pad(const std::vector<std::int64_t>& buckets, std::int64_t size) {
  const auto found = std::lower_bound(buckets.begin(), buckets.end(), size);
  return found == buckets.end() ? size : *found;
}

std::vector<std::int64_t> powers_of_two(std::int64_t largest) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size < largest; size *= 2)
    sizes.push_back(size);
  sizes.push_back(largest);
  return sizes;
}

Server::Server(const Model& model, const SchedulerOptions& options, CompileOptions decode,
               CompileOptions prefill, float temperature, const Rank& rank, ContextOptions context,
               const RoundsOptions& rounds)
    : max_batch_(options.max_batch),
      table_(model.context() / kBlockSize),
      collectives_(rank.collectives),
      context_(model.device(), of_rank(std::move(context), rank)),
      generator_(options.seed),
      decode_(compile(
          context_, "decode",
          [this, &model, temperature](Tensor batch, Tensor kv_cache) {
            const Tensor logits = model.decode(batch, kv_cache, communicator());
            return model.choose_tokens(logits, temperature, generator_, communicator());
          },
          decode)),
      prefill_(compile(
          context_, "prefill",
          [this, &model, temperature](Tensor tokens, Tensor tables, Tensor kv_cache) {
            const Tensor logits = model.prefill(tokens, tables, kv_cache, communicator());
            return model.choose_tokens(logits, temperature, generator_, communicator());
          },
          prefill)),
      kv_cache_(model.make_kv_cache(options.blocks)),
      batch_(empty({max_batch_, 2 + table_}, DType::kInt32, model.device())),
      tokens_(empty({max_batch_ * options.max_prompt}, DType::kInt32, model.device())),
      tables_(empty({max_batch_, table_}, DType::kInt32, model.device())),
      left_(empty({max_batch_}, DType::kInt32, model.device())),
      pinned_(PinnedMemory(model.device())
                  .empty({max_batch_ * (2 + table_ + table_ + options.max_prompt + 1 + 2)},
                         DType::kInt32)),
      sent_(pinned_.data<std::int32_t>()),
      received_(sent_ + pinned_.elements() - 2 * max_batch_) {
  if (collectives_) communicator_.emplace(context_, collectives_);
  next_.resize(static_cast<std::size_t>(max_batch_ * rounds.depth()));
  if (rounds.depth() == 1) return;
  if (collectives_) throw InvalidArgument("rounds on several ranks: not there");
  if (rounds.draft != nullptr && temperature > 0)
    throw InvalidArgument("a draft model with a temperature: not there");
  rounds_.emplace(context_, model, options, rounds, decode, prefill, temperature, generator_);
}

// Rows without a token are treated as padding, and touch no block of the cache.
void Server::learn(const LearnOptions& options) {
  learner_.emplace(
      decode_,
      [this](const CallSizes& sizes) {
        const std::int64_t count = sizes["batch"];
        std::fill_n(sent_, count * (2 + table_), -1);
        const Tensor batch = batch_.slice(0, 0, count);
        send(batch, sent_);
        return std::vector<Tensor>{batch, kv_cache_};
      },
      options);
}

LearnerStep Server::learn_between_steps() {
  if (!learner_) return {};
  context_.mark_step();
  return learner_->between_calls();
}

void Server::wait(const Rounds::OnRound& on_round) {
  if (rounds_ && row_count_ > 0) {
    rounds_->receive(std::span(next_).first(row_count_ * static_cast<std::size_t>(depth())),
                     on_round);
  }
  if (collectives_) {
    collectives_->synchronize(context_.stream());
  } else {
    context_.synchronize();
  }
  if (!rounds_) std::copy_n(received_ + max_batch_, row_count_, next_.begin());
}

void Server::launch(const Scheduler& scheduler) {
  prompt_count_ = scheduler.prompts().size();
  row_count_ = scheduler.rows().size();
  CGTREE_CHECK(std::cmp_less_equal(prompt_count_ + row_count_, max_batch_));
  context_.mark_step();
  if (prompt_count_ > 0) launch_prefill(scheduler);
  if (row_count_ > 0) launch_decode(scheduler);
}

void Server::launch_prefill(const Scheduler& scheduler) {
  const std::span<const Prompt> prompts = scheduler.prompts();
  const std::int64_t count = StepBuckets::pad(buckets_.prefill_batch, std::ssize(prompts));
  const std::int64_t length = StepBuckets::pad(buckets_.prefill_length, longest(prompts));
  CGTREE_CHECK(count <= max_batch_ && count * length <= tokens_.elements());
  std::int32_t* const tables = sent_ + max_batch_ * (2 + table_);
  std::int32_t* const tokens = tables + max_batch_ * table_;
  std::fill_n(tables, count * table_, -1);
  std::fill_n(tokens, count * length, -1);
  for (std::int64_t i = 0; i < std::ssize(prompts); ++i) {
    const Prompt& prompt = prompts[static_cast<std::size_t>(i)];
    std::ranges::copy(scheduler.blocks(prompt.slot), tables + i * table_);
    for (std::int64_t t = 0; t < prompt.length; ++t)
      tokens[i * length + t] = scheduler.prompt_token(prompt.request, t);
  }
  const Tensor sent_tokens = tokens_.slice(0, 0, count * length).reshape({count, length});
  const Tensor sent_tables = tables_.slice(0, 0, count);
  send(sent_tokens, tokens);
  send(sent_tables, tables);
  receive(received_, prefill_(sent_tokens, sent_tables, kv_cache_));
  if (rounds_) rounds_->prefill(sent_tokens, sent_tables);
}

void Server::launch_decode(const Scheduler& scheduler) {
  const std::span<const Row> rows = scheduler.rows();
  const std::int64_t count = StepBuckets::pad(buckets_.decode_batch, std::ssize(rows));
  std::fill_n(sent_, count * (2 + table_), -1);
  std::int32_t* to = sent_;
  for (const Row& row : rows) {
    to[0] = row.token;
    to[1] = row.position;
    std::ranges::copy(scheduler.blocks(row.slot), to + 2);
    to += 2 + table_;
  }
  const Tensor batch = batch_.slice(0, 0, count);
  send(batch, sent_);
  if (!rounds_) {
    receive(received_ + max_batch_, decode_(batch, kv_cache_));
    return;
  }
  std::int32_t* const tokens_left = received_ - max_batch_;
  std::fill_n(tokens_left, count, -1);
  std::ranges::transform(rows, tokens_left, &Row::left);
  send(left_.slice(0, 0, count), tokens_left);
  rounds_->launch(batch, left_.slice(0, 0, count), kv_cache_);
}

void Server::send(const Tensor& to, const std::int32_t* from) {
  const StreamRef stream = context_.stream();
  check(stream.api().copy(stream.handle(), to.data(), from, to.bytes()),
        "copy a step's inputs to the device");
}

void Server::receive(std::int32_t* to, const Tensor& from) {
  CGTREE_CHECK(from.elements() <= max_batch_);
  const StreamRef stream = context_.stream();
  check(stream.api().copy(stream.handle(), to, from.data(), from.bytes()),
        "copy a step's tokens to the host");
}

}  // namespace cgtree::serve
