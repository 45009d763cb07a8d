// StepScope: while it lives, the calling thread is inside a step function.
#pragma once

#include <vector>

#include "cgtree/record/eager_draws.h"
#include "cgtree/memory/context_memory.h"
#include "cgtree/record/recorded_draws.h"
#include "interop/device/stream.h"
#include "interop/device/device_api.h"
#include "interop/random/generator.h"
#include "interop/tensor/empty.h"

namespace cgtree {

// Routes empty(), current_stream() and generators; the lane's device is current. Unless finish()
// was called, the destructor gives up whatever the step allocated, restores the pools, and puts
// generators back.
class StepScope {
 public:
  // `stream`: where the step launches its work.
  StepScope(ContextMemory& memory, StreamRef stream, StepAllocations::Kind kind,
            const std::vector<std::uint32_t>* retained = nullptr);
  ~StepScope();
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

  // Whether the calling thread is inside a step function of any context.
  static bool active() noexcept;

  StepAllocations& allocations() noexcept { return allocations_; }
  // What was drawn while recording.
  std::vector<RecordedDraw> take_draws() { return recorded_draws_.take(); }
  // Keeps what was settled. Requires that nothing else the step allocated is alive.
  void finish() noexcept;

 private:
  ContextMemory& memory_;
  StepAllocations allocations_;
  DeviceScope device_scope_;
  AllocatorScope allocator_scope_;
  StreamScope stream_scope_;
  EagerDraws eager_draws_;
  RecordedDraws recorded_draws_;
  DrawHandlerScope draw_scope_;  // for one of the two
  bool open_ = true;
};

}  // namespace cgtree
