// Attempt: a call in progress that was not predicted, from its decision until it is over.
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

// An Attempt decides the way of a call, and takes it there. The work is run by others: a step
// function is run by run(), the work of an engine (Steps) by the engine itself, between two calls
// of ours. While must_run(), the calling thread is inside a step.
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
// If it is destroyed while must_run(), everything is as before, but for a capture that had failed:
// that is remembered. Work that was captured has not run.
// Thread safety: used by the thread that made it, until the call is over.
class Attempt {
 public:
  // Replays, or begins a run. `entry`: inside the context until the call is over; as all else,
  // borrowed. `outputs`: where they are handed out. `mode`: of a capture of an engine's work.
  // `owner`: has the Attempt, and is kept while functions run inside the step that may destroy the
  // caller's handles. Throws the exceptions of CompiledCore::call(), and InvalidArgument for inputs
  // of an engine that a copy would tear apart.
  Attempt(Engine& engine, Entry& entry, FunctionState& function, const InputList& inputs,
          TensorList& outputs, CaptureMode mode = CaptureMode::kThreadLocal,
          std::weak_ptr<const void> owner = {});
  ~Attempt();
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  bool must_run() const noexcept { return !std::holds_alternative<Done>(state_); }
  // kReplay, kWarmUp, kRecord or kRunEagerly: the way of the call, as far as is known.
  Outcome outcome() const noexcept { return outcome_; }
  // Returns the inputs as the work is to use them. Requires: must_run().
  std::span<const Tensor> inputs() const {
    const auto* const capture = std::get_if<OpenRecording>(&state_);
    return capture != nullptr ? capture->inputs() : std::get<OpenRun>(state_).inputs();
  }
  // Returns why no recording is replayed. Requires: must_run().
  Explanation why() const { return engine_.explain(decision_, function_); }
  // Returns whether the work is captured now. Requires: must_run().
  bool is_captured() const noexcept { return std::holds_alternative<OpenRecording>(state_); }

  // Runs the step function once. Requires: must_run(). Throws as CompiledCore::call(), and then
  // must_run() is false.
  void run();
  // The engine has enqueued its work. Requires: must_run(). Throws InvalidArgument, and goes on, on
  // another thread, and inside a function that the work or this function itself has called;
  // OutOfMemory, CaptureError and DeviceError, and then must_run() is false.
  void end();
  // The work cannot be captured, neither now nor later. Requires: must_run().
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
  // A replay counts when it begins, and all else when it has succeeded, on all ranks of a group.
  void note_sizes() noexcept {
    if (function_.axes == nullptr) return;
    function_.axes->note(call_.axes(), function_.precaptures.load(std::memory_order_relaxed) == 0,
                         /*is_padded=*/outcome_ != Outcome::kRunEagerly);
  }
  void finish();
  void abandon(const std::exception_ptr& thrown, const CaptureFailure* own = nullptr) noexcept;
  void fail() noexcept;
  // The thread is no longer inside the work.
  void close() noexcept {
    state_.emplace<Done>();
    examination_.reset();
    skip_.reset();
    failure_.reset();
  }
  // Ends the range that is open, because its work has given place to something else.
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
  std::optional<HeldInputs> held_;  // once code of the caller's runs, until the call is over
  std::optional<Stopwatch> stopwatch_;
  Extensions::Held range_;  // of the present stage
  Decision decision_;
  Explanation why_;                                   // of a capture
  std::optional<AnnouncedSkip> skip_;                 // of an eager run
  std::optional<CaptureFailure> failure_;             // in whose place the call runs eagerly
  std::unique_ptr<ReplayCheck> check_;                // of a replay; ends outside of the work
  std::unique_ptr<Examination> examination_;          // of a capture; ends after it
  std::variant<Done, OpenRun, OpenRecording> state_;  // the work, while the thread is inside
  bool is_ending_ = false;                            // end() is running
  Outcome outcome_ = Outcome::kReplay;
};

}  // namespace cgtree
