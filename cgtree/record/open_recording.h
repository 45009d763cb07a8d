// OpenRecording: a step function while it is captured, by a call of it or by code of the caller.
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

// The capture of a step function failed; everything is as before.
struct CaptureFailure {
  Code code;         // the device's number; kUnknown if `thrown`
  std::string what;  // which call failed, if that is known
  // What the step function has thrown while the device found nothing wrong, or null.
  std::exception_ptr thrown = nullptr;
  SkipReason reason = SkipReason::kCaptureFailed;  // why the call runs eagerly
};

// The graph was launched. If recording.runs_once, the recording must go: what the step keeps of
// what it has made is filled now, and each replay would write there.
struct Recorded {
  Recording recording;
  std::vector<Tensor> outputs;
  std::string why_once;  // empty if only another rank's must go
};

// An earlier recording fits the call now. Nothing was launched, and everything is as before.
struct ServedByEarlier {};

using CaptureResult = std::variant<Recorded, CaptureFailure, ServedByEarlier>;

// Returns why a step that keeps tensors is not recorded. `kept`: how many; 0: another rank's.
std::string why_kept(const std::string& function, std::size_t kept);

// StandIns are what a capture that is not kept uses in place of inputs and allocations.
struct StandIns {
  std::vector<Tensor> inputs;  // by position; for a null one there is none
  std::vector<std::pair<std::uint32_t, StorageRef>> allocations;  // by their number in the step
};

// Where and how a step function is captured.
struct CaptureOn {
  StreamRef stream;
  CaptureMode mode = CaptureMode::kThreadLocal;
  // See ContextOptions.
  bool checked = false;
  // The graph is neither instantiated nor launched: see Rehearsal.
  bool is_rehearsal = false;
  // Whether outputs are copied to memory of their own: see Recording::copies_of_outputs.
  bool copies_outputs = false;
  // Of a capture that is not kept; null for none.
  StandIns* stand_ins = nullptr;
  // What examines the step; null for none.
  Examination* examination = nullptr;
  // Called when all that can fail has been done, and nothing has been launched; what it throws,
  // finish() throws. Null for nothing. Not for a rehearsal. The caller's code in it is no part of
  // the step: empty() takes memory of the eager pool, current_stream() is the one of the launch,
  // and generators move at once.
  std::function<void(Recording&)> before_launch = nullptr;
};

// An OpenRecording lets the calling thread be inside a step function that is captured, from its
// constructor to finish(). Unless finish() returns a Recorded, everything is as before.
//
//   OpenRecording open(memory, call, on, numbers);
//   ... the work of the step, on the captured stream, with open.inputs() ...
//   auto result = open.finish(std::move(outputs), thrown);
//
// Thread safety: used by the thread that made it.
class OpenRecording final : private BreakHandler {
 public:
  // Allocates the copies of inputs and begins the capture. `call`, `output_allocations` (what the
  // warm-up has noted): borrowed. Requires: begin_tracking() was called. Throws OutOfMemory,
  // InvalidArgument, CaptureError, DeviceError.
  OpenRecording(ContextMemory& memory, const Call& call, const CaptureOn& on,
                const std::vector<std::uint32_t>& output_allocations);
  using BreakHandler::is_current;
  OpenRecording(const OpenRecording&) = delete;
  OpenRecording& operator=(const OpenRecording&) = delete;

  // What the step function is to see: copies where inputs are copied.
  std::span<const Tensor> inputs() const noexcept { return prepared_.step_inputs; }

  // Ends the capture, and launches the graph once, so that the outputs hold values. If the result
  // is a Recorded, generators have moved, for which a TakenDraws must follow, and launch_further().
  // `outputs`, `thrown`: what the work has returned, or thrown, which is a failure: libraries
  // refuse captures by exceptions of their own. Throws OutOfMemory, InvalidArgument, DeviceError,
  // and what the examination throws. Must be called once.
  CaptureResult finish(std::vector<Tensor> outputs, std::exception_ptr thrown);
  // Ends a capture that is not kept, and calls look(). Returns why the capture failed, or "".
  // Throws as finish().
  using Look = std::function<void(const Recording& recording, std::span<const Tensor> outputs)>;
  std::string finish_trial(std::vector<Tensor> outputs, std::exception_ptr thrown,
                           const Look& look);
  // After finish() has thrown: whether a node could not be told where an input is.
  bool was_patch_refused() const noexcept { return result_.recording.refused_patches > 0; }
  // After finish() has thrown: whether code of the caller's has, or an option asks for it.
  bool was_refused_by_caller() const noexcept { return is_callers_turn_; }
  // Ends the capture because the step was left. Returns why it would have failed, if it would.
  std::optional<CaptureFailure> abandon();

 private:
  // While an UnrecordedWork lives, it captures the stream of the calls: work that is launched there
  // in place of current_stream() would run once, and be missing from the recording.
  class UnrecordedWork {
   public:
    explicit UnrecordedWork(StreamRef stream);
    // Ends the capture, and returns whether it has caught anything.
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
  // The inputs of the call, and behind them the copies of its outputs.
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
  // The step has at least two handles fewer of a copy than of an input, which the caller and the
  // call hold. If it asks, it must not find that it alone holds what it sees, and write there.
  std::vector<StorageRef> held_copies_;
  std::vector<Tensor> unused_copies_;           // where stand-ins are used
  std::vector<std::uintptr_t> buffer_sources_;  // of each buffer; 0: no output of its layout
  std::optional<OutputCopies> copies_;
  AxisLengths lengths_;
  GuardsOfStep guards_;
  // While the capture is open. Destroyed from the last to the first.
  std::shared_ptr<const void> hold_;  // frees on the device
  std::optional<UnrecordedWork> unrecorded_;
  std::optional<Capture> capture_;
  std::optional<Refusals> refusals_;  // of it
  std::optional<Code> broken_;        // the capture failed at a break
  bool is_callers_turn_ = false;
  std::optional<BreakScope> breaks_;
  const Key key_;
  const KeyScope key_scope_{&key_};
};

}  // namespace cgtree
