// Decides about a call, and begins and ends the runs of its work.
#include "cgtree/tree/open_call.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "cgtree/record/outputs.h"
#include "cgtree/tree/outcomes.h"
#include "cgtree/tree/replay.h"
#include "interop/tensor/stream_synchronization.h"

namespace cgtree {
namespace {

// Returns what was thrown before a capture was launched as a failure of the capture, after which
// the call runs eagerly. Returns nothing for lack of memory, which is asked for first, and for what
// the call throws: a wrong use of this library, and what other ranks say.
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

// Managed inputs that lay elsewhere in an earlier recording of the key will move again.
void copy_moved_inputs(const KeyState& key, Call& call) {
  for (const Node* const node : key.nodes) {
    const std::vector<InputRecord>& records = node->recording.inputs;
    for (std::size_t i = 0; i < call.inputs().step_size(); ++i) {
      const bool stays = records[i].treatment == Treatment::kManaged &&
                         records[i].address == call.inputs()[i].address();
      if (!stays) (void)call.copy_managed(i);
    }
  }
}

}  // namespace

OpenCall::OpenCall(Workings& workings, Visit& visit, FunctionState& function,
                   const InputList& inputs, TensorList& outputs, CaptureMode mode,
                   std::weak_ptr<const void> owner)
    : workings_(workings),
      visit_(visit),
      function_(function),
      outputs_(outputs),
      mode_(mode),
      owner_(std::move(owner)) {
  try {
    begin(inputs);
  } catch (...) {
    fail();
    throw;
  }
}

OpenCall::~OpenCall() {
  if (!must_run()) return;
  CGTREE_CHECK(thread_ == std::this_thread::get_id());
  ++function_.counters.failures;
  function_.last_outcome.set(Outcome::kThrow);
  // An exception that passes cannot be asked what it says before it is caught.
  const bool is_thrown = std::uncaught_exceptions() > exceptions_;
  std::optional<CaptureFailure> failure;
  std::exception_ptr why;
  try {
    auto* const capturing = std::get_if<Capturing>(&state_);
    if (capturing != nullptr) failure = capturing->recording.abandon();
    const std::string what = fmt::format(
        "the step was left before its end(): {}{}{}",
        is_thrown ? "an exception has passed, which the engine has thrown or let through"
                  : "by a return or a break, or by cgt_step_leave()",
        failure ? "; before that its capture failed: " : "", failure ? failure->what : "");
    workings_.events->after({.kind = CallEvent::kFailure, .function = &function_, .what = what});
    why = std::make_exception_ptr(InvalidArgument(what));
  } catch (const std::exception& error) {
    why = std::current_exception();
    workings_.events->after(
        {.kind = CallEvent::kFailure, .function = &function_, .what = error.what()});
  }
  abandon(why, failure ? &*failure : nullptr);
}

// Requires: an exception is being handled, with which the call ends.
void OpenCall::fail() noexcept {
  try {
    // The capture would break in the next call, too, and take with it what the step keeps.
    const auto* const running = std::get_if<Running>(&state_);
    KeyState* const key = running != nullptr ? function_.find(workings_.call) : nullptr;
    if (key != nullptr && running->failure && breaks_capture_rules(running->failure->code))
      count_capture_failure(workings_, *running->failure, function_, *key);
  } catch (const std::exception& error) {
    workings_.events->after(
        {.kind = CallEvent::kFailure, .function = &function_, .what = error.what()});
  }
  abandon(std::current_exception());
  count_failure(workings_, function_);
  held_.reset();
}

// The call ends without its work. Work that breaks the rules of captures may well throw when it
// sees that the capture is broken: if the next call captured it again, it would throw for ever. So
// such a failure counts, on all ranks. `own`: what this one's capture has come to, or null.
void OpenCall::abandon(const std::exception_ptr& thrown, const CaptureFailure* own) noexcept {
  using Capture = AttemptResult::Capture;
  state_.emplace<Done>();
  range_.reset();
  stopwatch_.reset();
  const AttemptResult worst =
      own == nullptr ? workings_.attempts.leave(thrown)
                     : workings_.attempts.leave(thrown, result_of(*own).capture, own->reason);
  if (worst.capture == Capture::kNone) return;
  try {
    const bool breaks_rules = worst.capture == Capture::kBreaksRules;
    KeyState& key = function_.find_or_add(workings_.call);
    key.capture_failure = fmt::format("capture of '{}' failed: {}", function_.name,
                                      own == nullptr ? worst.what : own->what);
    key.capture_reason = worst.reason;
    count_capture_failure(workings_,
                          {breaks_rules ? Code::kStreamCaptureUnsupported : Code::kUnknown, {}},
                          function_, key);
  } catch (const std::exception& error) {
    workings_.events->after(
        {.kind = CallEvent::kFailure, .function = &function_, .what = error.what()});
  }
}

// ---- Beginning ----

void OpenCall::begin(const InputList& inputs) {
  const StreamRef captured = visit_.ask_foreign_capture();
  if (!captured) {
    visit_.begin();
    workings_.memory->let_go();
  }
  workings_.attempts.begin_call();
  Call& call = workings_.call;
  if (!captured && function_.is_callers_work && visit_.has_guest()) {
    throw InvalidArgument(fmt::format(
        "'{}' on a stream where its context cannot work: the default stream of a thread, or one of "
        "another device. A capture would miss the engine's work: pass a stream of your own, of {}",
        function_.name, to_string(workings_.memory->device())));
  }
  workings_.catch_up();
  if (function_.axes != nullptr) function_.axes->read(inputs, call.axes());
  call.begin(function_, *workings_.memory, inputs);
  call.check();
  if (function_.is_callers_work) check_apart();
  if (captured) return begin_in_foreign_capture(inputs, captured);
  function_.takes_lent = visit_.wait_for_producers(inputs);
  wait_for_readers(workings_, function_, inputs);
  decide_and_begin();
}

// The work becomes part of a graph of the caller's, which uses the same memory at each launch. An
// engine's memory is its own.
void OpenCall::begin_in_foreign_capture(const InputList& inputs, StreamRef captured) {
  ContextMemory& memory = *workings_.memory;
  hold();
  const std::uint64_t capture = capture_of(captured);
  if (capture_of(memory.stream()) != capture) {
    // The caller launches the graph behind the context's stream.
    (void)visit_.wait_for_producers(inputs, nullptr, captured);
    wait_for_readers(workings_, function_, inputs);
    note_captured_uses(workings_, function_, inputs);
    (void)order_behind_neighbours(workings_, function_, inputs, memory.stream());
  } else {
    await_others(inputs, captured);
  }
  memory.plain().end(/*in_graph=*/true);
  for (std::size_t i = 0; !function_.is_callers_work && i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    const StorageRef& storage = inputs[i].storage();
    memory.hold_for_capture(capture, storage);
    if (storage->domain() != &memory) storage->owner().used(*storage, captured);
  }
  begin_skip(SkipReason::kForeignCapture, captured);
}

// A stream that captures waits for no work outside of the capture, so the host does.
void OpenCall::await_others(const InputList& inputs, StreamRef captured) {
  const ContextMemory& memory = *workings_.memory;
  const auto is_lent = [&](const Tensor& input) {
    if (!input.defined()) return false;
    const Storage& storage = *input.storage();
    return storage.state() == Storage::State::kBorrowed ||
           (storage.domain() != nullptr && storage.domain() != &memory);
  };
  note_captured_uses(workings_, function_, inputs);
  bool any = workings_.memory->streams().has_readers();
  for (std::size_t i = 0; i < inputs.size(); ++i)
    any = any || is_lent(inputs[i]);
  if (!any) return;
  const RelaxedCapture relaxed(memory.stream().api().graphs());
  const Stream beside(memory.device());
  visit_.order_producers_before(inputs, beside, captured);
  wait_for_readers(workings_, function_, inputs, beside);
  (void)order_behind_neighbours(workings_, function_, inputs, beside);
  beside.synchronize();
}

// A step function's tensors may overlap by chance, and then it runs eagerly. Bindings are declared.
void OpenCall::check_apart() const {
  const Call& call = workings_.call;
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

// Must be called before code of the caller's runs, which may assign the variables that the inputs
// came from, and destroy the last handle of the context.
void OpenCall::hold() {
  if (held_) return;
  workings_.door.keep_context();
  held_.emplace(workings_.call.inputs());
  workings_.call.hold(*held_);
}

void OpenCall::decide_and_begin() {
  const Decision decision = decide(workings_.situation(function_), workings_.call);
  if (decision.outcome == Outcome::kReplay) {
    Node& node = *decision.node;
    if (!workings_.call.inputs().key().empty()) Tree::note_last_of_key(node);
    outcome_ = Outcome::kReplay;
    if (node.is_held_back) [[unlikely]] {
      return begin_held_back(node);
    }
    note_sizes();
    replay(workings_, node, workings_.call.inputs(), outputs_);
    return finish();
  }
  hold();
  wait_for_neighbours(workings_, function_, workings_.call.inputs());  // replays do themselves
  workings_.attempts.begin(decision, function_, workings_.call);
  switch (decision.outcome) {
    case Outcome::kReplay:
      break;
    case Outcome::kWarmUp:
      return begin_warm_up();
    case Outcome::kRecord:
      stopwatch_.emplace(workings_.tree.spent.recording_time);
      return begin_recording(decision);
    case Outcome::kRunEagerly:
      return begin_skip(decision.reason, workings_.memory->stream());
    case Outcome::kThrow:
      refuse(workings_, decision, function_);
  }
}

// Without memory for copies of the outputs the call runs eagerly, because then recordings may give
// way for them: in a group on all ranks, which vote on it.
void OpenCall::begin_held_back(Node& node) {
  const InputList& inputs = workings_.call.inputs();
  std::optional<OutputCopies> copies;
  if (node.recording.copies_outputs()) {
    try {
      copies.emplace(*workings_.memory, inputs, node.recording.copies_of_outputs);
    } catch (const OutOfMemory&) {
    }
    if (!workings_.attempts.agree(copies.has_value())) {
      copies.reset();
      hold();
      workings_.attempts.begin({.reason = SkipReason::kPoolLimit}, function_, workings_.call);
      return begin_skip(SkipReason::kPoolLimit, workings_.memory->stream());
    }
  }
  note_sizes();
  const OutputCopies* const used = copies ? &*copies : nullptr;
  const bool is_turn = workings_.verifier != nullptr && workings_.verifier->is_turn(node);
  if (is_turn) return begin_replay_to_verify(node, used);
  replay_watched(workings_, node, inputs, outputs_, used);
  finish();
}

// Replays, and has the work run once more, to compare what the two have done. If it cannot be
// verified, it is an ordinary replay.
void OpenCall::begin_replay_to_verify(Node& node, const OutputCopies* copies) {
  hold();
  const InputList& inputs = workings_.call.inputs();
  wait_for_neighbours(workings_, function_, inputs, &node.recording);  // before what is saved
  std::unique_ptr<ReplayCheck> check = workings_.verifier->prepare(node, workings_.call);
  if (check == nullptr) {
    replay_watched(workings_, node, inputs, outputs_, copies);
    return finish();
  }
  launch_watched(workings_, node, inputs, outputs_, copies);
  TakenDraws draws(node.recording);
  workings_.attempts.settle(nullptr);  // if it has failed on a rank, all verify the next one
  draws.keep();
  begin_replay(workings_, node);
  workings_.verifier->watch(node);
  workings_.verifier->begin(node);
  try {
    begin_eager_run_of(node, std::move(check));
  } catch (const OutOfMemory& error) {
    leave_unverified(node, error.message());
  }
}

void OpenCall::begin_eager_run_of(Node& node, std::unique_ptr<ReplayCheck> check) {
  open_range("verify", node.id);
  check->begin_eager_run();
  const StepRun as = check->run_as();
  begin_running(workings_.memory->stream(), as, std::move(check)).verified = &node;
}

OpenCall::Running& OpenCall::begin_running(StreamRef stream, StepRun as,
                                           std::unique_ptr<ReplayCheck> check) {
  DrawHandler* const draws = check == nullptr ? nullptr : &check->draws();
  Running& running = state_.emplace<Running>(std::move(check), *workings_.memory, workings_.call,
                                             stream, as, draws);
  running.run.set_owner(owner_);
  if (workings_.attempts.are_shared()) running.run.require_moves();
  return running;
}

void OpenCall::begin_warm_up() {
  open_range("warm_up", 0, &workings_.call.inputs());
  stopwatch_.emplace(workings_.tree.spent.recording_time);
  workings_.memory->begin_tracking();
  outcome_ = Outcome::kWarmUp;
  begin_running(workings_.memory->stream(), StepRun::kWarmUp);
}

// A call that does not fit as a recording runs where it was warmed up, in memory that recordings
// use too. Eager memory would be needed beside theirs.
void OpenCall::begin_skip(SkipReason reason, StreamRef stream) {
  state_.emplace<Done>();
  stopwatch_.reset();
  const bool is_demand = function_.axes != nullptr && function_.axes->learns();
  if (is_demand && function_.options.require_graph) {  // it is refused, and a learner hears of it
    outcome_ = Outcome::kRunEagerly;
    note_sizes();
  }
  AnnouncedSkip announced = announce_skip(workings_, function_, reason);
  open_range("skip", 0, nullptr, reason);
  outcome_ = Outcome::kRunEagerly;
  const bool is_short = reason == SkipReason::kPoolLimit;
  if (is_short) workings_.memory->begin_tracking();
  Running& running = begin_running(stream, is_short ? StepRun::kWarmUp : StepRun::kEagerly);
  running.reason = reason;
  running.announced = std::move(announced);
}

void OpenCall::begin_in_place_of(CaptureFailure failure) {
  expect_capture_failure(failure, function_, function_.find_or_add(workings_.call));
  begin_skip(failure.reason, workings_.memory->stream());
  std::get<Running>(state_).failure = std::move(failure);
}

// A loop holds outputs where earlier recordings write, or gives this one outputs that lie elsewhere
// than before. A recording whose outputs lie apart from all others fits in every round of the loop.
// But a function that is given outputs of its own closes its loop only with one at an address that
// it knows, in memory that is used again: it is placed by fit.
bool OpenCall::keeps_apart(const Decision& decision) const {
  if (!workings_.options.outputs_lie_apart) return false;
  if (decision.mismatch != Mismatch::Kind::kManagedAddress)
    return decision.mismatch == Mismatch::Kind::kFootprint;
  const InputList inputs = workings_.call.inputs();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Storage* const storage = inputs[i].defined() ? inputs[i].storage().get() : nullptr;
    const bool is_managed = storage != nullptr && workings_.memory->manages(*storage);
    if (is_managed && storage->tag.function == function_.id) return false;
  }
  return true;
}

void OpenCall::begin_recording(const Decision& decision) {
  open_range("record", workings_.tree.next_id(), &workings_.call.inputs());
  Explanation why = workings_.explain(decision, function_);
  const KeyState& key = function_.find_or_add(workings_.call);
  std::optional<CaptureResult> result;
  std::exception_ptr thrown;
  try {
    workings_.memory->begin_tracking(keeps_apart(decision));
    CaptureOn on = workings_.recorder.capture_on(function_, mode_);
    on.before_launch = workings_.attempts.before_launch(function_, *stopwatch_);
    on.copies_outputs = decision.copies;
    if (decision.copies) copy_moved_inputs(key, workings_.call);
    auto examination =
        workings_.pass->begin(workings_.call, workings_.recorder, key.output_allocations);
    Capturing& capturing = state_.emplace<Capturing>(workings_, std::move(examination), on, key);
    StepScope::current()->set_owner(owner_);
    capturing.decision = decision;
    capturing.why = std::move(why);
    outcome_ = Outcome::kRecord;
    return;
  } catch (const CaptureError& error) {  // the stream cannot be captured
    (void)workings_.memory->stream().graphs().take_last_error();
    result = CaptureFailure{static_cast<Code>(error.code()), error.what()};
  } catch (...) {
    thrown = std::current_exception();
    result = failure_of(thrown, workings_.memory->stream().graphs());
  }
  settle(std::move(result), thrown, decision, std::move(why));
}

// ---- Running ----

std::span<const Tensor> OpenCall::inputs() const {
  if (const auto* const capturing = std::get_if<Capturing>(&state_)) {
    return capturing->recording.inputs();
  }
  return std::get<Running>(state_).run.inputs();
}

// What a step function throws while it is captured breaks the capture, and no more.
void OpenCall::run() {
  const auto* const running = std::get_if<Running>(&state_);
  std::vector<Tensor> made;
  std::exception_ptr thrown;
  try {
    try {
      const Call& call = workings_.call;
      made = is_captured() ? run_captured(call, inputs()) : call_step(call, inputs());
    } catch (const OutOfMemory& error) {
      if (running == nullptr || running->verified == nullptr) throw;
      return leave_unverified(*running->verified, error.message());
    }
  } catch (...) {
    if (!is_captured()) {
      fail();
      throw;
    }
    thrown = std::current_exception();
  }
  end_work(std::move(made), thrown);
}

void OpenCall::end() {
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
  end_work({}, nullptr);
}

// Whether the thread is in the work itself, and not in a function that it has called.
bool OpenCall::is_innermost() const noexcept {
  if (const auto* const capturing = std::get_if<Capturing>(&state_)) {
    return capturing->recording.is_current();
  }
  return std::get<Running>(state_).run.is_current();
}

// ---- Ending ----

void OpenCall::end_work(std::vector<Tensor> made, const std::exception_ptr& thrown) {
  is_ending_ = true;
  try {
    if (auto* const capturing = std::get_if<Capturing>(&state_)) {
      end_capturing(*capturing, std::move(made), thrown);
    } else if (Running& running = std::get<Running>(state_); running.verified != nullptr) {
      end_verifying(running, std::move(made));
    } else {
      end_running(running, std::move(made));
    }
  } catch (...) {
    fail();
    throw;
  }
  is_ending_ = false;
}

// A call that throws is a failure, and no replay. So a replay is counted after it was verified, and
// monitors never see a count fall.
void OpenCall::end_verifying(Running& running, std::vector<Tensor> made) {
  Node& node = *running.verified;
  try {
    made = running.run.complete(std::move(made));
  } catch (const OutOfMemory& error) {
    return leave_unverified(node, error.message());
  }
  running.run.finish(made);
  const std::unique_ptr<ReplayCheck> check = std::move(running.check);
  state_.emplace<Done>();
  workings_.verifier->compare(node, *check, outputs_.tensors(), made);
  count_replay(function_);
  finish();
}

void OpenCall::leave_unverified(Node& node, std::string_view what) {
  const std::string said(what);
  state_.emplace<Done>();
  workings_.verifier->leave_out(node, said);
  count_replay(function_);
  finish();
}

void OpenCall::end_running(Running& running, std::vector<Tensor> made) {
  KeyState* const key =
      running.reason && !running.failure ? nullptr : &function_.find_or_add(workings_.call);
  made = running.run.complete(std::move(made));
  workings_.attempts.settle(stopwatch_ ? &*stopwatch_ : nullptr);
  running.run.finish(made);
  hand_out(std::move(made), outputs_);
  if (running.reason) {
    count_skip(workings_, function_, *running.reason, running.announced);
    if (running.failure) count_capture_failure(workings_, *running.failure, function_, *key);
  } else {
    key->output_allocations = running.run.take_output_allocations();
    const std::vector<std::uint64_t> used = running.run.take_workspaces();
    if (!workings_.attempts.are_shared()) {
      key->workspaces = workings_.memory->workspaces_of(function_.id, used);
    }
    // Not if it has found that it must not be padded so.
    const AxisPlan* const axes = function_.axes.get();
    const CallAxes& sizes = workings_.call.axes();
    key->warmed_up = axes == nullptr || axes->may_pad_to(sizes.padded, sizes);
    count_warm_up(workings_, function_, *key, *stopwatch_);
    if (function_.axes != nullptr) {
      workings_.evictor.drop_sizes(function_, function_.axes->admit(workings_.call.axes()));
    }
  }
  note_sizes();
  finish();
}

void OpenCall::end_capturing(Capturing& capturing, std::vector<Tensor> made,
                             const std::exception_ptr& work_has_thrown) {
  const Decision decision = capturing.decision;
  std::optional<CaptureResult> result;
  std::exception_ptr thrown;
  try {
    result = capturing.recording.finish(std::move(made), work_has_thrown);
    if (workings_.memory->plain().is_open()) {
      workings_.door.note_shared_use(workings_.memory->plain());
    }
  } catch (const DeviceError&) {
    thrown = std::current_exception();
    if (capturing.recording.was_patch_refused() && workings_.pass->never_patch(function_)) {
      (void)workings_.memory->stream().graphs().take_last_error();
      state_.emplace<Done>();
      return begin_recording(decision);  // with copies
    }
  } catch (...) {
    thrown = std::current_exception();
  }
  if (thrown && !capturing.recording.was_refused_by_caller()) {
    result = failure_of(thrown, workings_.memory->stream().graphs());
  }
  Explanation why = std::move(capturing.why);
  settle(std::move(result), thrown, decision, std::move(why));
}

// If memory was short nothing has run yet, so the call is decided again.
void OpenCall::settle(std::optional<CaptureResult> result, const std::exception_ptr& thrown,
                      const Decision& decision, Explanation why) {
  state_.emplace<Done>();
  result = workings_.attempts.settle_capture(function_, workings_.call, std::move(result), thrown,
                                             *stopwatch_);
  if (!result) return decide_and_begin();
  if (auto* const failure = std::get_if<CaptureFailure>(&*result)) {
    return begin_in_place_of(std::move(*failure));
  }
  KeyState& key = function_.find_or_add(workings_.call);
  Recorded& recorded = std::get<Recorded>(*result);
  if (recorded.recording.runs_once) return end_run_once(recorded, key);
  recorded.recording.costs.record_us = stopwatch_->elapsed().count();
  keep(decision, key, recorded, std::move(why));
  note_sizes();
  finish();
}

// The step keeps what it has made, so that its launch stands for an eager run: what it keeps is
// filled, where an eager run after the capture would find it unfilled (docs/decisions/0039).
void OpenCall::end_run_once(Recorded& recorded, KeyState& key) {
  TakenDraws draws(recorded.recording);
  launch_further(recorded.recording, *workings_.memory, workings_.call.inputs());
  hand_out(std::move(recorded.outputs), outputs_);
  workings_.attempts.settle(nullptr);
  draws.keep();
  outcome_ = Outcome::kRunEagerly;
  if (recorded.why_once.empty()) recorded.why_once = why_kept(function_.name, 0);
  const CaptureFailure failure{Code::kUnknown, recorded.why_once, nullptr,
                               SkipReason::kKeepsTensor};
  expect_capture_failure(failure, function_, key);
  const AnnouncedSkip announced = announce_skip(workings_, function_, failure.reason);
  count_skip(workings_, function_, failure.reason, announced);
  count_capture_failure(workings_, failure, function_, key);
  note_sizes();
  finish();
}

// Runs what follows the first launch, and adds the recording to the tree, on all ranks of a group
// or on none. Others are evicted only now: a recording that fails, or that does not stay, must not
// cost another one.
void OpenCall::keep(const Decision& decision, KeyState& key, Recorded& recorded, Explanation why) {
  Tree& tree = workings_.tree;
  Evictor& evictor = workings_.evictor;
  CallObserver& events = *workings_.events;
  std::unique_ptr<Node> made;  // outlives the draws, which look at its recording
  TakenDraws draws(recorded.recording);
  const GraphFindings* const findings = recorded.recording.findings.get();
  for (const auto& [name, range] : workings_.memory->declared()->list()) {
    if (findings != nullptr && !findings->refers_to(range)) continue;
    recorded.recording.plain_uses.push_back({range});
  }
  launch_further(recorded.recording, *workings_.memory, workings_.call.inputs());
  hand_out(std::move(recorded.outputs), outputs_);
  made = tree.make_node(function_, key, recorded.recording, std::move(why), *workings_.memory);
  draws.moved_to(made->recording);
  workings_.attempts.settle(nullptr);
  draws.keep();
  forget_capture_failure(workings_, function_, key);
  const bool is_again = key.released == 0 && !key.nodes.empty();
  if (is_again && function_.precaptures.load(std::memory_order_relaxed) == 0) key.note_remake();
  Node& node = tree.add(std::move(made));
  count_static_changes(workings_, function_, node.why);
  ++function_.counters.recordings;
  function_.last_outcome.set(Outcome::kRecord);
  key.was_recorded = true;
  if (key.released > 0) --key.released;
  key.is_too_large = node.recording.costs.graph_bytes > workings_.limits.graph_bytes;
  if (!key.is_too_large) {
    if (decision.evict != nullptr && decision.reason != SkipReason::kGraphBytesLimit)
      evictor.evict(*decision.evict, decision.reason);
    evictor.keep_within_graph_bytes(node);
  }
  events.after({.kind = CallEvent::kRecord, .node = &node, .axes = &workings_.call.axes()});
  if (workings_.verifier != nullptr) workings_.verifier->watch(node);
  if (key.is_too_large) evictor.evict(node, SkipReason::kGraphBytesLimit);
  events.after({.kind = CallEvent::kCounters, .tree = &tree});
}

// A replay counts when it begins, and all else when it has succeeded, on all ranks of a group.
void OpenCall::note_sizes() noexcept {
  if (function_.axes == nullptr) return;
  function_.axes->note(workings_.call.axes(),
                       function_.precaptures.load(std::memory_order_relaxed) == 0,
                       /*is_padded=*/outcome_ != Outcome::kRunEagerly);
}

void OpenCall::finish() {
  state_.emplace<Done>();
  range_.reset();
  stopwatch_.reset();
  held_.reset();
  visit_.finish();
}

// Ends the range that is open, because what it shows has given place to something else.
void OpenCall::open_range(std::string_view what, std::uint64_t recording, const InputList* inputs,
                          std::optional<SkipReason> reason) {
  range_.reset();
  range_ = workings_.events->open_range(what, function_, recording, inputs, reason);
}

}  // namespace cgtree
