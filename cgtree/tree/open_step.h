// OpenStep: one call of a function whose work the caller enqueues itself, between two calls of
// ours.
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

#include "cgtree/explanation.h"
#include "cgtree/record/open_recording.h"
#include "cgtree/tree/tree_manager.h"

namespace cgtree {

// An OpenStep is inside the context from its constructor until the call is over: it was replayed,
// its end() has returned or thrown, or it was destroyed. It decides what TreeManager::call() would
// decide, and lets the caller do what a step function does. While must_run(), the calling thread is
// inside a step.
//
//   OpenStep step(manager, function, inputs, mode, owner);
//   while (step.must_run()) {
//     ... the work, with step.inputs() ...
//     step.end();     // must_run() again, if the work was captured and could not be kept
//   }
//
// If it is destroyed while must_run(), everything is as before, but for what it has learned of a
// capture that had failed. Work that was captured has not run.
// Thread safety: used by the thread that made it, until the call is over.
class OpenStep {
 public:
  // Replays, or begins a run. `inputs`: with the key. `mode`: of a capture. `owner`: has the
  // OpenStep, and is kept while functions run inside the step that may destroy the caller's
  // handles. Throws what TreeManager::call() throws, and InvalidArgument inside any step, and for
  // inputs that a copy would tear apart.
  OpenStep(TreeManager& manager, FunctionState& function, const InputList& inputs, CaptureMode mode,
           std::weak_ptr<const void> owner);
  ~OpenStep();
  OpenStep(const OpenStep&) = delete;
  OpenStep& operator=(const OpenStep&) = delete;

  bool must_run() const noexcept { return !std::holds_alternative<Done>(run_); }
  Explanation::Outcome outcome() const noexcept { return outcome_; }
  // Returns the inputs as the work is to use them. Requires: must_run().
  InputList inputs() const;
  // Returns whether the work is captured now. Requires: must_run().
  bool is_captured() const noexcept { return std::holds_alternative<Capturing>(run_); }

  // The work is enqueued. Throws InvalidArgument, and goes on, on another thread, and inside a
  // function that the work or this function itself has called; OutOfMemory, CaptureError and
  // DeviceError, and then must_run() is false.
  void end();

 private:
  struct Done {};
  // Runs once, without a graph: in place of one, or after a replay that is verified.
  struct Running {
    Running(ContextMemory& memory, const Call& call, StreamRef stream,
            std::optional<SkipReason> why_skipped)
        : scope(memory, stream, StepAllocations::Kind::kEager),
          breaks(call, scope.allocations()),
          key(why_skipped ? call.actual_key() : call.inputs().key()),
          reason(why_skipped) {}
    Node* verified = nullptr;            // the recording that was replayed
    std::unique_ptr<ReplayCheck> check;  // of its replay; destroyed outside of the step
    StepScope scope;
    BreaksAtOnce breaks;
    const KeyScope key;
    std::optional<DrawHandlerScope> draws;  // those of the replay again
    std::vector<Tensor> inputs;
    std::optional<SkipReason> reason;  // none for a warm-up, and for a replay that is verified
    AnnouncedSkip announced;
    std::optional<CaptureFailure> failure;
  };
  struct Capturing {
    Capturing(ContextMemory& memory, const Call& call, const CaptureOn& on, const KeyState& key)
        : recording(memory, call, on, key.output_allocations), key_scope(call.inputs().key()) {}
    OpenRecording recording;
    const KeyScope key_scope;
    Decision decision;
    Explanation why;
  };

  // What the call holds while it is inside the context.
  struct Stay {
    Stay(Door& door, const InputList& given) : visit(door), held(given) {}
    Visit visit;
    const HeldInputs held;
  };

  void begin();
  bool is_innermost() const noexcept;
  void check_apart() const;
  void decide_and_begin();
  void begin_recording(const Decision& decision);
  void begin_running(StreamRef stream, std::optional<SkipReason> reason,
                     AnnouncedSkip announced = {});
  void run_eagerly(SkipReason reason, StreamRef stream);
  void run_in_place_of(CaptureFailure failure);
  void abandon(const std::exception_ptr& thrown, const CaptureFailure* own = nullptr) noexcept;
  void fail();
  void verify(Node& node);
  void end_verifying(Running& running);
  void end_running(Running& running);
  void end_capturing(Capturing& capturing);
  void settle(std::optional<CaptureResult> result, const std::exception_ptr& thrown,
              const Decision& decision, Explanation why);
  void note_sizes() noexcept;
  void finish();
  void open_range(std::string_view what, std::uint64_t recording, const std::string& about);

  TreeManager& manager_;
  FunctionState& function_;
  const CaptureMode mode_;
  const std::thread::id thread_ = std::this_thread::get_id();
  const int exceptions_ = std::uncaught_exceptions();  // when the call began
  const std::weak_ptr<const void> owner_;
  std::optional<Stay> stay_;  // until the call is over, however long the caller keeps the step
  bool is_ending_ = false;    // end() is running
  std::optional<Stopwatch> stopwatch_;
  std::unique_ptr<ProfilerRange> range_;  // while the step is open, if there is a profiler
  std::variant<Done, Running, Capturing> run_;
  Explanation::Outcome outcome_ = Explanation::Outcome::kReplay;
};

}  // namespace cgtree
