// Compiles the two step functions, packs their inputs and launches their calls.
#include "examples/serve/server.h"

#include "base/check.h"
#include "interop/device/device.h"
#include "interop/tensor/empty.h"

namespace cgtree::serve {
namespace {

InputOptions cache_options() {
  return {.name = "kv_cache", .is_static = true, .is_mutated = true};
}

}  // namespace

CompileOptions decode_options(AxisOptions batch) {
  batch.name = "batch";
  return {.inputs = {{.name = "batch", .dynamic = {{1, "batch"}}, .padding = Padding::of(-1)},
                     cache_options()},
          .axes = {std::move(batch)},
          .outputs = {{.name = "next", .dynamic = {{0, "batch"}}}}};
}

CompileOptions prefill_options(AxisOptions batch, AxisOptions length) {
  const Padding none = Padding::of(-1);  // no token, no slot
  batch.name = "batch";
  length.name = "length";
  return {.inputs = {{.name = "tokens", .dynamic = {{0, "batch"}, {1, "length"}}, .padding = none},
                     {.name = "slots", .dynamic = {{0, "batch"}}, .padding = none},
                     cache_options()},
          .axes = {std::move(batch), std::move(length)},
          .outputs = {{.name = "first", .dynamic = {{0, "batch"}}}}};
}

std::vector<std::int64_t> powers_of_two(std::int64_t largest) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size < largest; size *= 2)
    sizes.push_back(size);
  sizes.push_back(largest);
  return sizes;
}

PinnedInts::PinnedInts(Device device, std::size_t count) : api_(device_api(device)) {
  void* data = nullptr;
  check(api_.alloc_pinned(count * sizeof(std::int32_t), &data), "allocate pinned memory");
  data_ = static_cast<std::int32_t*>(data);
}

PinnedInts::~PinnedInts() {
  static_cast<void>(api_.free_pinned(data_));
}

Server::Server(const Model& model, std::int64_t max_prompt, CompileOptions decode,
               CompileOptions prefill)
    : max_batch_(static_cast<std::size_t>(model.sizes().slots)),
      context_(model.device()),
      decode_(compile(
          context_, "decode",
          [&model](Tensor batch, Tensor kv_cache) { return model.decode(batch, kv_cache); },
          std::move(decode))),
      prefill_(compile(
          context_, "prefill",
          [&model](Tensor tokens, Tensor slots, Tensor kv_cache) {
            return model.prefill(tokens, slots, kv_cache);
          },
          std::move(prefill))),
      kv_cache_(model.make_kv_cache()),
      tokens_(empty({model.sizes().slots * max_prompt}, DType::kInt32, model.device())),
      slots_(empty({model.sizes().slots}, DType::kInt32, model.device())),
      sent_(model.device(), max_batch_ * static_cast<std::size_t>(4 + max_prompt)),
      received_(model.device(), 2 * max_batch_) {
  const std::int64_t most = model.sizes().slots;
  const Tensor batch = empty({3 * most}, DType::kInt32, model.device());
  for (std::int64_t count = 1; count <= most; ++count)
    batches_.push_back(batch.slice(0, 0, 3 * count).reshape({3, count}));
}

void Server::launch(const Scheduler& scheduler) {
  prompt_count_ = scheduler.prompts().size();
  row_count_ = scheduler.rows().size();
  CGTREE_CHECK(prompt_count_ + row_count_ <= max_batch_);
  context_.mark_step();
  if (prompt_count_ > 0) launch_prefill(scheduler);
  if (row_count_ > 0) launch_decode(scheduler.rows());
}

void Server::launch_prefill(const Scheduler& scheduler) {
  const std::span<const Prompt> prompts = scheduler.prompts();
  const std::int64_t count = std::ssize(prompts);
  const std::int64_t length = longest(prompts);
  CGTREE_CHECK(count * length <= tokens_.elements());
  std::int32_t* const slots = sent_.data() + 3 * max_batch_;
  std::int32_t* const tokens = slots + max_batch_;
  for (std::int64_t i = 0; i < count; ++i) {
    const Prompt& prompt = prompts[static_cast<std::size_t>(i)];
    slots[i] = prompt.slot;
    for (std::int64_t t = 0; t < length; ++t)
      tokens[i * length + t] = t < prompt.length ? scheduler.prompt_token(prompt.request, t) : -1;
  }
  const Tensor sent_tokens = tokens_.slice(0, 0, count * length).reshape({count, length});
  const Tensor sent_slots = slots_.slice(0, 0, count);
  send(sent_tokens, tokens);
  send(sent_slots, slots);
  receive(received_.data(), prefill_(sent_tokens, sent_slots, kv_cache_));
}

void Server::launch_decode(std::span<const Row> rows) {
  const std::size_t count = rows.size();
  std::int32_t* const batch = sent_.data();
  for (std::size_t i = 0; i < count; ++i) {
    batch[i] = rows[i].token;
    batch[count + i] = rows[i].position;
    batch[2 * count + i] = rows[i].slot;
  }
  const Tensor& sent = batches_[count - 1];
  send(sent, batch);
  receive(received_.data() + max_batch_, decode_(sent, kv_cache_));
}

void Server::send(const Tensor& to, const std::int32_t* from) {
  const StreamRef stream = context_.stream();
  check(stream.api().copy(stream.handle(), to.data(), from, to.bytes()),
        "copy a step's inputs to the device");
}

void Server::receive(std::int32_t* to, const Tensor& from) {
  CGTREE_CHECK(from.bytes() <= max_batch_ * sizeof(std::int32_t));
  const StreamRef stream = context_.stream();
  check(stream.api().copy(stream.handle(), to, from.data(), from.bytes()),
        "copy a step's tokens to the host");
}

}  // namespace cgtree::serve
