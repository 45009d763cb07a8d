// Packs rows into pinned memory and copies both ways.
#include "examples/serve/step_buffers.h"

#include "base/check.h"
#include "examples/serve/buckets.h"
#include "interop/empty.h"
#include "interop/registry.h"

namespace cgtree::serve {

PinnedInts::PinnedInts(Device device, std::size_t count) : api_(device_api(device)) {
  void* data = nullptr;
  check(api_.alloc_pinned(count * sizeof(std::int32_t), &data), "allocate pinned memory");
  data_ = static_cast<std::int32_t*>(data);
}

PinnedInts::~PinnedInts() {
  static_cast<void>(api_.free_pinned(data_));
}

StepBuffers::StepBuffers(Device device, int max_batch)
    : buckets_(make_buckets(max_batch)),
      sent_(device, 3 * static_cast<std::size_t>(max_batch)),
      received_(device, static_cast<std::size_t>(max_batch)) {
  for (const int bucket : buckets_)
    batches_.push_back(empty({3, bucket}, DType::kInt32, device));
}

const Tensor& StepBuffers::upload(StreamRef stream, std::span<const Row> rows) {
  count_ = rows.size();
  const std::size_t index = find_bucket(buckets_, static_cast<int>(count_));
  const auto bucket = static_cast<std::size_t>(buckets_[index]);
  std::int32_t* const tokens = sent_.data();
  std::int32_t* const positions = tokens + bucket;
  std::int32_t* const slots = positions + bucket;
  for (std::size_t i = 0; i < bucket; ++i) {
    const Row row = i < count_ ? rows[i] : Row{.slot = -1};
    tokens[i] = row.token;
    positions[i] = row.position;
    slots[i] = row.slot;
  }
  const Tensor& batch = batches_[index];
  check(stream.api().copy(stream.handle(), batch.data(), sent_.data(), batch.bytes()),
        "copy the batch to the device");
  return batch;
}

void StepBuffers::download(StreamRef stream, const Tensor& next) {
  CGTREE_CHECK(next.elements() >= static_cast<std::int64_t>(count_));
  check(stream.api().copy(stream.handle(), received_.data(), next.data(),
                          count_ * sizeof(std::int32_t)),
        "copy the next tokens to the host");
}

}  // namespace cgtree::serve
