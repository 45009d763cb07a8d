// Packs rows and prompts into pinned memory and copies both ways.
#include "examples/serve/step_buffers.h"

#include "base/check.h"
#include "examples/serve/step_sizes.h"
#include "interop/tensor/empty.h"
#include "interop/device/device.h"

namespace cgtree::serve {

PinnedInts::PinnedInts(Device device, std::size_t count) : api_(device_api(device)) {
  void* data = nullptr;
  check(api_.alloc_pinned(count * sizeof(std::int32_t), &data), "allocate pinned memory");
  data_ = static_cast<std::int32_t*>(data);
}

PinnedInts::~PinnedInts() {
  static_cast<void>(api_.free_pinned(data_));
}

StepBuffers::StepBuffers(Device device, int max_batch, std::int64_t max_prompt)
    : max_batch_(static_cast<std::size_t>(max_batch)),
      prompts_(empty({max_batch * max_prompt}, DType::kInt32, device)),
      slots_(empty({max_batch}, DType::kInt32, device)),
      sent_(device, max_batch_ * static_cast<std::size_t>(4 + max_prompt)),
      received_(device, 2 * max_batch_) {
  const Tensor rows = empty({3 * max_batch}, DType::kInt32, device);
  for (std::int64_t count = 1; count <= max_batch; ++count)
    rows_.push_back(rows.slice(0, 0, 3 * count).reshape({3, count}));
}

const Tensor& StepBuffers::upload_rows(StreamRef stream, std::span<const Row> rows) {
  const std::size_t count = rows.size();
  CGTREE_CHECK(count >= 1 && count <= max_batch_);
  std::int32_t* const to = sent_.data();
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = rows[i].token;
    to[count + i] = rows[i].position;
    to[2 * count + i] = rows[i].slot;
  }
  const Tensor& batch = rows_[count - 1];
  send(stream, batch, to);
  return batch;
}

PromptTensors StepBuffers::upload_prompts(StreamRef stream, const Scheduler& scheduler) {
  const std::span<const Prompt> prompts = scheduler.prompts();
  const std::int64_t length = longest(prompts);
  std::int32_t* const slots = sent_.data() + 3 * max_batch_;
  std::int32_t* const tokens = slots + max_batch_;
  const std::int64_t count = std::ssize(prompts);
  CGTREE_CHECK(count >= 1 && count * length <= prompts_.elements());
  for (std::int64_t i = 0; i < count; ++i) {
    const Prompt& prompt = prompts[static_cast<std::size_t>(i)];
    slots[i] = prompt.slot;
    for (std::int64_t t = 0; t < length; ++t)
      tokens[i * length + t] = t < prompt.length ? scheduler.prompt_token(prompt.request, t) : -1;
  }
  PromptTensors sent{prompts_.slice(0, 0, count * length).reshape({count, length}),
                     slots_.slice(0, 0, count)};
  send(stream, sent.tokens, tokens);
  send(stream, sent.slots, slots);
  return sent;
}

void StepBuffers::download_first(StreamRef stream, const Tensor& first) {
  receive(stream, received_.data(), first);
}

void StepBuffers::download_next(StreamRef stream, const Tensor& next) {
  receive(stream, received_.data() + max_batch_, next);
}

void StepBuffers::send(StreamRef stream, const Tensor& to, const std::int32_t* from) {
  check(stream.api().copy(stream.handle(), to.data(), from, to.bytes()),
        "copy a step's inputs to the device");
}

void StepBuffers::receive(StreamRef stream, std::int32_t* to, const Tensor& from) {
  CGTREE_CHECK(from.bytes() <= max_batch_ * sizeof(std::int32_t));
  check(stream.api().copy(stream.handle(), to, from.data(), from.bytes()),
        "copy a step's tokens to the host");
}

}  // namespace cgtree::serve
