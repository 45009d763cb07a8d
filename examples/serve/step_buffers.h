// StepBuffers: what one step sends to the device and brings back, allocated once for all steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "examples/serve/scheduler.h"
#include "interop/device/stream.h"
#include "interop/tensor/tensor.h"

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

// The inputs of a prefill.
struct PromptTensors {
  Tensor tokens;  // int32 {prompts, length of the longest}; -1 behind the end of the others
  Tensor slots;   // int32 {prompts}
};

// One step at a time: the next upload waits, by the caller's synchronisation, for the last
// download.
class StepBuffers {
 public:
  // Throws OutOfMemory.
  StepBuffers(Device device, int max_batch, std::int64_t max_prompt);

  // Enqueue copies to the device. Require 1 to max_batch rows or prompts, as long as max_prompt.
  const Tensor& upload_rows(StreamRef stream, std::span<const Row> rows);  // int32 {3, rows}
  PromptTensors upload_prompts(StreamRef stream, const Scheduler& scheduler);

  // Enqueue copies to the host of what the calls answered. first() and next() hold them once the
  // stream is done.
  void download_first(StreamRef stream, const Tensor& first);
  void download_next(StreamRef stream, const Tensor& next);
  const std::int32_t* first() const noexcept { return received_.data(); }
  const std::int32_t* next() const noexcept { return received_.data() + max_batch_; }

 private:
  void send(StreamRef stream, const Tensor& to, const std::int32_t* from);
  void receive(StreamRef stream, std::int32_t* to, const Tensor& from);

  std::size_t max_batch_;
  std::vector<Tensor> rows_;  // by count of rows - 1; one memory
  Tensor prompts_;            // {max_batch * max_prompt}
  Tensor slots_;              // {max_batch}
  PinnedInts sent_;           // rows, slots, prompts
  PinnedInts received_;       // first, next
};

}  // namespace cgtree::serve
