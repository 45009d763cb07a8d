// Takes a call from its inputs to its outputs: replays, warms up, records or runs it eagerly.
#include "cgtree/tree/tree_manager.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "cgtree/record/breaks.h"
#include "cgtree/record/outputs.h"
#include "cgtree/record/step.h"
#include "interop/exchange/stream_synchronization.h"

namespace cgtree {
namespace {

void hand_out(std::vector<Tensor> made, TensorList& outputs) {
  outputs.begin(made.size());
  for (Tensor& tensor : made)
    outputs.add(std::move(tensor));
}

// Returns n of CGTREE_VERIFY=n in the environment; 0 without it.
std::size_t verify_every_of_environment() {
  const char* const text = std::getenv("CGTREE_VERIFY");
  if (text == nullptr || *text == '\0') return 0;
  std::size_t every = 0;
  const char* const end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, every);
  if (error == std::errc() && rest == end) return every;
  throw InvalidArgument(fmt::format(
      "CGTREE_VERIFY is \"{}\" in the environment, and a whole number is expected: n to "
      "verify every n-th replay of each recording, 0 to verify none",
      text));
}

// Says which copies are dear, and what became of inputs that may be rebound.
void add_notes(const Decision& decision, const Call& call, Explanation& why) {
  std::vector<std::uint32_t> rebound;
  std::vector<std::string> notes;
  if (decision.node != nullptr) {
    for (const RebindChoice& choice : decision.node->recording.rebinds) {
      if (choice.is_rebound) rebound.push_back(choice.input);
      notes.push_back(
          choice.is_rebound
              ? fmt::format("{} is rebound in {} nodes", call.describe(choice.input), choice.nodes)
              : fmt::format("{} is not rebound: {}", call.describe(choice.input), choice.why));
    }
  }
  why.notes = call.notes_on_copies(rebound);
  why.notes.insert(why.notes.end(), notes.begin(), notes.end());
  if (decision.node == nullptr) return;
  notes = notes_on_outputs(call, decision.node->recording);
  why.notes.insert(why.notes.end(), notes.begin(), notes.end());
}

// In a group, addresses in the pools must be a function of the requests alone: not of what other
// contexts have left in the device's cache.
ContextOptions complete(Device device, ContextOptions options) {
  if (options.verify_every == 0) options.verify_every = verify_every_of_environment();
  const bool maps_memory = device_api(device).virtual_memory() != nullptr;
  if (options.group != nullptr && maps_memory && options.segments == nullptr) {
    options.pools_grow_in_place = true;
  }
  return options;
}

}  // namespace

TreeManager::TreeManager(Device device, ContextOptions options)
    : options_(complete(device, std::move(options))),
      memory_(new ContextMemory(device, options_)),
      has_graphs_(memory_->stream().api().graphs() != nullptr),
      limits_{options_.max_recordings, options_.at_limit, options_.max_graph_bytes,
              options_.max_recording_time},
      events_(options_, *memory_),
      watches_replays_((options_.event_file_has_replays && !options_.event_file.empty()) ||
                       options_.verify_every > 0 || events_.is_profiled()),
      door_(memory_->streams(), *memory_,
            [this] {
              drop_released();
              drop_stale();
              return Door::Leftovers(tree_.drop_removed().release(), [](void* functions) {
                delete static_cast<FunctionState*>(functions);
              });
            }),
      recorder_(*memory_, options_),
      evictor_(tree_, *memory_, events_, limits_),
      attempts_(options_, tree_, *memory_, evictor_),
      verifier_(options_.verify_every, tree_, *memory_, events_, attempts_) {
  memory_->set_reclaim([this](std::size_t needed) { return give_back(needed); });
  memory_->set_on_kept_end([this] { door_.note_upkeep(); });
}

TreeManager::~TreeManager() {
  memory_->set_reclaim(nullptr);
  (void)memory_->release_captured(std::nullopt);
}

FunctionState& TreeManager::add_function(std::string name, StepFunction step,
                                         CompileOptions options) {
  const Visit visit(door_);
  FunctionState& function =
      tree_.add_function(std::move(name), std::move(step), std::move(options));
  memory_->set_function_name(function.id, function.name);
  return function;
}

void TreeManager::remove_function(FunctionState& function) noexcept {
  memory_->retire_function_name(function.id);
  Tree::request_removal(function);
  door_.request_upkeep();
}

void TreeManager::call(FunctionState& function, const InputList& inputs, TensorList& outputs) {
  if (StepScope::active()) return run_nested(function, inputs, outputs);
  Visit visit(door_);
  try {
    call_inside(visit, function, inputs, outputs);
    visit.finish();
  } catch (...) {
    attempts_.leave(std::current_exception());
    count_failure(function);
    throw;
  }
}

// Requires: an exception is being handled.
void TreeManager::count_failure(FunctionState& function) noexcept {
  ++function.counters.failures;
  function.last_outcome.set(Explanation::Outcome::kThrow);
  try {
    throw;
  } catch (const StaleTensor& error) {  // it tells the caller all there is to know
    events_.failure(function, error.what(), LogLevel::kDebug);
  } catch (const DeviceError& error) {
    events_.failure(function, error.what());
    drop_refused(function);
  } catch (const std::exception& error) {
    events_.failure(function, error.what());
  } catch (...) {
    events_.failure(function, "an exception of unknown type");
  }
}

// Returns the node that was predicted and fits, or null. Inlined, because it is all that a replay
// decides.
[[gnu::always_inline]] inline Node* TreeManager::find_predicted(Visit& visit,
                                                                FunctionState& function,
                                                                const InputList& inputs) {
  Node* node = predict(tree_.current(), function, inputs, *memory_, graph_override());
  if (node == nullptr) [[unlikely]] {
    if (!inputs.key().empty()) node = predict_by_key(function, inputs, *memory_, graph_override());
    if (node == nullptr && function.takes_lent) {
      const LentPrediction lent =
          predict_lent(tree_.current(), function, inputs, *memory_, graph_override());
      if (lent.node != nullptr && visit.wait_for_producers(inputs, lent.known)) {
        wait_for_readers(function, inputs);
      }
      node = lent.node;
    }
  }
  return node;
}

void TreeManager::call_inside(Visit& visit, FunctionState& function, const InputList& inputs,
                              TensorList& outputs) {
  AxisPlan* const plan = function.axes.get();
  if (plan != nullptr) [[unlikely]] {
    plan->read(inputs, call_.axes());
  }
  if (const StreamRef captured = visit.foreign_capture()) [[unlikely]] {
    return call_captured(function, inputs, outputs, captured);
  }
  visit.begin();
  if (memory_->streams().has_readers()) [[unlikely]] {
    wait_for_readers(function, inputs);
  }
  catch_up();
  if (plan == nullptr) [[likely]] {
    if (Node* const node = find_predicted(visit, function, inputs)) [[likely]] {
      return replay(*node, inputs, outputs);
    }
  } else if (plan->choose(call_.axes()).kind == AxisChoice::Kind::kSize) {
    const InputList padded = plan->pad(inputs, call_.axes());
    if (Node* const node = find_predicted(visit, function, padded)) [[likely]] {
      plan->note(call_.axes(), function.precaptures.load(std::memory_order_relaxed) == 0);
      return replay(*node, padded, outputs);
    }
  }
  if (const StreamRef captured = visit.ask_foreign_capture()) [[unlikely]] {
    return call_captured(function, inputs, outputs, captured);
  }
  call_.begin(function, *memory_, inputs);
  call_.check();
  function.takes_lent = visit.wait_for_producers(inputs);
  if (function.takes_lent) wait_for_readers(function, inputs);
  const Decision decision = decide(situation(function), call_);
  const auto note = [&] {
    plan->note(call_.axes(), function.precaptures.load(std::memory_order_relaxed) == 0);
  };
  // A replay counts when it begins, and all else when it has succeeded, on all ranks of a group.
  const bool is_replay = decision.action == Decision::Action::kReplay;
  if (plan != nullptr && is_replay) note();
  act_on(decision, function, outputs);
  if (plan == nullptr || is_replay) return;
  if (decision.action == Decision::Action::kWarmUp) {
    evictor_.drop_sizes(function, plan->admit(call_.axes()));
  }
  note();
}

// The step becomes part of a graph of the caller's, which uses the same memory at each launch.
void TreeManager::call_captured(FunctionState& function, InputList inputs, TensorList& outputs,
                                StreamRef captured) {
  const HeldInputs held = hold(inputs);
  call_.begin(function, *memory_, held.list());
  call_.check();
  const std::uint64_t capture = capture_of(captured);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    const StorageRef& storage = inputs[i].storage();
    memory_->hold_for_capture(capture, storage);
    if (storage->domain() != memory_.get()) storage->owner().used(*storage, captured);
  }
  skip(function, SkipReason::kForeignCapture, outputs, captured);
}

// What the call writes in place must have been read by then.
void TreeManager::wait_for_readers(const FunctionState& function, const InputList& inputs) {
  const std::vector<InputOptions>& options = function.options.inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool is_written = inputs.is_buffer(i) || (i < options.size() && options[i].is_mutated);
    if (!is_written || !inputs[i].defined()) continue;
    const Storage& storage = *inputs[i].storage();
    if (storage.domain() == memory_.get()) {
      memory_->streams().wait_for_readers(storage);
    } else if (storage.domain() != nullptr) {
      storage.owner().order_readers_before(storage, memory_->stream());
    }
  }
}

// The outer step's recording includes the work, and the outer step's pool the outputs. The
// context's own call_ may be in progress.
void TreeManager::run_nested(FunctionState& function, InputList inputs, TensorList& outputs) {
  if (StepScope::innermost() != memory_.get()) {
    throw InvalidArgument(fmt::format(
        "'{}' belongs to one context, and is called inside a step function of another, whose "
        "stream and memory it would use: compile it in that context too, or call it before or "
        "after",
        function.name));
  }
  const std::shared_ptr<const void> owner = StepScope::current()->owner();
  const HeldInputs held(inputs);
  const Call call(function, *memory_, held.list());
  call.check();
  const BreakScope none(nullptr);
  hand_out(run_step(call, *memory_), outputs);
  if (StepScope::current()->allocations().is_verification) return;
  function.counters.nested_calls.fetch_add(1, std::memory_order_relaxed);
  function.last_outcome.set_skipped(SkipReason::kNestedCall);
}

// Must be called before code of the caller's runs, which may assign the variables that the inputs
// came from, and destroy the last handle of the context.
HeldInputs TreeManager::hold(const InputList& inputs) {
  door_.keep(weak_from_this().lock());
  return HeldInputs(inputs);
}

// Brings the tree up to date with what happened since the last call. This is done before anything
// is decided, so that a call that fails half-way has nothing to undo.
void TreeManager::catch_up() {
  if (!tree_.is_at_root() && !memory_->any_output_live()) tree_.go_to_root();
  tree_.learn_conflicts(*memory_);
}

Situation TreeManager::situation(const FunctionState& function) const {
  return {tree_, function, *memory_, limits_, has_graphs_, graph_override()};
}

void TreeManager::act_on(const Decision& decision, FunctionState& function, TensorList& outputs) {
  if (decision.action == Decision::Action::kReplay) {
    if (!call_.inputs().key().empty()) Tree::note_last_of_key(*decision.node);
    if (decision.node->is_held_back) [[unlikely]] {
      return verify(*decision.node, outputs);
    }
    return replay(*decision.node, call_.inputs(), outputs);
  }
  const HeldInputs held = hold(call_.inputs());
  call_.hold(held);
  attempts_.begin(decision, function, call_);
  switch (decision.action) {
    case Decision::Action::kReplay:
      break;
    case Decision::Action::kWarmUp:
      return warm_up(function, outputs);
    case Decision::Action::kRecord:
      return record(decision, function, outputs);
    case Decision::Action::kSkip:
      return skip(function, decision.reason, outputs, memory_->stream());
    case Decision::Action::kThrow:
      refuse(decision, function);
  }
}

inline void TreeManager::count_replay(FunctionState& function) noexcept {
  ++function.counters.replays;
  function.last_outcome.set(Explanation::Outcome::kReplay);
}

void TreeManager::replay(Node& node, const InputList& inputs, TensorList& outputs) {
  if (watches_replays_ || log_enabled(LogLevel::kTrace)) [[unlikely]] {
    begin_replay(node);
    verifier_.watch(node);
    launch_watched(node, inputs, outputs);
  } else {
    begin_replay(node);
    launch_replay(node, inputs, outputs);
  }
  count_replay(*node.function);
}

// What is decided in later calls knows of the replay from here on, whatever comes of it: in a group
// it may throw on one rank, and the others do not hear of it.
inline void TreeManager::begin_replay(Node& node) noexcept {
  tree_.follow(node);
  tree_.go_to(node);
  ++node.recording.costs.replays;
}

// Inlined, because a replay that is not watched is to cost no call for those that are.
[[gnu::always_inline]] inline void TreeManager::launch_replay(Node& node, const InputList& inputs,
                                                              TensorList& outputs) {
  Recording& recording = node.recording;
  ContextMemory& memory = *memory_;
  memory.end_tracking();
  const bool patched = bind(recording, inputs);
  TakenDraws draws(recording);
  memory.streams().wait_for_due();
  const Code code = launch(recording, memory.stream());
  if (!ok(code)) [[unlikely]] {
    draws.give_back();
    refuse_launch(node, code);
  }
  if (recording.has_runs) {
    recording.statics.learn(recording.inputs, inputs, recording.device);
    recording.copies.learn(recording.inputs, inputs, recording.device,
                           /*are_others=*/!patched && !recording.has_bound_copies);
  }
  if (!recording.further.empty()) [[unlikely]] {
    call_breaks_of_replay(node, inputs, outputs);
  } else {
    make_outputs(recording, node.function->id, memory, inputs, outputs);
  }
  draws.keep();
  recording.costs.patches += patched;
}

// No other replay runs code of the caller's, so that no other needs to hold its inputs.
[[gnu::noinline]] void TreeManager::call_breaks_of_replay(Node& node, const InputList& inputs,
                                                          TensorList& outputs) {
  const HeldInputs held = hold(inputs);
  call_breaks(node.recording, *memory_, held.list());
  make_outputs(node.recording, node.function->id, *memory_, held.list(), outputs);
}

[[gnu::noinline]] void TreeManager::launch_watched(Node& node, const InputList& inputs,
                                                   TensorList& outputs) {
  const bool has_key = !inputs.key().empty();
  const auto begin = std::chrono::steady_clock::now();
  {
    const ProfilerRange range(events_.is_profiled(), node.id, "replay {}{}{}", node.function->name,
                              has_key ? " " : "", inputs.key());
    launch_replay(node, inputs, outputs);
  }
  events_.replay(node, call_.axes(), std::chrono::steady_clock::now() - begin);
}

// Replays, and compares with an eager run. A call that throws is a failure, and no replay. It is
// counted after that is known, so that monitors never see a count fall.
void TreeManager::verify(Node& node, TensorList& outputs) {
  const HeldInputs held = hold(call_.inputs());
  call_.hold(held);
  const std::unique_ptr<ReplayCheck> check = replay_to_verify(node, outputs);
  if (check == nullptr) return;
  {
    const ProfilerRange range(events_.is_profiled(), node.id, "verify {}", node.function->name);
    verifier_.begin(node);
    verifier_.compare(node, *check, outputs.tensors());
  }
  count_replay(*node.function);
}

// Replays. Returns what compares the replay with an eager run, after which it is to be counted; or
// null if it cannot be verified, and was counted. Requires: the inputs of the call are held.
std::unique_ptr<ReplayCheck> TreeManager::replay_to_verify(Node& node, TensorList& outputs) {
  std::unique_ptr<ReplayCheck> check = verifier_.prepare(node, call_);
  if (check == nullptr) {
    replay(node, call_.inputs(), outputs);
    return nullptr;
  }
  launch_watched(node, call_.inputs(), outputs);
  TakenDraws draws(node.recording);
  attempts_.settle(nullptr);  // if it has failed on a rank, all verify the next one instead
  draws.keep();
  begin_replay(node);
  verifier_.watch(node);
  return check;
}

// What the device has refused to patch twice it may refuse for good: the next call copies. In a
// group nothing is rebound, and all ranks keep what they have.
void TreeManager::drop_refused(const FunctionState& function) {
  if (attempts_.are_shared()) return;
  for (std::size_t i = tree_.nodes().size(); i-- > 0;) {
    Node& node = *tree_.nodes()[i];
    if (node.function != &function || node.recording.refused_patches < 2) continue;
    recorder_.never_rebind(function);
    events_.drop(node, "the device has refused to patch it twice");
    tree_.drop(node);
  }
}

// What the device has refused twice it may refuse for good: the next call records anew.
void TreeManager::refuse_launch(Node& node, Code code) {
  const std::string what = fmt::format("replay '{}' (node {})", node.function->name, node.id);
  if (!attempts_.are_shared() && ++node.recording.refused_launches == 2) {
    events_.drop(node, "the device has refused to launch it twice");
    tree_.drop(node);
  }
  throw_code(code, what);
}

void TreeManager::warm_up(FunctionState& function, TensorList& outputs) {
  const ProfilerRange range(events_.is_profiled(), 0, "warm_up {}{}", function.name, key_text());
  Stopwatch stopwatch(tree_.spent.recording_time);
  KeyState& key = function.find_or_add(call_);
  Recorder::WarmUp result = recorder_.warm_up(call_, [&] { attempts_.settle(&stopwatch); });
  key.output_allocations = std::move(result.output_allocations);
  key.warmed_up = true;
  hand_out(std::move(result.outputs), outputs);
  count_warm_up(function, key, stopwatch);
}

void TreeManager::count_warm_up(FunctionState& function, const KeyState& key,
                                const Stopwatch& stopwatch) {
  ++function.counters.warm_ups;
  function.last_outcome.set(Explanation::Outcome::kWarmUp);
  events_.warm_up(function, key, call_.axes(), stopwatch.elapsed());
  events_.counters(tree_);
}

void TreeManager::record(const Decision& decision, FunctionState& function, TensorList& outputs) {
  const ProfilerRange range(events_.is_profiled(), tree_.next_id(), "record {}{}", function.name,
                            key_text());
  Stopwatch stopwatch(tree_.spent.recording_time);
  Explanation why = cgtree::explain(decision, situation(function), call_);
  KeyState& key = function.find_or_add(call_);
  std::optional<CaptureResult> result;
  std::exception_ptr thrown;
  try {
    result = recorder_.record(call_, key.output_allocations,
                              attempts_.before_launch(function, stopwatch));
  } catch (...) {
    thrown = std::current_exception();
  }
  result = attempts_.settle_capture(function, call_, std::move(result), thrown, stopwatch);
  if (!result) return act_on(decide(situation(function), call_), function, outputs);
  if (auto* recorded = std::get_if<Recorded>(&*result)) {
    recorded->recording.costs.record_us = stopwatch.elapsed().count();
    return keep(decision, function, key, *recorded, std::move(why), outputs);
  }
  if (const auto* failure = std::get_if<CaptureFailure>(&*result)) {
    return run_in_place_of(*failure, function, key, outputs);
  }
  key.is_too_small = true;
  key.too_few_nodes = std::get<TooSmall>(*result).nodes;
  skip(function, SkipReason::kTooSmall, outputs, memory_->stream());
}

// Runs a call eagerly whose capture has failed. The failure counts only if that succeeds: what the
// step function throws in any case is no matter of captures.
void TreeManager::run_in_place_of(const CaptureFailure& failure, FunctionState& function,
                                  KeyState& key, TensorList& outputs) {
  expect_capture_failure(failure, function, key);
  skip(function, SkipReason::kCaptureFailed, outputs, memory_->stream());
  count_capture_failure(failure, function, key);
}

void TreeManager::expect_capture_failure(const CaptureFailure& failure,
                                         const FunctionState& function, KeyState& key) const {
  std::string what = fmt::format("capture of '{}' failed: {}", function.name, failure.what);
  if (function.options.require_graph) {
    if (failure.thrown) std::rethrow_exception(failure.thrown);
    throw CaptureError(static_cast<int>(failure.code), what);
  }
  key.capture_failure = std::move(what);
}

void TreeManager::count_capture_failure(const CaptureFailure& failure, FunctionState& function,
                                        KeyState& key) {
  key.note_failed_capture(breaks_capture_rules(failure.code));
  tree_.set_capture_failure(function, key.capture_failure);
}

// Runs what follows the first launch, and adds the recording to the tree, on all ranks of a group
// or on none. Others are evicted only now: a recording that fails, or that does not stay, must not
// cost another one.
void TreeManager::keep(const Decision& decision, FunctionState& function, KeyState& key,
                       Recorded& recorded, Explanation why, TensorList& outputs) {
  std::unique_ptr<Node> made;  // outlives the draws, which look at its recording
  TakenDraws draws(recorded.recording);
  launch_further(recorded.recording, *memory_, call_.inputs());
  hand_out(std::move(recorded.outputs), outputs);
  made = tree_.make_node(function, key, recorded.recording, std::move(why), *memory_);
  draws.moved_to(made->recording);
  attempts_.settle(nullptr);
  draws.keep();
  forget_capture_failure(function, key);
  Node& node = tree_.add(std::move(made));
  count_static_changes(function, node.why);
  ++function.counters.recordings;
  function.last_outcome.set(Explanation::Outcome::kRecord);
  const RecordingCosts costs = node.recording.costs;
  key.was_recorded = true;
  if (key.released > 0) --key.released;
  key.is_too_large = costs.graph_bytes > limits_.graph_bytes;
  if (!key.is_too_large) {
    if (decision.evict != nullptr) evictor_.evict(*decision.evict, decision.reason);
    evictor_.keep_within_graph_bytes(node);
  }
  events_.record(node, call_.axes());
  events_.foreign_pointers(node);
  tell_of_outputs(node);
  verifier_.watch(node);
  if (costs.step_nodes == 0 && !std::exchange(function.warned_of_nothing, true)) {
    events_.launched_nothing(function);
  }
  if (key.is_too_large) evictor_.evict(node, SkipReason::kGraphBytesLimit);
  events_.counters(tree_);
}

// Warns once of an output that is handed out with the padded size, and of outputs that are held for
// want of mark_step().
void TreeManager::tell_of_outputs(const Node& node) {
  FunctionState& function = *node.function;
  if (!function.warned_of_unsliced) {
    const std::vector<std::string> notes = notes_on_outputs(call_, node.recording);
    if (!notes.empty()) {
      function.warned_of_unsliced = true;
      events_.unsliced_output(function, notes.front());
    }
  }
  // Loops that hold what they need settle on fewer.
  constexpr std::size_t kManyForHeld = 12;
  const std::vector<Mismatch>& why = node.why.mismatches;
  const bool is_for_held = !why.empty() && why.front().kind == Mismatch::Kind::kFootprint;
  if (!is_for_held || memory_->generation() > 0 || function.precaptures.load() > 0) return;
  if (++function.made_for_held == kManyForHeld) events_.held_outputs(node);
}

void TreeManager::forget_capture_failure(FunctionState& function, KeyState& key) {
  key.forget_failed_captures();
  if (key.capture_failure.empty()) return;
  if (function.capture_failure == key.capture_failure) tree_.set_capture_failure(function, "");
  key.capture_failure.clear();
}

// Counts the moves of static inputs that have cost a recording for which nothing else called.
void TreeManager::count_static_changes(FunctionState& function, const Explanation& why) {
  const bool only_moves = std::ranges::all_of(why.mismatches, [](const Mismatch& mismatch) {
    return mismatch.kind == Mismatch::Kind::kStaticAddress;
  });
  if (!only_moves) return;
  for (const Mismatch& mismatch : why.mismatches) {
    const std::uint32_t i = mismatch.input;
    if (function.static_changes.size() <= i) function.static_changes.resize(i + 1, 0);
    ++function.static_changes[i];
    const bool is_too_often = function.static_changes[i] >= function.options.max_static_changes;
    if (function.options.on_static_change != OnStaticChange::kDemote || !is_too_often ||
        function.is_demoted(i)) {
      continue;
    }
    if (function.demoted.size() <= i) function.demoted.resize(i + 1, false);
    function.demoted[i] = true;
    events_.demote(function, mismatch);
  }
}

void TreeManager::refuse(const Decision& decision, const FunctionState& function) const {
  const Explanation why = cgtree::explain(decision, situation(function), call_);
  if (decision.reason == SkipReason::kAboveLargestBucket) {
    throw InvalidArgument(fmt::format("'{}': {}", function.name, why.detail));
  }
  if (decision.reason == SkipReason::kMutatedInput) {
    const Tensor& input = call_.inputs()[call_.find_unwanted_write().value_or(0)];
    throw InvalidArgument(fmt::format(
        "'{}' writes into {}, which is neither static nor an output of this context, and "
        "OnMutatedInput::kReject forbids that: it is {} at {:#x}",
        function.name, why.detail, describe(input), input.address()));
  }
  throw CaptureError(static_cast<int>(Code::kStreamCaptureUnsupported),
                     fmt::format("'{}' cannot be graphed: {}", function.name, to_string(why)));
}

void TreeManager::skip(FunctionState& function, SkipReason reason, TensorList& outputs,
                       StreamRef stream) {
  const ProfilerRange range(events_.is_profiled(), 0, "skip {}: {}", function.name, name(reason));
  const AnnouncedSkip announced = announce_skip(function, reason);
  std::vector<Tensor> made = run_eagerly(function, stream);
  hand_out(std::move(made), outputs);
  count_skip(function, reason, announced);
}

// Returns what the call is keyed by, for a profiler; "" without one.
std::string TreeManager::key_text() const {
  if (!events_.is_profiled()) return {};
  return fmt::format("; {}", Signature(call_.inputs()).to_string());
}

void TreeManager::count_skip(FunctionState& function, SkipReason reason,
                             const AnnouncedSkip& announced) noexcept {
  if (reason == SkipReason::kCaptureFailed) {
    if (KeyState* const key = function.find(call_)) key->note_rest();
  }
  ++function.counters.skips_for(reason);
  function.last_outcome.set_skipped(reason);
  events_.skip(function, announced);
  if (announced.why) events_.counters(tree_);
}

// Throws if the function requires a graph; else tells the log, and events.
AnnouncedSkip TreeManager::announce_skip(FunctionState& function, SkipReason reason) {
  if (function.options.require_graph) {
    const std::string detail = detail_of(reason, situation(function), call_);
    throw CaptureError(static_cast<int>(Code::kStreamCaptureUnsupported),
                       fmt::format("'{}' requires a graph, but would be skipped ({}): {}{}{}; {}",
                                   function.name, name(reason), cgtree::explain(reason),
                                   detail.empty() ? "" : "; ", detail, advice(reason)));
  }
  const std::uint64_t bit = std::uint64_t{1} << static_cast<int>(reason);
  const bool is_asked_for = reason == SkipReason::kDisabled || reason == SkipReason::kNoGraphScope;
  const bool warns = (function.warned & bit) == 0 && !is_asked_for;
  function.warned |= bit;
  AnnouncedSkip announced;
  if (!events_.tells_skip(warns)) return announced;
  const Decision decision{.reason = reason};
  announced.why = cgtree::explain(decision, situation(function), call_);
  events_.announce_skip(function, *announced.why, warns);
  return announced;
}

std::vector<Tensor> TreeManager::run_eagerly(FunctionState& function, StreamRef stream) {
  StepScope scope(*memory_, stream, StepAllocations::Kind::kEager);
  const AxisLengths lengths(call_, *memory_, /*records=*/false);
  const BreaksAtOnce breaks(call_, scope.allocations());
  std::vector<Tensor> made = run_step(call_, *memory_);
  lengths.check_not_returned(made);
  check_output_axes(function, made, call_.axes().actual);
  attempts_.settle(nullptr);
  scope.finish();
  return made;
}

std::size_t TreeManager::release_captured(std::optional<std::uint64_t> capture) {
  const Visit visit(door_);
  return memory_->release_captured(capture);
}

void TreeManager::mark_step() {
  const Visit visit(door_);
  if (memory_->mark_step()) drop_stale();
  tree_.go_to_root();
}

void TreeManager::keep_across_steps(const Tensor& tensor) {
  const Visit visit(door_);
  if (!tensor.defined()) throw InvalidArgument("keep() of a null tensor");
  memory_->keep_across_steps(*tensor.storage());
}

// Drops the recordings that read or write an output of a generation that has ended, of this context
// or of another one.
void TreeManager::drop_stale() noexcept {
  for (std::size_t i = tree_.nodes().size(); i-- > 0;) {
    Node& node = *tree_.nodes()[i];
    if (!node.recording.kept.any_stale()) continue;
    events_.drop(node, "mark_step() has ended an output that it uses and that is no input");
    tree_.drop(node);
  }
}

bool TreeManager::replay_predicted(FunctionState& function, const InputList& inputs) {
  Visit visit(door_);
  if (visit.foreign_capture()) [[unlikely]] {
    return false;
  }
  try {
    visit.begin();
    catch_up();
    AxisPlan* const plan = function.axes.get();
    InputList seen = inputs;
    if (plan != nullptr) [[unlikely]] {
      plan->read(inputs, call_.axes());
      if (plan->choose(call_.axes()).kind != AxisChoice::Kind::kSize) return false;
      seen = plan->pad(inputs, call_.axes());
    }
    const GraphOverride override = graph_override();
    Node* node = predict(tree_.current(), function, seen, *memory_, override);
    if (node == nullptr) node = predict_by_key(function, seen, *memory_, override);
    if (node == nullptr) [[unlikely]] {
      return false;
    }
    TensorList none;
    if (plan != nullptr) plan->note(call_.axes(), /*counts=*/true);
    replay(*node, seen, none);
    visit.finish();
    return true;
  } catch (...) {
    count_failure(function);
    throw;
  }
}

std::size_t TreeManager::invalidate(const FunctionState* function, Range range) {
  if (range.end() < range.address) {
    throw InvalidArgument(fmt::format(
        "invalidate() of {} bytes at {:#x}, which end behind the last address: give the address of "
        "the first byte, and how many there are",
        range.bytes, range.address));
  }
  const Visit visit(door_);
  return drop_all(function, range, "memory that it refers to was invalidated");
}

// Drops the recordings that refer to the range: of the function, or of all if it is null.
std::size_t TreeManager::drop_all(const FunctionState* function, Range range,
                                  std::string_view what) noexcept {
  std::size_t dropped = 0;
  for (std::size_t i = tree_.nodes().size(); i-- > 0;) {
    Node& node = *tree_.nodes()[i];
    if (function != nullptr && node.function != function) continue;
    if (!refers_to(node.recording, range)) continue;
    events_.drop(node, what);
    tree_.drop(node);
    ++dropped;
  }
  return dropped;
}

void TreeManager::drop_released() noexcept {
  for (const Range& range : memory_->declared()->take_released())
    (void)drop_all(nullptr, range, "memory that it refers to is not declared any more");
}

void TreeManager::declare(std::string name, Range range) {
  if (memory_->declared()->declare(std::move(name), range)) door_.request_upkeep();
}

void TreeManager::undeclare(const std::string& name) {
  memory_->declared()->undeclare(name);
  door_.request_upkeep();
}

std::size_t TreeManager::trim() {
  const Visit visit(door_);
  return evictor_.trim();
}

std::size_t TreeManager::release_memory() {
  Visit visit(door_);
  if (const StreamRef captured = visit.ask_foreign_capture()) {
    throw_code(Code::kStreamCaptureUnsupported,
               "release_memory() while the stream of the context is captured");
  }
  visit.begin();
  memory_->stream().synchronize();
  const std::size_t before = memory_->reserved_bytes();
  while (!tree_.nodes().empty()) {
    Node& node = *tree_.nodes().back();
    ++node.key->released;
    events_.drop(node, "release_memory()");
    tree_.drop(node);
  }
  memory_->give_back_unused();
  return before - memory_->reserved_bytes();
}

Explanation TreeManager::explain(FunctionState& function, InputList inputs) {
  Explanation why;
  if (StepScope::active()) {
    why.outcome = Explanation::Outcome::kRunEagerly;
    why.skip_reason = SkipReason::kNestedCall;
  } else {
    const Inspection inspection(door_);
    Call call(function, *memory_, inputs);
    call.check();
    if (function.axes != nullptr) function.axes->read(inputs, call.axes());
    Decision decision{.reason = SkipReason::kForeignCapture};
    if (!door_.foreign_capture()) {
      catch_up();
      decision = decide(situation(function), call);
    }
    why = cgtree::explain(decision, situation(function), call);
    if (!why.skip_reason) add_notes(decision, call, why);
  }
  if (why.outcome == Explanation::Outcome::kRunEagerly && function.options.require_graph) {
    why.outcome = Explanation::Outcome::kThrow;
  }
  return why;
}

// This is called when memory is short, here or in another context of the device, on any thread: on
// the context's own while a step runs eagerly, on another only while no thread is inside.
std::size_t TreeManager::give_back(std::size_t needed) noexcept {
  // In a group other ranks would not know of an eviction.
  const auto make_room = [&] {
    return attempts_.are_shared() ? evictor_.try_to_trim() : evictor_.make_room(needed);
  };
  if (memory_->runs_eager_step_here()) return make_room();
  if (!door_.enter_for_upkeep()) return 0;
  if (!memory_->any_output_live()) tree_.go_to_root();
  const std::size_t given_back = make_room();
  door_.leave_upkeep();
  return given_back;
}

void TreeManager::hold_outputs(std::uint32_t id, std::vector<StorageRef>& held) {
  const Visit visit(door_);
  if (const Node* const node = tree_.find(id)) hold(node->recording, node->function->id, held);
}

void TreeManager::hold_outputs(const Rehearsal& rehearsal, const FunctionState& function,
                               std::vector<StorageRef>& held) {
  const Visit visit(door_);
  hold(rehearsal.recording(), function.id, held);
}

void TreeManager::hold(const Recording& recording, std::uint32_t function,
                       std::vector<StorageRef>& held) {
  memory_->end_tracking();
  const std::vector<OutputRecord>& outputs = recording.outputs;
  held.reserve(held.size() + outputs.size());
  for (std::uint32_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].kind != OutputRecord::Kind::kSlot) continue;
    Slot& slot = *outputs[i].slot;
    // Memory that was short may have been taken from a rehearsal.
    bool is_taken = !memory_->owns(reinterpret_cast<const void*>(slot.range.address));
    memory_->live().for_each([&](std::uint32_t number) {
      is_taken = is_taken || memory_->slot(number).range.overlaps(slot.range);
    });
    if (!is_taken) held.push_back(memory_->revive(slot, function, i));
  }
}

std::unique_ptr<Rehearsal> TreeManager::rehearse(FunctionState& function, InputList inputs,
                                                 std::string* why) {
  Visit visit(door_);
  visit.begin();
  catch_up();
  if (function.axes != nullptr) function.axes->read(inputs, call_.axes());
  call_.begin(function, *memory_, inputs);
  call_.check();
  const Decision decision = decide(situation(function), call_);
  if (decision.action != Decision::Action::kRecord) {
    *why = to_string(cgtree::explain(decision, situation(function), call_));
    return nullptr;
  }
  const HeldInputs held(call_.inputs());
  call_.hold(held);
  attempts_.begin(decision, function, call_);
  CaptureResult result = TooSmall{};
  try {
    result = recorder_.rehearse(call_, function.find_or_add(call_).output_allocations);
    if (std::holds_alternative<Recorded>(result)) {
      attempts_.settle(nullptr);
    } else {
      (void)attempts_.end(result_of(result));
    }
  } catch (...) {
    attempts_.leave(std::current_exception());
    throw;
  }
  if (auto* const recorded = std::get_if<Recorded>(&result)) {
    return std::make_unique<Rehearsal>(std::move(recorded->recording));
  }
  const auto* const failure = std::get_if<CaptureFailure>(&result);
  *why = failure != nullptr ? failure->what : std::string(cgtree::explain(SkipReason::kTooSmall));
  return nullptr;
}

// Inside the door, because upkeep on another thread changes slots and tables too.
void TreeManager::end_rehearsals(std::vector<std::unique_ptr<Rehearsal>>& rehearsals) noexcept {
  try {
    const Visit visit(door_);
    rehearsals.clear();
  } catch (const std::exception& error) {
    log_event(LogLevel::kError, "rehearsals_not_ended error=\"{}\"", error.what());
  }
}

FunctionStats TreeManager::stats_of(const FunctionState& function) const {
  return tree_.stats_of(function);
}

std::vector<SizeCount> TreeManager::histogram(const FunctionState& function,
                                              std::string_view axis) const {
  if (function.axes == nullptr) {
    throw InvalidArgument(
        fmt::format("'{}' has no dynamic axes, and '{}' is asked for", function.name, axis));
  }
  return function.axes->histogram(function.axes->find(axis)).counts();
}

std::vector<SizesCount> TreeManager::histogram(const FunctionState& function) const {
  if (function.axes == nullptr) return {};
  return function.axes->joint_histogram();
}

ContextStats TreeManager::stats() const {
  ContextStats stats = tree_.stats();
  stats.generations = memory_->generation();
  stats.restores = memory_->restores();
  stats.live_outputs = memory_->live_outputs();
  stats.pool_live_bytes = memory_->live_bytes();
  stats.pool_reserved_bytes = memory_->reserved_bytes();
  return stats;
}

std::string TreeManager::snapshot_json() const {
  return cgtree::snapshot_json(tree_, *memory_, options_);
}

ContextMetrics TreeManager::metrics() const {
  ContextMetrics metrics;
  metrics.device = to_string(memory_->device());
  metrics.context = options_.name.empty() ? metrics.device : options_.name;
  metrics.stats = stats();
  tree_.add_metrics(metrics);
  for (const Region region : {Region::kOutput, Region::kScratch, Region::kEager}) {
    const Pool& pool = memory_->pool(region);
    const PoolStatistics statistics = pool.statistics();
    metrics.regions.push_back({pool.options().name, statistics.reserved_bytes.current,
                               statistics.allocated_bytes.current});
  }
  return metrics;
}

void TreeManager::write_dot(std::uint32_t id, const std::string& path) {
  const Inspection inspection(door_);  // a replay patches what is written here
  const Node* const node = tree_.find(id);
  if (node == nullptr) {
    throw InvalidArgument(fmt::format(
        "there is no node {}: snapshot_json() lists the {} there are, and some may have been "
        "evicted",
        id, tree_.nodes().size()));
  }
  const Recording& recording = node->recording;
  check(recording.exec.api().write_dot(recording.graph.handle(), path.c_str()),
        fmt::format("write the graph of node {} to \"{}\"", id, path));
}

void TreeManager::validate() {
  const Visit visit(door_);
  memory_->validate();
  tree_.learn_conflicts(*memory_);
  tree_.validate(*memory_);
}

}  // namespace cgtree
