// The life of a call, from the gate to its outputs: predict, decide, replay or else run or capture
// the work; then settle, keep and hand out.
#include "cgtree/tree/attempt.h"

#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "cgtree/record/outputs.h"
#include "cgtree/tree/ordering.h"
#include "cgtree/tree/outcomes.h"
#include "cgtree/tree/replay.h"
#include "interop/device/graph_api.h"

namespace cgtree {
namespace {

// Returns the predicted node if it fits, or null. Inlined: a replay decides nothing else.
[[gnu::always_inline]] inline Node* find_predicted(Engine& engine, Entry& entry,
                                                   FunctionState& function,
                                                   const InputList& inputs) {
  const Node& current = engine.tree.current();
  const ContextMemory& memory = *engine.memory;
  Node* node = predict(current, function, inputs, memory, graph_override());
  if (node == nullptr) [[unlikely]] {
    if (function.has_guards)
      node = predict<false, true>(current, function, inputs, memory, graph_override());
    if (node == nullptr && !inputs.key().empty())
      node = predict_by_key(function, inputs, memory, graph_override());
    if (node == nullptr && function.takes_lent) {
      const LentPrediction lent = predict_lent(current, function, inputs, memory, graph_override());
      if (lent.node != nullptr && entry.wait_for_producers(inputs, lent.known)) {
        wait_for_readers(engine, function, inputs);
      }
      node = lent.node;
    }
    if (node == nullptr)
      node = predict_sibling(current, function, inputs, memory, graph_override());
  }
  return node;
}

// Replays the recording that followed last time or, for a call with a key, the recording that the
// key used last, if it fits; returns whether it did. A steady loop does nothing else. Throws
// InvalidArgument for inputs without the function's axes, OutOfMemory, DeviceError, and exceptions
// of breaks.
[[gnu::always_inline]] inline bool replay_predicted(Engine& engine, Entry& entry,
                                                    FunctionState& function,
                                                    const InputList& inputs, TensorList& outputs) {
  AxisPlan* const plan = function.axes.get();
  CallAxes& axes = engine.present.axes();
  if (plan != nullptr) [[unlikely]] {
    plan->read(inputs, axes);
  }
  if (!entry.may_predict()) [[unlikely]] {
    return false;
  }
  entry.begin_predicted();
  engine.catch_up();
  if (plan == nullptr) [[likely]] {
    Node* const node = find_predicted(engine, entry, function, inputs);
    if (node == nullptr) [[unlikely]] {
      return false;
    }
    replay(engine, *node, inputs, outputs);
    return true;
  }
  if (plan->choose(axes).kind != AxisChoice::Kind::kSize) return false;
  const InputList padded = plan->pad(inputs, axes);
  Node* const node = find_predicted(engine, entry, function, padded);
  if (node == nullptr) return false;
  plan->note(axes, function.precaptures.load(std::memory_order_relaxed) == 0);
  replay(engine, *node, padded, outputs);
  return true;
}

// Replays, and orders the context with other streams afterwards. Counts an exception.
[[gnu::always_inline]] inline bool replay_in(Engine& engine, Entry& entry, FunctionState& function,
                                             const InputList& inputs, TensorList& outputs) {
  try {
    if (!replay_predicted(engine, entry, function, inputs, outputs)) [[unlikely]] {
      return false;
    }
    entry.finish();
    return true;
  } catch (...) {
    count_failure(engine, function);
    throw;
  }
}

}  // namespace

// ---- Entering ----

void Engine::call(FunctionState& function, const InputList& inputs, TensorList& outputs) {
  if (StepScope::active()) [[unlikely]] {
    return run_nested(function, inputs, outputs);
  }
  Entry entry(gate);
  if (!replay_in(*this, entry, function, inputs, outputs)) [[unlikely]] {
    run(entry, function, inputs, outputs);
  }
}

// Not inlined, so that replays do not reserve its stack space.
void Engine::run(Entry& entry, FunctionState& function, const InputList& inputs,
                 TensorList& outputs) {
  Attempt attempt(*this, entry, function, inputs, outputs);
  while (attempt.must_run())
    attempt.run();
}

bool Engine::replay_predicted(FunctionState& function, const InputList& inputs) {
  Entry entry(gate);
  TensorList none;
  return replay_in(*this, entry, function, inputs, none);
}

Attempt::Attempt(Engine& engine, Entry& entry, FunctionState& function, const InputList& inputs,
                 TensorList& outputs, CaptureMode mode, std::weak_ptr<const void> owner)
    : engine_(engine),
      memory_(*engine.memory),
      call_(engine.present),
      entry_(entry),
      function_(function),
      outputs_(outputs),
      mode_(mode),
      owner_(std::move(owner)) {
  try {
    enter(inputs);
  } catch (...) {
    fail();
    throw;
  }
}

void Attempt::enter(const InputList& inputs) {
  const StreamRef captured = entry_.ask_foreign_capture();
  if (!captured) {
    entry_.begin();
    memory_.let_go();
  }
  engine_.votes.begin_call();
  if (!captured && function_.is_callers_work && entry_.has_guest())
    refuse_guest(engine_, function_);
  engine_.catch_up();
  if (function_.axes != nullptr) function_.axes->read(inputs, call_.axes());
  call_.begin(function_, memory_, inputs);
  call_.check();
  if (function_.is_callers_work) check_apart(call_);
  if (captured) return join_capture(inputs, captured);
  function_.takes_lent = entry_.wait_for_producers(inputs);
  wait_for_readers(engine_, function_, inputs);
  decide();
}

// Must be called before code of the caller's runs, because that code may assign the variables that
// hold the inputs, and destroy the last handle of the context.
void Attempt::hold() {
  if (held_) return;
  engine_.gate.keep_context();
  held_.emplace(call_.inputs());
  call_.hold(*held_);
}

// ---- Deciding ----

void Attempt::decide() {
  decision_ = cgtree::decide(engine_.decision_input(function_), call_);
  if (decision_.outcome == Outcome::kReplay) {
    Node& node = *decision_.node;
    if (!call_.inputs().key().empty()) Tree::note_last_of_key(node);
    outcome_ = Outcome::kReplay;
    if (node.is_held_back) [[unlikely]] {
      return replay_held_back(node);
    }
    note_sizes();
    replay(engine_, node, call_.inputs(), outputs_);
    return finish();
  }
  hold();
  wait_for_neighbours(engine_, function_, call_.inputs());  // replays do this themselves
  engine_.votes.begin(decision_, function_, call_);
  switch (decision_.outcome) {
    case Outcome::kReplay:
      break;
    case Outcome::kWarmUp:
      return begin_warm_up();
    case Outcome::kRecord:
      stopwatch_.emplace(engine_.tree.spent.recording_time);
      return begin_capture();
    case Outcome::kRunEagerly:
      return begin_skip(decision_.reason, memory_.stream());
    case Outcome::kThrow:
      refuse(engine_, decision_, function_);
  }
}

// ---- Replaying ----

// If there is no memory for copies of the outputs, the call runs eagerly, because recordings may
// then be evicted to make room. In a group all ranks vote on it.
void Attempt::replay_held_back(Node& node) {
  const InputList& inputs = call_.inputs();
  std::optional<OutputCopies> copies;
  if (node.recording.copies_outputs()) {
    try {
      copies.emplace(memory_, inputs, node.recording.copies_of_outputs);
    } catch (const OutOfMemory&) {
    }
    if (!engine_.votes.agree(copies.has_value())) {
      copies.reset();
      hold();
      engine_.votes.begin({.reason = SkipReason::kPoolLimit}, function_, call_);
      return begin_skip(SkipReason::kPoolLimit, memory_.stream());
    }
  }
  note_sizes();
  const OutputCopies* const used = copies ? &*copies : nullptr;
  if (engine_.extensions.is_turn(node)) return replay_and_check(node, used);
  replay_watched(engine_, node, inputs, outputs_, used);
  finish();
}

// Replays, and has the work run again eagerly, to compare the two. A replay that cannot be verified
// is an ordinary one.
void Attempt::replay_and_check(Node& node, const OutputCopies* copies) {
  hold();
  const InputList& inputs = call_.inputs();
  wait_for_neighbours(engine_, function_, inputs, &node.recording);  // before memory is saved
  check_ = engine_.extensions.before_replay(node, call_);
  if (check_ == nullptr) {
    replay_watched(engine_, node, inputs, outputs_, copies);
    return finish();
  }
  launch_watched(engine_, node, inputs, outputs_, copies);
  TakenDraws draws(node.recording);
  engine_.votes.settle(nullptr);  // if it failed on a rank, all ranks verify the next replay
  draws.keep();
  begin_watched_replay(engine_, node);
  try {
    open_range("verify", node.id);
    check_->begin_eager_run();
    begin_run(memory_.stream(), check_->run_as(), &check_->draws());
  } catch (const OutOfMemory& error) {
    leave_unchecked(error.message());
  }
}

// ---- Running and capturing ----

void Attempt::begin_run(StreamRef stream, StepRun as, DrawHandler* draws) {
  OpenRun& run = state_.emplace<OpenRun>(memory_, call_, stream, as, draws);
  run.set_owner(owner_);
  if (engine_.votes.are_shared()) run.require_moves();
}

void Attempt::begin_warm_up() {
  open_range("warm_up", 0, &call_.inputs());
  stopwatch_.emplace(engine_.tree.spent.recording_time);
  memory_.begin_tracking();
  outcome_ = Outcome::kWarmUp;
  begin_run(memory_.stream(), StepRun::kWarmUp);
}

// Runs a call without a recording in the memory of its warm-ups, which recordings also use. Other
// memory would be needed in addition to theirs.
void Attempt::begin_skip(SkipReason reason, StreamRef stream) {
  close();
  stopwatch_.reset();
  const bool is_demand = function_.axes != nullptr && function_.axes->learns();
  if (is_demand && function_.options.require_graph) {  // refused, but a learner must hear of it
    outcome_ = Outcome::kRunEagerly;
    note_sizes();
  }
  skip_ = announce_skip(engine_, function_, reason);
  open_range("skip", 0, nullptr, reason);
  outcome_ = Outcome::kRunEagerly;
  const bool is_short = reason == SkipReason::kPoolLimit;
  if (is_short) memory_.begin_tracking();
  begin_run(stream, is_short ? StepRun::kWarmUp : StepRun::kEagerly);
}

void Attempt::begin_capture() {
  open_range("record", engine_.tree.next_id(), &call_.inputs());
  why_ = engine_.explain(decision_, function_);
  const KeyState& key = function_.find_or_add(call_);
  std::optional<CaptureResult> result;
  std::exception_ptr thrown;
  try {
    memory_.begin_tracking(engine_.options.outputs_lie_apart &&
                           lies_apart(decision_, call_, memory_));
    CaptureOn on = engine_.recorder.capture_on(function_, mode_);
    on.before_launch = engine_.votes.before_launch(function_, *stopwatch_);
    on.copies_outputs = decision_.copies;
    if (decision_.copies) key.copy_moved_inputs(call_);
    examination_ = engine_.extensions.examine(
        call_, decision_.copies ? decltype(key.output_allocations)() : key.output_allocations);
    on.examination = examination_.get();
    state_.emplace<OpenRecording>(memory_, call_, on, key.output_allocations);
    StepScope::current()->set_owner(owner_);
    outcome_ = Outcome::kRecord;
    return;
  } catch (const CaptureError& error) {  // the stream cannot be captured
    (void)memory_.stream().graphs().take_last_error();
    result = CaptureFailure{static_cast<Code>(error.code()), error.what()};
  } catch (...) {
    thrown = std::current_exception();
    result = failure_of(thrown, memory_.stream().graphs());
  }
  settle(std::move(result), thrown);
}

// An exception from a step function that is being captured only breaks the capture.
void Attempt::run() {
  std::vector<Tensor> made;
  std::exception_ptr thrown;
  try {
    try {
      made = is_captured() ? run_captured(call_, inputs()) : call_step(call_, inputs());
    } catch (const OutOfMemory& error) {
      if (check_ == nullptr) throw;
      return leave_unchecked(error.message());
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

void Attempt::end() {
  if (thread_ != std::this_thread::get_id())
    refuse_end(function_, "on another thread than its begin(): end it there");
  const auto* const capture = std::get_if<OpenRecording>(&state_);
  const bool is_innermost =
      capture != nullptr ? capture->is_current() : std::get<OpenRun>(state_).is_current();
  if (is_ending_ || !is_innermost) {
    refuse_end(function_,
               "inside a function that the step has called, such as that of an "
               "eager_break(): end it when that has returned");
  }
  end_work({}, nullptr);
}

void Attempt::end_work(std::vector<Tensor> made, const std::exception_ptr& thrown) {
  is_ending_ = true;
  try {
    if (auto* const capture = std::get_if<OpenRecording>(&state_)) {
      end_capture(*capture, std::move(made), thrown);
    } else if (OpenRun& run = std::get<OpenRun>(state_); check_ != nullptr) {
      end_check(run, std::move(made));
    } else {
      end_run(run, std::move(made));
    }
  } catch (...) {
    fail();
    throw;
  }
  is_ending_ = false;
}

// ---- Settling ----

// A call that throws counts as a failure and not as a replay. Therefore a replay is counted after
// it was verified, so that monitors never see a count fall.
void Attempt::end_check(OpenRun& run, std::vector<Tensor> made) {
  try {
    made = run.complete(std::move(made));
  } catch (const OutOfMemory& error) {
    return leave_unchecked(error.message());
  }
  run.finish(made);
  close();
  check_->compare(outputs_.tensors(), made);
  count_replay(function_);
  finish();
}

void Attempt::leave_unchecked(std::string_view what) {
  const std::string said(what);
  close();
  check_->leave_out(said);
  count_replay(function_);
  finish();
}

void Attempt::end_run(OpenRun& run, std::vector<Tensor> made) {
  KeyState* const key = skip_ && !failure_ ? nullptr : &function_.find_or_add(call_);
  made = run.complete(std::move(made));
  engine_.votes.settle(stopwatch_ ? &*stopwatch_ : nullptr);
  run.finish(made);
  hand_out(std::move(made), outputs_);
  if (skip_) {
    count_skip(engine_, function_, *skip_);
    if (failure_) count_capture_failure(engine_, *failure_, function_, *key);
  } else {
    key->output_allocations = run.take_output_allocations();
    key->note_warmed(run.take_guards());
    const std::vector<std::uint64_t> used = run.take_workspaces();
    if (!engine_.votes.are_shared()) key->workspaces = memory_.workspaces_of(function_.id, used);
    AxisPlan* const axes = function_.axes.get();
    const CallAxes& sizes = call_.axes();
    // Unless the run has shown that it must not be padded in this way.
    key->warmed_up = axes == nullptr || axes->may_pad_to(sizes.padded, sizes);
    count_warm_up(engine_, function_, *key, *stopwatch_);
    if (axes != nullptr) engine_.evictor.drop_sizes(function_, axes->admit(call_.axes()));
  }
  note_sizes();
  finish();
}

void Attempt::end_capture(OpenRecording& capture, std::vector<Tensor> made,
                          const std::exception_ptr& work_has_thrown) {
  std::optional<CaptureResult> result;
  std::exception_ptr thrown;
  try {
    result = capture.finish(std::move(made), work_has_thrown);
    if (memory_.plain().is_open()) engine_.gate.note_shared_use(memory_.plain());
  } catch (const DeviceError&) {
    thrown = std::current_exception();
    if (capture.was_patch_refused() && examination_->never_patch()) {
      (void)memory_.stream().graphs().take_last_error();
      close();
      return begin_capture();  // with copies
    }
  } catch (...) {
    thrown = std::current_exception();
  }
  if (thrown && !capture.was_refused_by_caller()) {
    result = failure_of(thrown, memory_.stream().graphs());
  }
  if (result && std::holds_alternative<ServedByEarlier>(*result)) {
    if (KeyState& key = function_.find_or_add(call_); key.released > 0) --key.released;
    close();
    return decide();
  }
  settle(std::move(result), thrown);
}

// If memory was short, no work has run yet, and the call is decided again.
void Attempt::settle(std::optional<CaptureResult> result, const std::exception_ptr& thrown) {
  close();
  result = engine_.votes.settle_capture(function_, call_, std::move(result), thrown, *stopwatch_);
  if (!result) return decide();
  KeyState& key = function_.find_or_add(call_);
  if (auto* const failure = std::get_if<CaptureFailure>(&*result)) {
    expect_capture_failure(*failure, function_, key);
    begin_skip(failure->reason, memory_.stream());
    failure_ = std::move(*failure);
    return;
  }
  Recorded& recorded = std::get<Recorded>(*result);
  const std::size_t bytes = recorded.recording.costs.graph_bytes;
  key.is_too_large = function_.options.keeps_allocations && bytes > engine_.limits.graph_bytes;
  if (key.is_too_large)
    recorded.why_once = str_format("its graph takes {} bytes, more than max_graph_bytes", bytes);
  if (recorded.recording.runs_once || key.is_too_large) {
    end_run_once(recorded, key);
  } else {
    recorded.recording.costs.record_us = stopwatch_->elapsed().count();
    keep(key, recorded);
  }
  note_sizes();
  finish();
}

// Launches a graph only once. One cause is a step that keeps a tensor that it made: this launch is
// the eager run that fills the tensor, and an eager run after the capture would find it unfilled
// (docs/decisions/0039). The other cause is a graph that exceeds the limit. Memory that the step
// leaves allocated is the caller's, as after an eager run.
void Attempt::end_run_once(Recorded& recorded, KeyState& key) {
  TakenDraws draws(recorded.recording);
  launch_further(recorded.recording, memory_, call_.inputs());
  if (recorded.why_once.empty()) recorded.why_once = why_kept(function_.name, 0);
  const CaptureFailure failure{
      Code::kUnknown, recorded.why_once, nullptr,
      key.is_too_large ? SkipReason::kGraphBytesLimit : SkipReason::kKeepsTensor};
  expect_capture_failure(failure, function_, key);
  hand_out(std::move(recorded.outputs), outputs_);
  engine_.votes.settle(nullptr);
  draws.keep();
  outcome_ = Outcome::kRunEagerly;
  *recorded.recording.frees_left = false;
  count_skip(engine_, function_, announce_skip(engine_, function_, failure.reason));
  count_capture_failure(engine_, failure, function_, key);
}

// Runs the breaks after the first launch, and adds the recording to the tree: on all ranks of a
// group or on none. Evicts others only now: a recording that fails, or is not kept, must not cost
// another.
void Attempt::keep(KeyState& key, Recorded& recorded) {
  std::unique_ptr<Node> made;  // outlives the draws, which refer to its recording
  TakenDraws draws(recorded.recording);
  note_declared_uses(recorded.recording, memory_);
  launch_further(recorded.recording, memory_, call_.inputs());
  hand_out(std::move(recorded.outputs), outputs_);
  made = engine_.tree.make_node(function_, key, recorded.recording, std::move(why_), memory_);
  draws.moved_to(made->recording);
  engine_.votes.settle(nullptr);
  draws.keep();
  forget_capture_failure(engine_, function_, key);
  add_recording(engine_, key, std::move(made), decision_);
}

void Attempt::finish() {
  close();
  check_.reset();
  range_.clear();
  stopwatch_.reset();
  held_.reset();
  entry_.finish();
}

}  // namespace cgtree
