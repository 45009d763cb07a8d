// Begins and ends the work of a call that runs without a graph.
#include "cgtree/record/open_run.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "cgtree/record/outputs.h"

namespace cgtree {

OpenRun::OpenRun(ContextMemory& memory, const Call& call, StreamRef stream, StepRun as,
                 DrawHandler* draws)
    : memory_(memory),
      call_(call),
      as_(as),
      settles_(as == StepRun::kWarmUp && !call.function().is_callers_work),
      scope_(memory, stream,
             settles_ ? StepAllocations::Kind::kWarmUp : StepAllocations::Kind::kEager),
      breaks_(call, scope_.allocations()),
      key_(Key::of_text(key_for(call, as))) {
  if (draws != nullptr) draws_.emplace(*draws);
  lengths_.emplace(call, memory, /*records=*/false, is_padded(as));
  if (as == StepRun::kWarmUp) guards_.emplace(memory);
  const bool verifies = as == StepRun::kVerify || as == StepRun::kVerifyPadded;
  scope_.allocations().is_in_replay = verifies;
  scope_.allocations().is_verification = verifies;
  inputs_ = make_step_inputs(call, memory, as);
}

std::vector<Tensor> OpenRun::complete(std::vector<Tensor> outputs) {
  outputs = finish_outputs(call_, memory_, inputs_, std::move(outputs), as_);
  lengths_->check_not_returned(outputs);
  if (!is_padded(as_)) {
    check_output_axes(call_.function(), outputs, call_.axes().actual);
  }
  inputs_.clear();
  lengths_.reset();
  if (settles_) {
    prepare_to_settle(outputs);
  } else if (!call_.function().is_callers_work) {
    memory_.note_kept(call_.function().id, outputs);
  }
  return outputs;
}

void OpenRun::prepare_to_settle(std::span<const Tensor> outputs) {
  std::vector<std::uint32_t>& numbers = output_allocations_;
  for_each_new_storage(memory_, outputs, [&](Storage& storage, std::uint32_t) {
    numbers.push_back(static_cast<std::uint32_t>(storage.tag.number));
    // Work on an unjoined side stream may still write the output; another library would not see it
    // move.
    if (scope_.allocations().defers_frees() || storage.has_lease()) return;
    try {
      memory_.move_to_output_region(storage);
    } catch (const OutOfMemory&) {
      if (moves_all_) throw;  // otherwise it stays, and sharing is lost
    }
  });
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  memory_.reserve_slots(outputs);
}

// Memory that a warm-up keeps beyond the call, such as a workspace or a table, is for later calls.
void OpenRun::finish(std::span<const Tensor> outputs) noexcept {
  if (settles_) {
    const std::uint32_t function = call_.function().id;
    for_each_new_storage(memory_, outputs, [&](Storage& storage, std::uint32_t i) {
      memory_.settle(storage, function, i);
    });
    memory_.settle_rest(function);
  }
  scope_.finish();
}

}  // namespace cgtree
