// A call, from its inputs to its outputs.
#include "cgtree/tree/tree_manager.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/error.h"
#include "cgtree/record/axis_lengths.h"
#include "cgtree/tree/busy.h"
#include "cgtree/tree/caller_order.h"
#include "cgtree/tree/cause.h"
#include "cgtree/tree/input_handshake.h"
#include "cgtree/record/output_slices.h"
#include "cgtree/record/outputs.h"
#include "cgtree/record/run_step.h"
#include "cgtree/record/treatment.h"
#include "interop/device/stream.h"

namespace cgtree {
namespace {

void hand_out(std::vector<Tensor> made, TensorList& outputs) {
  std::span<Tensor> list = outputs.reset(made.size());
  for (std::size_t i = 0; i < made.size(); ++i)
    list[i] = std::move(made[i]);
}

// Whether the step function did what captures forbid, and will again; another error may have been
// the moment's.
bool breaks_capture_rules(Code code) noexcept {
  return code >= Code::kStreamCaptureUnsupported && code <= Code::kStreamCaptureWrongThread;
}

// Adds the time it lives, or until it is stopped, to a sum.
class Stopwatch {
 public:
  explicit Stopwatch(std::chrono::microseconds& sum) noexcept : sum_(&sum) {}
  ~Stopwatch() { stop(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  void stop() noexcept {
    if (sum_ != nullptr) *sum_ += elapsed();
    sum_ = nullptr;
  }
  std::chrono::microseconds elapsed() const noexcept {
    return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::chrono::microseconds* sum_;
  const Clock::time_point begin_ = Clock::now();
};

}  // namespace

TreeManager::TreeManager(Device device, ContextOptions options)
    : options_(std::move(options)),
      memory_(new ContextMemory(device, options_)),
      has_graphs_(memory_->stream().api().graphs() != nullptr),
      recorder_(*memory_, options_.checked),
      events_(options_),
      limits_{options_.max_recordings, options_.max_depth, options_.at_limit,
              options_.max_graph_bytes, options_.max_recording_time} {
  memory_->set_reclaim([this](std::size_t needed) { return give_back(needed); });
}

TreeManager::~TreeManager() {
  memory_->set_reclaim(nullptr);
  // Recordings give their tables back to the pools, so they go first.
  nodes_.clear();
  functions_.clear();
}

void TreeManager::call(FunctionState& function, InputList inputs, TensorList& outputs) {
  if (StepScope::active()) return run_nested(function, inputs, outputs);
  Busy busy(*this);
  ++function.stats.calls;
  try {
    call_on_lane(function, inputs, outputs);
  } catch (const std::exception& error) {
    ++function.stats.failures;
    events_.failure(function, error.what());
    throw;
  } catch (...) {
    ++function.stats.failures;
    events_.failure(function, "an exception of unknown type");
    throw;
  }
}

void TreeManager::call_on_lane(FunctionState& function, InputList inputs, TensorList& outputs) {
  if (function.axes != nullptr) [[unlikely]] {
    function.axes->read(inputs);
  }
  const StreamRef caller = current_stream_or_none();
  if (const StreamRef captured = captured_by_others(caller)) [[unlikely]] {
    check_inputs(function, *memory_, inputs);
    return skip(function, SkipReason::kForeignCapture, inputs, outputs, captured);
  }
  const CallerOrder order(memory_->stream(), caller);
  catch_up();
  if (function.axes != nullptr) [[unlikely]] {
    call_with_axes(function, inputs, outputs);
    return order.finish();
  }
  const Situation now = situation(function, inputs);
  if (Node* node = predict(now)) [[likely]] {
    replay(*node, inputs, outputs);
  } else {
    check_inputs(function, *memory_, inputs);
    const StreamSynchronization handshake = handshake_with(memory_->stream(), inputs);
    act_on(decide(now), function, inputs, outputs);
    handshake.finish();
  }
  order.finish();
}

// The stream that calls would launch on, where somebody else is capturing it; else none.
StreamRef TreeManager::captured_by_others(StreamRef caller) const {
  const StreamRef outside = caller ? caller : options_.stream.value_or(StreamRef());
  return outside && outside.is_capturing() ? outside : StreamRef();
}

// Before anything is decided, so that a call that fails half-way need not tidy up.
void TreeManager::catch_up() {
  if (current_ != &root_ && !memory_->any_output_live()) go_to_root();
  if (slots_known_ != memory_->slot_count()) [[unlikely]] {
    learn_all_conflicts();
  }
}

Situation TreeManager::situation(const FunctionState& function, InputList inputs) const {
  return {function, *current_, inputs,      *memory_,     nodes_,
          limits_,  depth_,    has_graphs_, graph_wish(), spent()};
}

void TreeManager::act_on(const Decision& decision, FunctionState& function, InputList inputs,
                         TensorList& outputs) {
  switch (decision.action) {
    case Decision::Action::kReplay:
      return replay(*decision.node, inputs, outputs);
    case Decision::Action::kWarmUp:
      return warm_up(function, inputs, outputs);
    case Decision::Action::kRecord:
      return record_or_make_room(decision, function, inputs, outputs);
    case Decision::Action::kSkip:
      return skip(function, decision.reason, inputs, outputs, memory_->stream());
    case Decision::Action::kThrow:
      refuse(function, explanation(decision, function, inputs), inputs);
  }
}

void TreeManager::replay(Node& node, InputList inputs, TensorList& outputs) {
  Recording& recording = node.recording;
  ContextMemory& memory = *memory_;
  memory.end_tracking();
  const bool patched = bind(recording, inputs);
  const Code code = launch(recording, memory.stream());
  if (!ok(code)) [[unlikely]] {
    throw_code(code, fmt::format("replay '{}' (node {})", node.function->name, node.id));
  }
  make_outputs(recording, node.function->id, memory, inputs,
               outputs.reset(recording.outputs.size()));
  current_->follow(&node);
  go_to(node);
  ++node.function->stats.replays;
  ++recording.costs.replays;
  recording.costs.patches += patched;
  root_patches_ += patched;
  events_.replay(node);
}

void TreeManager::warm_up(FunctionState& function, InputList inputs, TensorList& outputs) {
  const Stopwatch stopwatch(recording_time_);
  KeyState& key = function.find_or_add(inputs);
  hand_out(recorder_.warm_up(function, key, inputs), outputs);
  ++function.stats.warm_ups;
  events_.warm_up(function, key, memory_->generation());
}

void TreeManager::record(const Decision& decision, FunctionState& function, InputList inputs,
                         TensorList& outputs) {
  Stopwatch stopwatch(recording_time_);
  Cause cause = find_cause(function, *current_, inputs, *memory_);
  KeyState& key = function.find_or_add(inputs);
  auto result = recorder_.record(function, key, inputs);
  if (!std::holds_alternative<Recorder::Recorded>(result)) stopwatch.stop();  // now it runs eagerly
  if (const auto* failure = std::get_if<CaptureFailure>(&result)) {
    const std::string what =
        fmt::format("capture of '{}' failed: {}", function.name, failure->what);
    if (function.options.require_graph) {
      throw CaptureError(static_cast<int>(failure->code), what);
    }
    function.capture_failure = what;
    const bool is_for_good = breaks_capture_rules(failure->code);
    function.captures_to_try = is_for_good ? 0 : function.captures_to_try - 1;
    return skip(function, SkipReason::kCaptureFailed, inputs, outputs, memory_->stream());
  }
  if (std::holds_alternative<TooSmall>(result)) {
    key.is_too_small = true;
    return skip(function, SkipReason::kTooSmall, inputs, outputs, memory_->stream());
  }
  auto& recorded = std::get<Recorder::Recorded>(result);
  recorded.recording.costs.record_us = stopwatch.elapsed().count();
  hand_out(std::move(recorded.outputs), outputs);
  function.capture_failure.clear();
  Node& node = add_node(function, key, std::move(recorded.recording));
  node.cause = std::move(cause);
  count_static_changes(function, node.cause);
  ++function.stats.recordings;
  key.is_too_large = node.recording.costs.graph_bytes() > limits_.graph_bytes;
  // Only now: a recording that fails, or that does not stay, must not have cost another one.
  if (!key.is_too_large) {
    if (decision.evict != nullptr) evict(*decision.evict, decision.reason);
    keep_within_graph_bytes(node);
  }
  events_.record(node, memory_->generation());
  if (node.recording.costs.step_nodes == 0 && !std::exchange(function.warned_of_nothing, true)) {
    events_.launched_nothing(function);
  }
  if (key.is_too_large) evict(node, SkipReason::kGraphBytesLimit);
}

void TreeManager::refuse(const FunctionState& function, const Explanation& why,
                         InputList inputs) const {
  if (why.skip_reason == SkipReason::kAboveLargestBucket) {
    throw InvalidArgument(fmt::format("'{}': {}", function.name, why.why_not));
  }
  if (why.skip_reason == SkipReason::kMutatedInput) {
    const auto i = find_unwanted_write(function, *memory_, inputs).value_or(0);
    throw InvalidArgument(fmt::format(
        "'{}' writes into {}, which is neither static nor an output of this context, and "
        "OnMutatedInput::kReject forbids that: it is {} at {:#x}",
        function.name, describe_input(function, inputs, i), describe(inputs[i]),
        inputs[i].address()));
  }
  throw CaptureError(static_cast<int>(Code::kStreamCaptureUnsupported),
                     fmt::format("'{}' cannot be graphed: {}", function.name, to_string(why)));
}

std::string TreeManager::detail(const FunctionState& function, SkipReason reason,
                                InputList inputs) const {
  if (is_of_axes(reason)) return function.axes->why_not(reason);
  if (reason != SkipReason::kMutatedInput) return function.capture_failure;
  return describe_input(function, inputs,
                        find_unwanted_write(function, *memory_, inputs).value_or(0));
}

void TreeManager::skip(FunctionState& function, SkipReason reason, InputList inputs,
                       TensorList& outputs, StreamRef stream) {
  if (function.options.require_graph) {
    const std::string what = detail(function, reason, inputs);
    throw CaptureError(
        static_cast<int>(Code::kStreamCaptureUnsupported),
        fmt::format("'{}' requires a graph, but would be skipped ({}): {}{}{}", function.name,
                    name(reason), cgtree::explain(reason), what.empty() ? "" : "; ", what));
  }
  const std::uint64_t bit = std::uint64_t{1} << static_cast<int>(reason);
  const bool is_wish = reason == SkipReason::kDisabled || reason == SkipReason::kNoGraphScope;
  const bool warns = (function.warned & bit) == 0 && !is_wish;
  function.warned |= bit;
  if (events_.tells_skip(warns)) {
    events_.skip(function, reason, detail(function, reason, inputs), warns,
                 find_cause(function, *current_, inputs, *memory_));
  }
  run_eagerly(function, inputs, outputs, stream);
  ++function.stats.skips[static_cast<int>(reason)];
}

void TreeManager::run_eagerly(FunctionState& function, InputList inputs, TensorList& outputs,
                              StreamRef stream) {
  StepScope scope(*memory_, stream, StepAllocations::Kind::kEager);
  const AxisLengths lengths(function.axes.get(), *memory_, /*records=*/false);
  std::vector<Tensor> made = run_step(function, *memory_, inputs);
  lengths.check_not_returned(function.name, made);
  if (function.axes != nullptr) check_output_axes(function, made, function.axes->given());
  scope.finish();
  hand_out(std::move(made), outputs);
}

// The outer step's recording includes the work, and the outer step's pool the outputs.
void TreeManager::run_nested(FunctionState& function, InputList inputs, TensorList& outputs) {
  check_inputs(function, *memory_, inputs);
  hand_out(run_step(function, *memory_, inputs), outputs);
  ++function.stats.calls;
  ++function.stats.skips[static_cast<int>(SkipReason::kNestedCall)];
}

void TreeManager::mark_step() {
  Busy busy(*this);
  memory_->mark_step();
  go_to_root();
}

}  // namespace cgtree
