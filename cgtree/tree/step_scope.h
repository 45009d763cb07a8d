// StepScope: while it lives, the calling thread is inside a step function.
#pragma once

#include "cgtree/tree/lane_memory.h"
#include "interop/current_stream.h"
#include "interop/empty.h"

namespace cgtree {

// Routes empty() and current_stream(). Unless finish() was called, the destructor gives up whatever
// the step allocated and restores the pools.
class StepScope {
 public:
  // `stream`: where the step launches its work.
  StepScope(LaneMemory& memory, StreamRef stream, StepAllocations::Kind kind,
            const std::vector<std::uint32_t>* retained = nullptr);
  ~StepScope();
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

  // Whether the calling thread is inside a step function of any context.
  static bool active() noexcept;

  StepAllocations& allocations() noexcept { return allocations_; }
  // Keeps what was settled. Requires that nothing else the step allocated is alive.
  void finish() noexcept;

 private:
  LaneMemory& memory_;
  StepAllocations allocations_;
  AllocatorScope allocator_scope_;
  StreamScope stream_scope_;
  bool open_ = true;
};

}  // namespace cgtree
