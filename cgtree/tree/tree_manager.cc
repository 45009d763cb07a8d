// A call, from its inputs to its outputs.
#include "cgtree/tree/tree_manager.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "cgtree/tree/busy.h"
#include "cgtree/tree/outputs.h"
#include "interop/current_stream.h"

namespace cgtree {
namespace {

void hand_out(std::vector<Tensor> made, TensorList& outputs) {
  std::span<Tensor> list = outputs.reset(made.size());
  for (std::size_t i = 0; i < made.size(); ++i)
    list[i] = std::move(made[i]);
}

// A caller on a stream of its own sees calls in the order of that stream.
class CallerOrder {
 public:
  CallerOrder(StreamRef lane, StreamRef caller) : lane_(lane), caller_(caller) {
    if (caller_ && caller_ != lane_) lane_.wait_for(caller_);
  }
  void finish() const {
    if (caller_ && caller_ != lane_) caller_.wait_for(lane_);
  }

 private:
  StreamRef lane_;
  StreamRef caller_;
};

}  // namespace

TreeManager::TreeManager(Device device, ContextOptions options)
    : options_(std::move(options)),
      memory_(new LaneMemory(device, options_)),
      has_graphs_(memory_->stream().api().graphs() != nullptr),
      recorder_(*memory_, options_.checked) {
}

TreeManager::~TreeManager() {
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
    log_event(LogLevel::kWarn, "call_failed function={} what=\"{}\"", function.name, error.what());
    throw;
  } catch (...) {
    ++function.stats.failures;
    log_event(LogLevel::kWarn, "call_failed function={} what=unknown", function.name);
    throw;
  }
}

void TreeManager::check_inputs(const FunctionState& function, InputList inputs) const {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) {
      throw InvalidArgument(fmt::format("input {} of '{}' holds nothing", i, function.name));
    }
    (void)inputs[i].data();  // throws StaleTensor
  }
}

void TreeManager::call_on_lane(FunctionState& function, InputList inputs, TensorList& outputs) {
  const StreamRef caller = current_stream_or_none();
  const StreamRef outside = caller ? caller : options_.stream.value_or(StreamRef());
  if (outside && outside.is_capturing()) [[unlikely]] {
    check_inputs(function, inputs);
    return skip(function, SkipReason::kForeignCapture, {}, inputs, outputs, outside);
  }
  const CallerOrder order(memory_->stream(), caller);
  if (current_ != &root_ && !memory_->any_output_live()) current_ = &root_;
  // Before anything is decided, so that a call that fails half-way need not tidy up.
  if (slots_known_ != memory_->slot_count()) [[unlikely]] {
    learn_all_conflicts();
  }
  const Situation situation{
      function, *current_, inputs, *memory_, has_graphs_, nodes_.size(), options_.max_recordings};
  if (Node* node = predict(situation)) [[likely]] {
    replay(*node, inputs, outputs);
  } else {
    check_inputs(function, inputs);
    act_on(decide(situation), function, inputs, outputs);
  }
  order.finish();
}

void TreeManager::act_on(const Decision& decision, FunctionState& function, InputList inputs,
                         TensorList& outputs) {
  switch (decision.action) {
    case Decision::Action::kReplay:
      return replay(*decision.node, inputs, outputs);
    case Decision::Action::kWarmUp:
      return warm_up(function, inputs, outputs);
    case Decision::Action::kRecord:
      return record(function, inputs, outputs, decision.mismatch);
    case Decision::Action::kSkip:
      return skip(function, decision.reason, decision.mismatch, inputs, outputs, memory_->stream());
  }
}

void TreeManager::replay(Node& node, InputList inputs, TensorList& outputs) {
  Recording& recording = node.recording;
  memory_->end_tracking();
  bool moved = false;
  for (GatherNode& root : recording.roots)
    moved = root.bind(recording.exec, inputs) || moved;
  const Code code =
      recording.exec.api().launch(recording.exec.handle(), memory_->stream().handle());
  if (!ok(code)) [[unlikely]] {
    throw_code(code, fmt::format("replay '{}' (node {})", node.function->name, node.id));
  }
  make_outputs(recording, node.function->id, *memory_, inputs,
               outputs.reset(recording.outputs.size()));
  current_->follow(&node);
  current_ = &node;
  ++node.function->stats.replays;
  ++recording.costs.replays;
  recording.costs.patches += moved;
  root_patches_ += moved;
  log_event(LogLevel::kTrace, "replay function={} node={}", node.function->name, node.id);
}

void TreeManager::warm_up(FunctionState& function, InputList inputs, TensorList& outputs) {
  KeyState& key = function.find_or_add(inputs);
  const std::string signature = key.signature.to_string();  // may fail, so before the work
  hand_out(recorder_.warm_up(function, key, inputs), outputs);
  ++function.stats.warm_ups;
  log_event(LogLevel::kInfo, "warm_up function={} inputs=\"{}\" generation={}", function.name,
            signature, memory_->generation());
}

void TreeManager::record(FunctionState& function, InputList inputs, TensorList& outputs,
                         const Mismatch& mismatch) {
  const auto begin = std::chrono::steady_clock::now();
  KeyState& key = function.find_or_add(inputs);
  auto result = recorder_.record(function, key, inputs);
  if (const auto* failure = std::get_if<CaptureFailure>(&result)) {
    const std::string what =
        fmt::format("capture of '{}' failed: {}", function.name, failure->what);
    if (function.options.require_graph) {
      throw CaptureError(static_cast<int>(failure->code), what);
    }
    function.capture_failure = what;
    return skip(function, SkipReason::kCaptureFailed, {}, inputs, outputs, memory_->stream());
  }
  auto& recorded = std::get<Recorder::Recorded>(result);
  recorded.recording.costs.record_us = std::chrono::duration_cast<std::chrono::microseconds>(
                                           std::chrono::steady_clock::now() - begin)
                                           .count();
  hand_out(std::move(recorded.outputs), outputs);
  const std::string because =
      mismatch.fits() ? "" : fmt::format(" because=\"{}\"", to_string(mismatch));
  Node& node = add_node(function, key, std::move(recorded.recording));
  ++function.stats.recordings;
  log_event(mismatch.fits() ? LogLevel::kInfo : LogLevel::kDebug,
            "record function={} node={} parent={} generation={} nodes={} bytes={} us={}{}",
            function.name, node.id, node.parent->id, memory_->generation(),
            node.recording.costs.nodes, node.recording.footprint.bytes(),
            node.recording.costs.record_us, because);
}

void TreeManager::skip(FunctionState& function, SkipReason reason, const Mismatch& mismatch,
                       InputList inputs, TensorList& outputs, StreamRef stream) {
  if (function.options.require_graph) {
    throw CaptureError(static_cast<int>(Code::kStreamCaptureUnsupported),
                       fmt::format("'{}' requires a graph, but would be skipped ({}): {}",
                                   function.name, name(reason), explain(reason)));
  }
  const std::uint64_t bit = std::uint64_t{1} << static_cast<int>(reason);
  const bool warn = (function.warned & bit) == 0 && reason != SkipReason::kDisabled;
  function.warned |= bit;
  log_event(warn ? LogLevel::kWarn : LogLevel::kDebug, "skip function={} reason={} what=\"{}{}{}\"",
            function.name, name(reason), explain(reason),
            function.capture_failure.empty() ? "" : "; " + function.capture_failure,
            mismatch.fits() ? "" : "; " + to_string(mismatch));
  run_eagerly(function, inputs, outputs, stream);
  ++function.stats.skips[static_cast<int>(reason)];
}

void TreeManager::run_eagerly(FunctionState& function, InputList inputs, TensorList& outputs,
                              StreamRef stream) {
  StepScope scope(*memory_, stream, StepAllocations::Kind::kEager);
  std::vector<Tensor> made = function.step(hold(inputs));
  check_outputs(function.name, made);
  scope.finish();
  hand_out(std::move(made), outputs);
}

// The outer step's recording includes the work, and the outer step's pool the outputs.
void TreeManager::run_nested(FunctionState& function, InputList inputs, TensorList& outputs) {
  hand_out(function.step(hold(inputs)), outputs);
  ++function.stats.calls;
  ++function.stats.skips[static_cast<int>(SkipReason::kNestedCall)];
}

void TreeManager::mark_step() {
  Busy busy(*this);
  memory_->mark_step();
  current_ = &root_;
}

}  // namespace cgtree
