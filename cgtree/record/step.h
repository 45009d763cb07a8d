// Step: runs a step function, with its allocations, its stream and its random generators routed to
// the context, and serves axis_length() and current_key().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/frame.h"
#include "cgtree/memory/context_memory.h"
#include "cgtree/record/call.h"
#include "cgtree/record/draws.h"
#include "cgtree/record/gather_node.h"
#include "cgtree/values/guard.h"
#include "cgtree/values/key.h"
#include "interop/device/device_api.h"
#include "interop/device/stream.h"
#include "interop/random/generator.h"
#include "interop/tensor/empty.h"

namespace cgtree {

// While a StepScope lives, the calling thread is inside a step function: empty(), current_stream()
// and generators are routed to the context, and its device is current. Unless finish() was called,
// the destructor invalidates everything that the step allocated, and restores the pools and
// generators.
class StepScope {
 public:
  // `stream`: where the step launches its work. `output_allocations`, for kRecord: the allocations,
  // by number in the step, that became outputs in its warm-up; borrowed.
  StepScope(ContextMemory& memory, StreamRef stream, StepAllocations::Kind kind,
            const std::vector<std::uint32_t>* output_allocations = nullptr);
  ~StepScope();
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

  // Returns whether the calling thread is inside a step function of any context.
  static bool active() noexcept { return current() != nullptr; }
  // Returns the memory of the context whose step function the calling thread is in, or null.
  static const ContextMemory* innermost() noexcept {
    return active() ? &current()->memory_ : nullptr;
  }
  // Returns the innermost step of the calling thread, or null.
  static StepScope* current() noexcept { return frame().step; }

  // Returns where the step launches its work.
  StreamRef stream() const noexcept { return stream_; }
  StepAllocations& allocations() noexcept { return allocations_; }
  // Sets the owner of the step, which is the owner of a handle of the caller's. Other code of the
  // caller's that runs inside the step (the function of a break, a nested step function) may
  // destroy the handle, so the library keeps the owner until that code has returned.
  void set_owner(std::weak_ptr<const void> owner) noexcept { owner_ = std::move(owner); }
  // Returns null for a step without owner.
  std::shared_ptr<const void> owner() const noexcept { return owner_.lock(); }
  // Returns the draws of the recording.
  std::vector<RecordedDraw> take_draws() { return recorded_draws_.take(); }
  // Keeps the settled storages. Requires: no other allocation of the step is alive.
  void finish() noexcept;

 private:
  ContextMemory& memory_;
  const StreamRef stream_;
  StepAllocations allocations_;
  DeviceScope device_scope_;
  AllocatorScope allocator_scope_;
  StreamScope stream_scope_;
  EagerDraws eager_draws_;
  RecordedDraws recorded_draws_;
  DrawHandlerScope draw_scope_;  // routes to one of the two
  std::weak_ptr<const void> owner_;
  bool open_ = true;
  const FrameScope<&Frame::step> frame_{this};  // destroyed first
};

// While a GuardsOfStep lives, its thread runs a step that is warmed up or captured and asks guards.
struct GuardsOfStep {
  explicit GuardsOfStep(ContextMemory& of) : memory(of) {}
  Guard::Answer ask(Guard guard);  // keeps it

  ContextMemory& memory;
  Guards asked = {};
  const GuardScope scope{this};
};

// While an AxisLengths lives, its thread is inside a step function, and axis_length() returns the
// sizes of this call. Scopes nest.
class AxisLengths {
 public:
  // `records`: the root node will write the values; otherwise they are written when asked for.
  // `is_padded`: the step sees padded sizes.
  AxisLengths(const Call& call, ContextMemory& memory, bool records, bool is_padded) noexcept
      : call_(call), memory_(memory), records_(records), is_padded_(is_padded) {}

  Tensor length(std::string_view axis);
  // Returns the padded axis to which a size belongs that a nested function gives to its axis
  // `name`: the axis of that name, or else the only axis that is padded to that size; or nothing.
  // Throws InvalidArgument if several are.
  std::optional<std::size_t> find_padded(std::string_view name, std::int64_t size) const;
  Tensor length_of(std::size_t axis);
  // Notes that a nested function must not see the axis padded. In a recording that would serve
  // other sizes, refuses the capture: throws CaptureError.
  void note_unsafe_inside(std::size_t axis, const std::string& why);
  const CallAxes& sizes() const noexcept { return call_.axes(); }
  const std::string& function() const noexcept { return call_.function().name; }
  // Throws InvalidArgument if an output is a result of length().
  void check_not_returned(std::span<const Tensor> outputs) const;
  // Returns the values that the root node writes.
  std::vector<GatherNode::Value> values() const;
  // Returns the memory that the root node writes, and forgets it.
  std::vector<StorageRef> take();

 private:
  const Call& call_;
  ContextMemory& memory_;
  const bool records_;
  const bool is_padded_;
  const LengthsScope scope_{this};
  std::vector<std::optional<Tensor>> lengths_;  // by axis
};

// Calls visit(storage, i) for each output i whose storage the step has allocated.
template <typename Visit>
void for_each_new_storage(const ContextMemory& memory, std::span<const Tensor> outputs,
                          Visit&& visit) {
  for (std::uint32_t i = 0; i < outputs.size(); ++i) {
    Storage& storage = *outputs[i].storage();
    if (memory.in_step(storage)) visit(storage, i);
  }
}

enum class StepRun {
  kEagerly,
  kWarmUp,
  // The next two run eagerly, but leave buffers unchanged, and see the rounded key.
  kVerify,
  kVerifyPadded,  // as in a warm-up
};

// Returns whether the work sees padded sizes.
constexpr bool is_padded(StepRun as) noexcept {
  return as == StepRun::kWarmUp || as == StepRun::kVerifyPadded;
}

// Returns the key for current_key().
std::string_view key_for(const Call& call, StepRun as) noexcept;

// Returns the inputs of a call as its work sees them: values are copied to the context's device,
// and inputs are padded unless it runs eagerly. Requires and throws as run_nested_step().
std::vector<Tensor> make_step_inputs(const Call& call, ContextMemory& memory, StepRun as);

// Calls the step function, and returns its results. The error for a wrong access to an input names
// it.
std::vector<Tensor> call_step(const Call& call, std::span<const Tensor> step_inputs);

// Returns the outputs of work that ran on the current stream with these inputs, as the call hands
// them out: sliced if inputs are padded, and copied to the buffers of the call. Requires and throws
// as run_nested_step().
std::vector<Tensor> finish_outputs(const Call& call, ContextMemory& memory,
                                   std::span<const Tensor> step_inputs, std::vector<Tensor> outputs,
                                   StepRun as);

// Runs a step function that another step calls, on the current stream, and returns its finished
// outputs. If the outer step sees padded sizes, the nested one sees copies of its inputs, whose
// padding follows the outer call's actual sizes at each replay. If AxisPlan::is_unsafe() forbids
// padding, it sees the actual sizes, and its outputs are padded with zeros for the outer step,
// which is not padded from then on.
// Throws the exceptions of the step function and of AxisLengths::note_unsafe_inside(),
// InvalidArgument for outputs that are null or do not match their buffers, StaleTensor,
// OutOfMemory, DeviceError.
std::vector<Tensor> run_nested_step(const Call& call, ContextMemory& memory);

}  // namespace cgtree
