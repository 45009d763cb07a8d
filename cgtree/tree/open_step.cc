// Decides about a call, and begins and ends the runs of its work.
#include "cgtree/tree/open_step.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace cgtree {

using Outcome = Explanation::Outcome;

OpenStep::OpenStep(TreeManager& manager, FunctionState& function, const InputList& inputs,
                   CaptureMode mode, std::weak_ptr<const void> owner)
    : manager_(manager),
      function_(function),
      mode_(mode),
      owner_(std::move(owner)),
      stay_(std::in_place, manager.door_, inputs) {
  try {
    begin();
  } catch (...) {
    fail();
    throw;
  }
}

// Requires: an exception is being handled, with which the call ends.
void OpenStep::fail() {
  abandon(std::current_exception());
  manager_.count_failure(function_);
  stay_.reset();
}

// The step ends without its work. Work that breaks the rules of captures may well throw when it
// sees that the capture is broken: if the next call captured it again, it would throw for ever. So
// such a failure counts, on all ranks. `own`: what this one's capture has come to, or null.
void OpenStep::abandon(const std::exception_ptr& thrown, const CaptureFailure* own) noexcept {
  using Capture = AttemptResult::Capture;
  run_.emplace<Done>();
  range_.reset();
  stopwatch_.reset();
  const AttemptResult worst = manager_.attempts_.leave(
      thrown, own == nullptr ? Capture::kNone : result_of(CaptureResult(*own)).capture);
  if (worst.capture == Capture::kNone) return;
  try {
    const bool breaks_rules = worst.capture == Capture::kBreaksRules;
    KeyState& key = function_.find_or_add(manager_.call_);
    key.capture_failure = fmt::format("capture of '{}' failed: {}", function_.name,
                                      own == nullptr ? worst.what : own->what);
    manager_.count_capture_failure(
        {breaks_rules ? Code::kStreamCaptureUnsupported : Code::kUnknown, {}}, function_, key);
  } catch (const std::exception& error) {
    manager_.events_.failure(function_, error.what());
  }
}

OpenStep::~OpenStep() {
  if (!must_run()) return;
  CGTREE_CHECK(thread_ == std::this_thread::get_id());
  ++function_.counters.failures;
  function_.last_outcome.set(Outcome::kThrow);
  // An exception that passes cannot be asked what it says before it is caught.
  const bool is_thrown = std::uncaught_exceptions() > exceptions_;
  std::optional<CaptureFailure> failure;
  std::exception_ptr why;
  try {
    auto* const capturing = std::get_if<Capturing>(&run_);
    if (capturing != nullptr) failure = capturing->recording.abandon();
    const std::string what = fmt::format(
        "the step was left before its end(): {}{}{}",
        is_thrown ? "an exception has passed, which the engine has thrown or let through"
                  : "by a return or a break, or by cgt_step_leave()",
        failure ? "; before that its capture failed: " : "", failure ? failure->what : "");
    manager_.events_.failure(function_, what);
    why = std::make_exception_ptr(InvalidArgument(what));
  } catch (const std::exception& error) {
    why = std::current_exception();
    manager_.events_.failure(function_, error.what());
  }
  abandon(why, failure ? &*failure : nullptr);
}

void OpenStep::begin() {
  const StreamRef captured = stay_->visit.ask_foreign_capture();
  if (!captured) stay_->visit.begin();
  manager_.catch_up();
  const InputList inputs = stay_->held.list();
  manager_.call_.begin(function_, *manager_.memory_, inputs);
  if (function_.axes != nullptr) function_.axes->read(inputs, manager_.call_.axes());
  manager_.call_.check();
  check_apart();
  if (captured) return run_eagerly(SkipReason::kForeignCapture, captured);
  decide_and_begin();
}

// A step function's tensors may overlap by chance, and then it runs eagerly. Bindings are declared.
void OpenStep::check_apart() const {
  const Call& call = manager_.call_;
  const Overlap overlap = call.find_overlap();
  if (!overlap) return;
  const auto describe = [&](std::uint32_t i) {
    const Tensor& binding = call.inputs()[i];
    return fmt::format("{} ({}, {} bytes at {:#x})",
                       text_of_binding(i, function_.input_options(i).name), name(call.treatment(i)),
                       binding.bytes(), binding.address());
  };
  throw InvalidArgument(
      fmt::format("{} and {} of '{}' share memory; one is written and one is copied, so that the "
                  "copy would miss what is written: pass ranges that lie apart, or let neither be "
                  "copied",
                  describe(overlap.first), describe(overlap.second), function_.name));
}

void OpenStep::begin_running(StreamRef stream, std::optional<SkipReason> reason,
                             AnnouncedSkip announced) {
  if (reason) {
    open_range("skip", 0, fmt::format(": {}", name(*reason)));
  } else {
    open_range("warm_up", 0, manager_.key_text());
  }
  Running& running = run_.emplace<Running>(*manager_.memory_, manager_.call_, stream, reason);
  running.scope.set_owner(owner_);
  running.inputs = make_step_inputs(manager_.call_, *manager_.memory_, StepRun::kEagerly);
  running.announced = std::move(announced);
  outcome_ = reason ? Outcome::kRunEagerly : Outcome::kWarmUp;
}

void OpenStep::run_eagerly(SkipReason reason, StreamRef stream) {
  run_.emplace<Done>();
  stopwatch_.reset();
  begin_running(stream, reason, manager_.announce_skip(function_, reason));
}

InputList OpenStep::inputs() const {
  if (const auto* const capturing = std::get_if<Capturing>(&run_)) {
    return stay_->held.list().at(capturing->recording.inputs());
  }
  return stay_->held.list().at(std::get<Running>(run_).inputs);
}

void OpenStep::decide_and_begin() {
  const Decision decision = decide(manager_.situation(function_), manager_.call_);
  if (decision.action != Decision::Action::kReplay)
    manager_.attempts_.begin(decision, function_, manager_.call_);
  switch (decision.action) {
    case Decision::Action::kReplay: {
      if (decision.node->is_held_back) return verify(*decision.node);
      TensorList none;
      note_sizes();
      manager_.replay(*decision.node, manager_.call_.inputs(), none);
      Tree::note_last_of_key(*decision.node);
      outcome_ = Outcome::kReplay;
      return finish();
    }
    case Decision::Action::kWarmUp:
      stopwatch_.emplace(manager_.tree_.spent.recording_time);
      return begin_running(manager_.memory_->stream(), std::nullopt);
    case Decision::Action::kRecord:
      return begin_recording(decision);
    case Decision::Action::kSkip:
      return run_eagerly(decision.reason, manager_.memory_->stream());
    case Decision::Action::kThrow:
      manager_.refuse(decision, function_);
  }
}

// Replays, and has the caller run its work once more, to compare what the two have done.
void OpenStep::verify(Node& node) {
  ContextMemory& memory = *manager_.memory_;
  note_sizes();
  TensorList none;
  std::unique_ptr<ReplayCheck> check = manager_.replay_to_verify(node, none);
  Tree::note_last_of_key(node);
  outcome_ = Outcome::kReplay;
  if (check == nullptr) return finish();
  manager_.verifier_.begin(node);
  open_range("verify", node.id, "");
  check->begin_eager_run();
  Running& running = run_.emplace<Running>(memory, manager_.call_, memory.stream(), std::nullopt);
  running.verified = &node;
  running.check = std::move(check);
  running.draws.emplace(running.check->draws());
  running.scope.allocations().is_in_replay = true;
  running.scope.allocations().is_verification = true;
  running.scope.set_owner(owner_);
  running.inputs = make_step_inputs(manager_.call_, memory, StepRun::kVerify);
}

void OpenStep::end_verifying(Running& running) {
  running.inputs.clear();
  running.scope.finish();
  Node& node = *running.verified;
  const std::unique_ptr<ReplayCheck> check = std::move(running.check);
  run_.emplace<Done>();
  manager_.verifier_.compare(node, *check, {});
  // It is counted after it was verified, so that monitors never see a count fall.
  ++function_.counters.replays;
  function_.last_outcome.set(Outcome::kReplay);
  finish();
}

void OpenStep::begin_recording(const Decision& decision) {
  open_range("record", manager_.tree_.next_id(), manager_.key_text());
  stopwatch_.emplace(manager_.tree_.spent.recording_time);
  Explanation why = cgtree::explain(decision, manager_.situation(function_), manager_.call_);
  const KeyState& key = function_.find_or_add(manager_.call_);
  ContextMemory& memory = *manager_.memory_;
  memory.begin_tracking();
  std::optional<CaptureResult> result;
  std::exception_ptr thrown;
  try {
    Capturing& capturing = run_.emplace<Capturing>(
        memory, manager_.call_,
        CaptureOn{.stream = memory.stream(),
                  .mode = mode_,
                  .on_foreign_pointer = manager_.options_.on_foreign_pointer,
                  .before_launch = manager_.attempts_.before_launch(function_, *stopwatch_)},
        key);
    StepScope::current()->set_owner(owner_);
    capturing.decision = decision;
    capturing.why = std::move(why);
    outcome_ = Outcome::kRecord;
    return;
  } catch (const CaptureError& error) {  // the stream cannot be captured
    (void)memory.stream().graphs().take_last_error();
    result = CaptureFailure{static_cast<Code>(error.code()), error.what()};
  } catch (...) {
    thrown = std::current_exception();
  }
  settle(std::move(result), thrown, decision, std::move(why));
}

// The capture is gone, and nothing has run.
void OpenStep::run_in_place_of(CaptureFailure failure) {
  run_.emplace<Done>();
  manager_.expect_capture_failure(failure, function_, function_.find_or_add(manager_.call_));
  run_eagerly(SkipReason::kCaptureFailed, manager_.memory_->stream());
  std::get<Running>(run_).failure = std::move(failure);
}

void OpenStep::end() {
  if (!must_run()) {
    throw InvalidArgument(fmt::format(
        "end() of a step of '{}' that has nothing to end: it was replayed, or has ended",
        function_.name));
  }
  if (thread_ != std::this_thread::get_id()) {
    throw InvalidArgument(
        fmt::format("end() of a step of '{}' on another thread than its begin(): end it there",
                    function_.name));
  }
  if (is_ending_ || !is_innermost()) {
    throw InvalidArgument(fmt::format(
        "end() of a step of '{}' inside a function that the step has called, such as that of an "
        "eager_break(): end it when that has returned",
        function_.name));
  }
  is_ending_ = true;
  try {
    if (auto* const running = std::get_if<Running>(&run_)) {
      end_running(*running);
    } else {
      end_capturing(std::get<Capturing>(run_));
    }
  } catch (...) {
    fail();
    throw;
  }
  is_ending_ = false;
}

// Whether the thread is in the work itself, and not in a function that it has called.
bool OpenStep::is_innermost() const noexcept {
  if (const auto* const capturing = std::get_if<Capturing>(&run_)) {
    return capturing->recording.is_current();
  }
  return std::get<Running>(run_).breaks.is_current();
}

void OpenStep::end_running(Running& running) {
  if (running.check != nullptr) return end_verifying(running);
  FunctionState& function = function_;
  manager_.attempts_.settle(stopwatch_ ? &*stopwatch_ : nullptr);
  running.scope.finish();
  if (running.reason) {
    manager_.count_skip(function, *running.reason, running.announced);
  } else {
    KeyState& key = function.find_or_add(manager_.call_);
    key.warmed_up = true;
    if (function.axes != nullptr) {
      manager_.evictor_.drop_sizes(function, function.axes->admit(manager_.call_.axes()));
    }
    manager_.count_warm_up(function, key, *stopwatch_);
  }
  if (running.failure) {
    manager_.count_capture_failure(*running.failure, function,
                                   function.find_or_add(manager_.call_));
  }
  note_sizes();
  finish();
}

void OpenStep::end_capturing(Capturing& capturing) {
  std::optional<CaptureResult> result;
  std::exception_ptr thrown;
  try {
    result = capturing.recording.finish({}, nullptr);
  } catch (...) {
    thrown = std::current_exception();
  }
  const Decision decision = capturing.decision;
  Explanation why = std::move(capturing.why);
  settle(std::move(result), thrown, decision, std::move(why));
}

// If memory was short nothing has run yet, so the call is decided again, as TreeManager does.
void OpenStep::settle(std::optional<CaptureResult> result, const std::exception_ptr& thrown,
                      const Decision& decision, Explanation why) {
  run_.emplace<Done>();
  result = manager_.attempts_.settle_capture(function_, manager_.call_, std::move(result), thrown,
                                             *stopwatch_);
  if (!result) return decide_and_begin();
  if (auto* const failure = std::get_if<CaptureFailure>(&*result)) {
    return run_in_place_of(std::move(*failure));
  }
  KeyState& key = function_.find_or_add(manager_.call_);
  if (auto* const recorded = std::get_if<Recorded>(&*result)) {
    recorded->recording.costs.record_us = stopwatch_->elapsed().count();
    TensorList none;
    manager_.keep(decision, function_, key, *recorded, std::move(why), none);
    note_sizes();
    return finish();
  }
  key.is_too_small = true;
  key.too_few_nodes = std::get<TooSmall>(*result).nodes;
  run_eagerly(SkipReason::kTooSmall, manager_.memory_->stream());
}

// Ends the range that is open, because what it shows has given place to something else.
void OpenStep::open_range(std::string_view what, std::uint64_t recording,
                          const std::string& about) {
  range_.reset();
  if (!manager_.events_.is_profiled()) return;
  range_.reset(new ProfilerRange(true, recording, "{} {}{}", what, function_.name, about));
}

void OpenStep::note_sizes() noexcept {
  if (function_.axes != nullptr) function_.axes->note(manager_.call_.axes(), /*counts=*/true);
}

void OpenStep::finish() {
  run_.emplace<Done>();
  range_.reset();
  stopwatch_.reset();
  stay_->visit.finish();
  stay_.reset();  // from here on the function may be gone
}

}  // namespace cgtree
