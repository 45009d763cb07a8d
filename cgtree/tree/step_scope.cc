// Opens and closes a step.
#include "cgtree/tree/step_scope.h"

namespace cgtree {
namespace {

thread_local int t_depth = 0;

}  // namespace

StepScope::StepScope(LaneMemory& memory, StreamRef stream, StepAllocations::Kind kind,
                     const std::vector<std::uint32_t>* retained)
    : memory_(memory), allocator_scope_(memory), stream_scope_(stream) {
  allocations_.kind = kind;
  allocations_.retained = retained;
  memory_.begin_step(allocations_);
  ++t_depth;
}

StepScope::~StepScope() {
  if (open_) memory_.abandon_step(allocations_);
  --t_depth;
}

bool StepScope::active() noexcept {
  return t_depth > 0;
}

void StepScope::finish() noexcept {
  memory_.end_step(allocations_);
  open_ = false;
}

}  // namespace cgtree
