// Attempt: a call in progress that was not predicted, from its decision to its end.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

#include "cgtree/record/open_run.h"
#include "cgtree/tree/engine.h"
#include "cgtree/values/explanation.h"

namespace cgtree {

// An Attempt decides how a call runs, and runs it. It does not contain the work itself: run() calls
// a step function, and an engine (Steps) enqueues its work between the constructor and end(). While
// must_run(), the calling thread is inside a step.
//
//   Attempt call(engine, entry, function, inputs, outputs);
//   while (call.must_run()) call.run();
//
//   Attempt call(engine, entry, function, inputs, outputs, mode, owner);
//   while (call.must_run()) {
//     ... the work, with call.inputs() ...
//     call.end();     // must_run() again, if the work was captured and could not be kept
//   }
//
// Destroyed while must_run(), it leaves everything as before, except that it remembers a failed
// capture. Captured work has not run.
// Thread safety: used by the thread that made it, until the call ends.
class Attempt {
 public:
  // Replays, or begins a run. All arguments are borrowed. `entry`: inside the context until the
  // call ends. `outputs`: receives the outputs. `mode`: for the capture of an engine's work.
  // `owner`: owns the Attempt; it is kept while functions run inside the step, because these may
  // destroy the caller's handles. Throws as CompiledCore::call() does, and InvalidArgument for
  // inputs of an engine that share memory if one of them is written and one copied.
  Attempt(Engine& engine, Entry& entry, FunctionState& function, const InputList& inputs,
          TensorList& outputs, CaptureMode mode = CaptureMode::kThreadLocal,
          std::weak_ptr<const void> owner = {});
  ~Attempt();
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  bool must_run() const noexcept { return !std::holds_alternative<Done>(state_); }
  // Returns the outcome of the call so far: kReplay, kWarmUp, kRecord or kRunEagerly.
  Outcome outcome() const noexcept { return outcome_; }
  // Returns the inputs that the work must use. Requires: must_run().
  std::span<const Tensor> inputs() const {
    const auto* const capture = std::get_if<OpenRecording>(&state_);
    return capture != nullptr ? capture->inputs() : std::get<OpenRun>(state_).inputs();
  }
  // Returns why no recording is replayed. Requires: must_run().
  Explanation why() const { return engine_.explain(decision_, function_); }
  // Returns whether the work is being captured. Requires: must_run().
  bool is_captured() const noexcept { return std::holds_alternative<OpenRecording>(state_); }

  // Runs the step function once. Requires: must_run(). Throws as CompiledCore::call() does;
  // must_run() is false afterwards.
  void run();
  // Says that the engine has enqueued its work. Requires: must_run(). Throws InvalidArgument on
  // another thread, and inside a function called by the work or by this function; the call then
  // goes on. Throws OutOfMemory, CaptureError and DeviceError; must_run() is then false.
  void end();
  // Says that the work cannot be captured, neither now nor later. Requires: must_run().
  void refuse_capture(std::string_view why);

 private:
  struct Done {};

  void enter(const InputList& inputs);
  void join_capture(const InputList& inputs, StreamRef captured);
  void await_others(const InputList& inputs, StreamRef captured);
  void hold();

  void decide();
  void replay_held_back(Node& node);
  void replay_and_check(Node& node, const OutputCopies* copies);
  void begin_run(StreamRef stream, StepRun as, DrawHandler* draws = nullptr);
  void begin_warm_up();
  void begin_skip(SkipReason reason, StreamRef stream);
  void begin_capture();

  void end_work(std::vector<Tensor> made, const std::exception_ptr& thrown);
  void end_check(OpenRun& run, std::vector<Tensor> made);
  void leave_unchecked(std::string_view what);
  void end_run(OpenRun& run, std::vector<Tensor> made);
  void end_capture(OpenRecording& capture, std::vector<Tensor> made,
                   const std::exception_ptr& thrown);
  void settle(std::optional<CaptureResult> result, const std::exception_ptr& thrown);
  void end_run_once(Recorded& recorded, KeyState& key);
  void keep(KeyState& key, Recorded& recorded);
  // A replay counts when it begins, another outcome when it has succeeded, on all ranks of a group.
  void note_sizes() noexcept {
    if (function_.axes == nullptr) return;
    function_.axes->note(call_.axes(), function_.precaptures.load(std::memory_order_relaxed) == 0,
                         /*is_padded=*/outcome_ != Outcome::kRunEagerly);
  }
  void finish();
  void abandon(const std::exception_ptr& thrown, const CaptureFailure* own = nullptr) noexcept;
  void fail() noexcept;
  // Ends the time in which the thread is inside the work.
  void close() noexcept {
    state_.emplace<Done>();
    examination_.reset();
    skip_.reset();
    failure_.reset();
  }
  // Ends the open range first, because its work has been replaced by other work.
  void open_range(std::string_view what, std::uint64_t recording, const InputList* inputs = nullptr,
                  std::optional<SkipReason> reason = {}) {
    range_.clear();
    range_ = engine_.extensions.open_range(what, function_, recording, inputs, reason);
  }

  Engine& engine_;
  ContextMemory& memory_;
  Call& call_;
  Entry& entry_;
  FunctionState& function_;
  TensorList& outputs_;
  const CaptureMode mode_;
  const std::thread::id thread_ = std::this_thread::get_id();
  const int exceptions_ = std::uncaught_exceptions();  // when the call began
  const std::weak_ptr<const void> owner_;
  std::optional<HeldInputs> held_;  // set before code of the caller runs, until the call ends
  std::optional<Stopwatch> stopwatch_;
  Extensions::Held range_;  // of the present stage
  Decision decision_;
  Explanation why_;                                   // of a capture
  std::optional<AnnouncedSkip> skip_;                 // of an eager run
  std::optional<CaptureFailure> failure_;             // why the call runs eagerly instead
  std::unique_ptr<ReplayCheck> check_;                // of a replay; destroyed outside of the work
  std::unique_ptr<Examination> examination_;          // of a capture; destroyed after it
  std::variant<Done, OpenRun, OpenRecording> state_;  // the work, while the thread is inside
  bool is_ending_ = false;                            // true while end() runs
  Outcome outcome_ = Outcome::kReplay;
};

}  // namespace cgtree
