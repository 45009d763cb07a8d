// Ends calls that fail, and remembers failed captures.

#include <exception>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/format.h"
#include "cgtree/tree/attempt.h"
#include "cgtree/tree/outcomes.h"
#include "cgtree/values/graph_scope.h"
#include "interop/device/graph_api.h"

namespace cgtree {
namespace {

// A node that the device refused twice to patch may never be patched: drops the recording, and the
// next call copies. In a group nothing is rebound, and all ranks keep their recordings.
void drop_refused(Engine& engine, FunctionState& function) {
  if (engine.votes.are_shared()) return;
  for (std::size_t i = engine.tree.nodes().size(); i-- > 0;) {
    Node& node = *engine.tree.nodes()[i];
    if (node.function != &function || node.recording.refused_patches < 2) continue;
    engine.extensions.after({.kind = CallEvent::kPatchRefused, .function = &function});
    engine.drop(node, "the device has refused to patch it twice");
  }
}

}  // namespace

std::optional<CaptureResult> failure_of(const std::exception_ptr& thrown, GraphAPI& graphs) {
  std::optional<CaptureResult> failure;
  try {
    std::rethrow_exception(thrown);
  } catch (const OutOfMemory&) {
  } catch (const InvalidArgument&) {
  } catch (const GroupError&) {
  } catch (const DeviceError& error) {
    failure = CaptureFailure{static_cast<Code>(error.code()), error.what(), thrown};
  } catch (const std::exception& error) {
    failure = CaptureFailure{Code::kUnknown, error.what(), thrown};
  } catch (...) {
    failure = CaptureFailure{Code::kUnknown, "an exception of unknown type", thrown};
  }
  (void)graphs.take_last_error();
  return failure;
}

void count_failure(Engine& engine, FunctionState& function) noexcept {
  ++function.counters.failures;
  function.last_outcome.set(Outcome::kThrow);
  try {
    throw;
  } catch (const StaleTensor& error) {  // its text tells the caller everything
    engine.tell_failure(function, error.what(), LogLevel::kDebug);
  } catch (const DeviceError& error) {
    engine.extensions.after(  // before the failure, which ends the watched call
        {.kind = CallEvent::kDeviceError, .what = error.what(), .code = error.code()});
    engine.tell_failure(function, error.what());
    drop_refused(engine, function);
  } catch (const std::exception& error) {
    engine.tell_failure(function, error.what());
  } catch (...) {
    engine.tell_failure(function, "an exception of unknown type");
  }
}

void expect_capture_failure(const CaptureFailure& failure, const FunctionState& function,
                            KeyState& key) {
  std::string what = str_format("capture of '{}' failed: {}", function.name, failure.what);
  if (function.options.require_graph) {
    if (failure.thrown) std::rethrow_exception(failure.thrown);
    throw CaptureError(static_cast<int>(failure.code), what);
  }
  key.capture_failure = std::move(what);
  key.capture_reason = failure.reason;
}

void count_capture_failure(Engine& engine, const CaptureFailure& failure, FunctionState& function,
                           KeyState& key) {
  key.captures.note_failure(breaks_capture_rules(failure.code));
  engine.tree.set_capture_failure(function, key.capture_failure);
}

void forget_capture_failure(Engine& engine, FunctionState& function, KeyState& key) {
  key.captures.reset();
  if (key.capture_failure.empty()) return;
  if (function.capture_failure == key.capture_failure)
    engine.tree.set_capture_failure(function, "");
  key.capture_failure.clear();
}

Attempt::~Attempt() {
  if (!must_run()) return;
  CGTREE_CHECK(thread_ == std::this_thread::get_id());
  ++function_.counters.failures;
  function_.last_outcome.set(Outcome::kThrow);
  // The text of an exception in flight cannot be read before it is caught.
  const bool is_thrown = std::uncaught_exceptions() > exceptions_;
  std::optional<CaptureFailure> failure;
  std::exception_ptr why;
  try {
    auto* const capture = std::get_if<OpenRecording>(&state_);
    if (capture != nullptr) failure = capture->abandon();
    const std::string what = str_format(
        "the step was left before its end(): {}{}{}",
        is_thrown ? "an exception has passed, which the engine has thrown or let through"
                  : "by a return or a break, or by cgt_step_leave()",
        failure ? "; before that its capture failed: " : "", failure ? failure->what : "");
    engine_.tell_failure(function_, what);
    why = std::make_exception_ptr(InvalidArgument(what));
  } catch (const std::exception& error) {
    why = std::current_exception();
    engine_.tell_failure(function_, error.what());
  }
  abandon(why, failure ? &*failure : nullptr);
}

// Makes the capture in progress fail. In any other run, marks later captures as failing; not in a
// group, whose other ranks would not know.
void Attempt::refuse_capture(std::string_view why) {
  if (is_captured()) return cgtree::refuse_capture(why);
  if (engine_.votes.are_shared()) return;
  KeyState& key = function_.find_or_add(call_);
  if (key.captures.waits()) return;
  key.capture_failure = str_format("capture of '{}' was refused: {}", function_.name,
                                   why.empty() ? "the work cannot be captured" : why);
  key.capture_reason = SkipReason::kCaptureFailed;
  key.captures.note_failure(/*for_good=*/true);
  engine_.tree.set_capture_failure(function_, key.capture_failure);
}

// Requires: an exception is being handled, with which the call ends.
void Attempt::fail() noexcept {
  try {
    // The next call's capture would break, too, and lose the memory that the step keeps.
    const bool runs = std::holds_alternative<OpenRun>(state_);
    KeyState* const key = runs && failure_ ? function_.find(call_) : nullptr;
    if (key != nullptr && breaks_capture_rules(failure_->code))
      count_capture_failure(engine_, *failure_, function_, *key);
  } catch (const std::exception& error) {
    engine_.tell_failure(function_, error.what());
  }
  abandon(std::current_exception());
  count_failure(engine_, function_);
  held_.reset();
}

// Ends the call without its work. Work that breaks the rules of captures may throw when it sees the
// broken capture; if each call captured it again, each would throw. Therefore this failure counts,
// on all ranks. `own`: this rank's capture failure, or null.
void Attempt::abandon(const std::exception_ptr& thrown, const CaptureFailure* own) noexcept {
  using Capture = AttemptResult::Capture;
  close();
  check_.reset();
  range_.clear();
  stopwatch_.reset();
  const AttemptResult worst =
      own == nullptr ? engine_.votes.leave(thrown)
                     : engine_.votes.leave(thrown, result_of(*own).capture, own->reason);
  if (worst.capture == Capture::kNone) return;
  try {
    const bool breaks_rules = worst.capture == Capture::kBreaksRules;
    KeyState& key = function_.find_or_add(call_);
    key.capture_failure = str_format("capture of '{}' failed: {}", function_.name,
                                     own == nullptr ? worst.what : own->what);
    key.capture_reason = worst.reason;
    count_capture_failure(engine_,
                          {breaks_rules ? Code::kStreamCaptureUnsupported : Code::kUnknown, {}},
                          function_, key);
  } catch (const std::exception& error) {
    engine_.tell_failure(function_, error.what());
  }
}

}  // namespace cgtree
