// OpenCall: a call in progress that was not predicted, from its decision until it is over.
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
#include "cgtree/tree/workings.h"
#include "cgtree/values/explanation.h"

namespace cgtree {

// An OpenCall decides what is to be done with a call, and takes it there. Who runs the work is not
// its matter: a step function is run by run(), the work of an engine (Steps) by the engine itself,
// between two calls of ours. While must_run(), the calling thread is inside a step.
//
//   OpenCall call(workings, visit, function, inputs, outputs);
//   while (call.must_run()) call.run();
//
//   OpenCall call(workings, visit, function, inputs, outputs, mode, owner);
//   while (call.must_run()) {
//     ... the work, with call.inputs() ...
//     call.end();     // must_run() again, if the work was captured and could not be kept
//   }
//
// If it is destroyed while must_run(), everything is as before, but for what it has learned of a
// capture that had failed. Work that was captured has not run.
// Thread safety: used by the thread that made it, until the call is over.
class OpenCall {
 public:
  // Replays, or begins a run. `visit`: inside the context until the call is over; as all else,
  // borrowed. `outputs`: where they are handed out. `mode`: of a capture of an engine's work.
  // `owner`: has the OpenCall, and is kept while functions run inside the step that may destroy the
  // caller's handles. Throws what CompiledCore::call() throws, and InvalidArgument for inputs of an
  // engine that a copy would tear apart.
  OpenCall(Workings& workings, Visit& visit, FunctionState& function, const InputList& inputs,
           TensorList& outputs, CaptureMode mode = CaptureMode::kThreadLocal,
           std::weak_ptr<const void> owner = {});
  ~OpenCall();
  OpenCall(const OpenCall&) = delete;
  OpenCall& operator=(const OpenCall&) = delete;

  bool must_run() const noexcept { return !std::holds_alternative<Done>(state_); }
  // kReplay, kWarmUp, kRecord or kRunEagerly: what the call does, as far as is known.
  Outcome outcome() const noexcept { return outcome_; }
  // Returns the inputs as the work is to use them. Requires: must_run().
  std::span<const Tensor> inputs() const;
  // Returns whether the work is captured now. Requires: must_run().
  bool is_captured() const noexcept { return std::holds_alternative<Capturing>(state_); }

  // Runs the step function once. Requires: must_run(). Throws as CompiledCore::call(), and then
  // must_run() is false.
  void run();
  // The engine has enqueued its work. Requires: must_run(). Throws InvalidArgument, and goes on, on
  // another thread, and inside a function that the work or this function itself has called;
  // OutOfMemory, CaptureError and DeviceError, and then must_run() is false.
  void end();

 private:
  struct Done {};
  // Runs once, without a graph: warms up, skips, or repeats a replay that is verified.
  struct Running {
    template <typename... Args>
    explicit Running(std::unique_ptr<ReplayCheck> made, Args&&... args)
        : check(std::move(made)), run(std::forward<Args>(args)...) {}
    std::unique_ptr<ReplayCheck> check;  // of a replay; destroyed outside of the step
    Node* verified = nullptr;            // the recording that was replayed
    OpenRun run;
    std::optional<SkipReason> reason;  // of a skip
    AnnouncedSkip announced;
    std::optional<CaptureFailure> failure;  // in whose place it runs
  };
  struct Capturing {
    Capturing(Workings& workings, std::unique_ptr<Examination> examined_by, const CaptureOn& on,
              const KeyState& key)
        : examination(std::move(examined_by)),
          recording(*workings.memory, workings.call, with_examination(on), key.output_allocations) {
    }
    CaptureOn with_examination(CaptureOn on) const {
      on.examination = examination.get();
      return on;
    }
    const std::unique_ptr<Examination> examination;
    OpenRecording recording;
    Decision decision;
    Explanation why;
  };

  void begin(const InputList& inputs);
  void begin_in_foreign_capture(const InputList& inputs, StreamRef captured);
  void await_others(const InputList& inputs, StreamRef captured);
  void check_apart() const;
  void hold();
  bool is_innermost() const noexcept;
  void decide_and_begin();
  void begin_held_back(Node& node);
  void begin_replay_to_verify(Node& node, const OutputCopies* copies);
  void begin_eager_run_of(Node& node, std::unique_ptr<ReplayCheck> check);
  void begin_warm_up();
  void begin_skip(SkipReason reason, StreamRef stream);
  void begin_in_place_of(CaptureFailure failure);
  bool keeps_apart(const Decision& decision) const;
  void begin_recording(const Decision& decision);
  Running& begin_running(StreamRef stream, StepRun as,
                         std::unique_ptr<ReplayCheck> check = nullptr);

  void end_work(std::vector<Tensor> made, const std::exception_ptr& thrown);
  void end_verifying(Running& running, std::vector<Tensor> made);
  void leave_unverified(Node& node, std::string_view what);
  void end_running(Running& running, std::vector<Tensor> made);
  void end_capturing(Capturing& capturing, std::vector<Tensor> made,
                     const std::exception_ptr& thrown);
  void settle(std::optional<CaptureResult> result, const std::exception_ptr& thrown,
              const Decision& decision, Explanation why);
  void end_run_once(Recorded& recorded, KeyState& key);
  void keep(const Decision& decision, KeyState& key, Recorded& recorded, Explanation why);
  void note_sizes() noexcept;
  void finish();
  void abandon(const std::exception_ptr& thrown, const CaptureFailure* own = nullptr) noexcept;
  void fail() noexcept;
  void open_range(std::string_view what, std::uint64_t recording, const InputList* inputs = nullptr,
                  std::optional<SkipReason> reason = {});

  Workings& workings_;
  Visit& visit_;
  FunctionState& function_;
  TensorList& outputs_;
  const CaptureMode mode_;
  const std::thread::id thread_ = std::this_thread::get_id();
  const int exceptions_ = std::uncaught_exceptions();  // when the call began
  const std::weak_ptr<const void> owner_;
  std::optional<HeldInputs> held_;  // once code of the caller's runs, until the call is over
  bool is_ending_ = false;          // end() is running
  std::optional<Stopwatch> stopwatch_;
  std::shared_ptr<const void> range_;  // of what the call does now, if there is a profiler
  std::variant<Done, Running, Capturing> state_;
  Outcome outcome_ = Outcome::kReplay;
};

}  // namespace cgtree
