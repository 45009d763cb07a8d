// OpenRecording: a step function during its capture, by a call of it or by code of the caller.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cgtree/record/breaks.h"
#include "cgtree/record/examination.h"
#include "cgtree/record/outputs.h"
#include "cgtree/record/prepare.h"
#include "cgtree/record/recording.h"
#include "cgtree/record/step.h"
#include "cgtree/values/explanation.h"
#include "interop/device/code.h"
#include "interop/device/refusal.h"

namespace cgtree {

// A CaptureFailure says that the capture of a step function failed; everything is as before.
struct CaptureFailure {
  Code code;         // the device's number; kUnknown if `thrown`
  std::string what;  // the call that failed, if it is known
  // The exception of the step function if the device found no error, or null.
  std::exception_ptr thrown = nullptr;
  SkipReason reason = SkipReason::kCaptureFailed;  // the reason that the call runs eagerly
};

// A Recorded is a captured graph that was launched. If recording.runs_once, the recording must be
// dropped: tensors that the step keeps are filled now, and each replay would overwrite them.
struct Recorded {
  Recording recording;
  std::vector<Tensor> outputs;
  std::string why_once;  // empty if only another rank must drop it
};

// A ServedByEarlier says that an earlier recording fits the call now. Nothing was launched, and
// everything is as before.
struct ServedByEarlier {};

using CaptureResult = std::variant<Recorded, CaptureFailure, ServedByEarlier>;

// Returns why a step that keeps tensors is not recorded. `kept`: their number; 0: another rank's.
std::string why_kept(const std::string& function, std::size_t kept);

// StandIns replace inputs and allocations in a capture that is not kept.
struct StandIns {
  std::vector<Tensor> inputs;  // by position; null for no stand-in
  std::vector<std::pair<std::uint32_t, StorageRef>> allocations;  // by their number in the step
};

// The stream and options of a capture.
struct CaptureOn {
  StreamRef stream;
  CaptureMode mode = CaptureMode::kThreadLocal;
  // See ContextOptions.
  bool checked = false;
  // The graph is neither instantiated nor launched: see Rehearsal.
  bool is_rehearsal = false;
  // True if outputs are copied to separate memory: see Recording::copies_of_outputs.
  bool copies_outputs = false;
  // For a capture that is not kept; null for none.
  StandIns* stand_ins = nullptr;
  // Examines the step; null for none.
  Examination* examination = nullptr;
  // Called when everything that can fail has succeeded, and before any launch; finish() passes on
  // its exceptions. Null for none. Not called for a rehearsal. The caller's code in it does not
  // belong to the step: empty() uses the eager pool, current_stream() is that of the launch, and
  // generators move at once.
  std::function<void(Recording&)> before_launch = nullptr;
};

// From its constructor to finish(), an OpenRecording has the calling thread inside a step function
// that is captured. Unless finish() returns a Recorded, everything is as before.
//
//   OpenRecording open(memory, call, on, numbers);
//   ... the work of the step, on the captured stream, with open.inputs() ...
//   auto result = open.finish(std::move(outputs), thrown);
//
// Thread safety: used by the thread that made it.
class OpenRecording final : private BreakHandler {
 public:
  // Allocates the copies of inputs and begins the capture. `call`, `output_allocations` (noted by
  // the warm-up): borrowed. Requires: begin_tracking() was called. Throws OutOfMemory,
  // InvalidArgument, CaptureError, DeviceError.
  OpenRecording(ContextMemory& memory, const Call& call, const CaptureOn& on,
                const std::vector<std::uint32_t>& output_allocations);
  using BreakHandler::is_current;
  OpenRecording(const OpenRecording&) = delete;
  OpenRecording& operator=(const OpenRecording&) = delete;

  // The inputs that the step function sees: copies of copied inputs.
  std::span<const Tensor> inputs() const noexcept { return prepared_.step_inputs; }

  // Ends the capture, and launches the graph once, so that the outputs hold values. If the result
  // is a Recorded, generators have moved, and a TakenDraws and launch_further() must follow.
  // `outputs`, `thrown`: the results of the work, or its exception, which makes the capture fail:
  // libraries refuse captures by throwing their own exceptions. Throws OutOfMemory,
  // InvalidArgument, DeviceError, and exceptions of the examination. Must be called once.
  CaptureResult finish(std::vector<Tensor> outputs, std::exception_ptr thrown);
  // Ends a capture that is not kept, and calls look(). Returns why the capture failed, or "".
  // Throws as finish() does.
  using Look = std::function<void(const Recording& recording, std::span<const Tensor> outputs)>;
  std::string finish_trial(std::vector<Tensor> outputs, std::exception_ptr thrown,
                           const Look& look);
  // After finish() has thrown: returns whether a node could not be given the address of an input.
  bool was_patch_refused() const noexcept { return result_.recording.refused_patches > 0; }
  // After finish() has thrown: returns whether code of the caller's threw, or an option asked for
  // it.
  bool was_refused_by_caller() const noexcept { return is_callers_turn_; }
  // Ends the capture because the step was left. Returns the failure of finish(), if any.
  std::optional<CaptureFailure> abandon();

 private:
  // While an UnrecordedWork lives, it captures the stream of the calls: work launched there instead
  // of on current_stream() would run once, and be missing from the recording.
  class UnrecordedWork {
   public:
    explicit UnrecordedWork(StreamRef stream);
    // Ends the capture, and returns whether it caught any work.
    bool any();

   private:
    std::optional<Capture> capture_;
  };

  void eager_break(EagerBreak work) override;
  void complete(std::vector<Tensor>& outputs, std::exception_ptr& thrown);
  Code end_graph();
  std::optional<CaptureFailure> end_capture(const std::exception_ptr& thrown);
  std::optional<CaptureFailure> keep_allocations();
  void stand_in_for_inputs();
  std::optional<CaptureFailure> find_output_elsewhere();
  std::optional<CaptureFailure> find_foreign_write();
  std::string find_uncopied_output();
  void understand();
  void copy_outputs(std::span<const Tensor> whole);
  // The inputs of the call, followed by the copies of its outputs.
  InputList bound() const noexcept { return copies_ ? copies_->inputs() : call_.inputs(); }
  void examine();
  void examine_launched() noexcept;
  bool finish_graph();
  std::size_t handles_of_step(const Storage& storage) const;
  bool keeps_any();
  std::size_t count_kept();
  void call_before_launch(EagerDraws& draws);

  ContextMemory& memory_;
  const Call& call_;
  const CaptureOn on_;
  StepScope scope_;
  Recorded result_;
  PreparedInputs prepared_;
  // Two more handles of each copy, because caller and call hold two of each input. A step that
  // looks at the reference count must not find that it alone holds its input: it would overwrite
  // it.
  std::vector<StorageRef> held_copies_;
  std::vector<Tensor> unused_copies_;           // replaced by stand-ins
  std::vector<std::uintptr_t> buffer_sources_;  // for each buffer; 0: no output of its layout
  std::optional<OutputCopies> copies_;
  AxisLengths lengths_;
  GuardsOfStep guards_;
  // Set while the capture is open. Destroyed in reverse order.
  std::shared_ptr<const void> hold_;  // defers frees on the device
  std::optional<UnrecordedWork> unrecorded_;
  std::optional<Capture> capture_;
  std::optional<Refusals> refusals_;  // of the capture
  std::optional<Code> broken_;        // the capture failed at a break
  bool is_callers_turn_ = false;
  std::optional<BreakScope> breaks_;
  const Key key_;
  const KeyScope key_scope_{&key_};
};

}  // namespace cgtree
