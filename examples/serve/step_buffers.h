// StepBuffers: what one step sends to the device and brings back, allocated once for all steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "examples/serve/scheduler.h"
#include "interop/stream.h"
#include "interop/tensor.h"

namespace cgtree::serve {

// Host memory that the device copies from and to directly; owned, neither copied nor moved.
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

// One step at a time: the next upload() waits, by the caller's synchronisation, for the last
// download().
class StepBuffers {
 public:
  // Throws OutOfMemory.
  StepBuffers(Device device, int max_batch);

  // Enqueues the copy of the rows, padded to a bucket; answers the input `batch` of the step.
  // Requires 1 <= rows.size() <= max_batch.
  const Tensor& upload(StreamRef stream, std::span<const Row> rows);
  // Enqueues the copy of the step's output. next() holds it once the stream is done.
  void download(StreamRef stream, const Tensor& next);
  std::span<const std::int32_t> next() const noexcept { return {received_.data(), count_}; }

 private:
  std::vector<int> buckets_;
  std::vector<Tensor> batches_;  // by bucket; int32 {3, bucket}
  PinnedInts sent_;
  PinnedInts received_;
  std::size_t count_ = 0;  // rows that upload() was given
};

}  // namespace cgtree::serve
