// Opens and closes a step.
#include "cgtree/record/step_scope.h"

namespace cgtree {
namespace {

thread_local int t_depth = 0;

DrawHandler& handler_for(StepAllocations::Kind kind, EagerDraws& eager, RecordedDraws& recorded) {
  if (kind == StepAllocations::Kind::kRecord) return recorded;
  return eager;
}

}  // namespace

StepScope::StepScope(ContextMemory& memory, StreamRef stream, StepAllocations::Kind kind,
                     const std::vector<std::uint32_t>* retained)
    : memory_(memory),
      device_scope_(memory.stream().api(), memory.device().id),
      allocator_scope_(memory),
      stream_scope_(stream),
      recorded_draws_(memory),
      draw_scope_(handler_for(kind, eager_draws_, recorded_draws_)) {
  allocations_.kind = kind;
  allocations_.retained = retained;
  memory_.begin_step(allocations_);
  ++t_depth;
}

StepScope::~StepScope() {
  if (open_) {
    memory_.abandon_step(allocations_);
    eager_draws_.give_back();
  }
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
