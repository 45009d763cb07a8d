// OpenRun: the work of a call during a run without a graph.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cgtree/record/breaks.h"
#include "cgtree/record/call.h"
#include "cgtree/record/step.h"

namespace cgtree {

// From its constructor to finish(), an OpenRun has the calling thread inside the work of a call.
// Destroyed before finish(), it restores the pools and generators.
//
//   OpenRun run(memory, call, stream, StepRun::kWarmUp);
//   ... the work of the call, on the stream, with run.inputs() ...
//   outputs = run.complete(std::move(outputs));
//   run.finish();
//
// Thread safety: used by the thread that made it.
class OpenRun {
 public:
  // `draws`: the source of random numbers, or null for the generators themselves. `memory`, `call`,
  // `draws`: borrowed. Throws OutOfMemory, StaleTensor, DeviceError.
  OpenRun(ContextMemory& memory, const Call& call, StreamRef stream, StepRun as,
          DrawHandler* draws = nullptr);

  // The inputs that the work sees. Requires: complete() was not called.
  std::span<const Tensor> inputs() const noexcept { return inputs_; }
  // Returns whether the thread is in the work itself, not in a function that the work calls.
  bool is_current() const noexcept { return breaks_.is_current(); }
  // See StepScope::set_owner().
  void set_owner(std::weak_ptr<const void> owner) noexcept { scope_.set_owner(std::move(owner)); }

  // Makes complete() throw OutOfMemory if the output region has no room for an output. Ranks of a
  // group replay alike only if their outputs lie alike.
  void require_moves() noexcept { moves_all_ = true; }

  // Says that the work has run and returned these outputs. Returns them as the call hands them out.
  // When it returns, every step that can fail has succeeded. Throws as finish_outputs() does.
  std::vector<Tensor> complete(std::vector<Tensor> outputs);
  // Of a warm-up: the allocations that became outputs, by number in the step; sorted. Requires:
  // complete() has returned.
  std::vector<std::uint32_t> take_output_allocations() noexcept {
    return std::move(output_allocations_);
  }
  // Of a warm-up: the guards that it asked.
  Guards take_guards() noexcept { return std::move(guards_->asked); }
  // Of a warm-up: the workspaces that it used. Requires: finish() was called.
  std::vector<std::uint64_t> take_workspaces() noexcept {
    return std::move(scope_.allocations().workspaces);
  }
  // Keeps the results of the work. `outputs`: the result of complete().
  void finish(std::span<const Tensor> outputs) noexcept;

 private:
  void prepare_to_settle(std::span<const Tensor> outputs);

  ContextMemory& memory_;
  const Call& call_;
  const StepRun as_;
  // True if tensors that the work keeps get slots. Memory that an engine's work allocates is the
  // engine's, whatever becomes of the step.
  const bool settles_;
  bool moves_all_ = false;
  StepScope scope_;
  std::optional<DrawHandlerScope> draws_;
  std::optional<AxisLengths> lengths_;
  std::optional<GuardsOfStep> guards_;
  const BreaksAtOnce breaks_;
  const Key key_;
  const KeyScope key_scope_{&key_};
  std::vector<Tensor> inputs_;
  std::vector<std::uint32_t> output_allocations_;
};

}  // namespace cgtree
