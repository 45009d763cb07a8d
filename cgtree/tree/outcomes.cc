// Counts, reports and refuses calls.
#include "cgtree/tree/outcomes.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "interop/device/code.h"

namespace cgtree {
void count_warm_up(Engine& engine, FunctionState& function, const KeyState& key,
                   const Stopwatch& stopwatch) {
  ++function.counters.warm_ups;
  function.last_outcome.set(Outcome::kWarmUp);
  engine.extensions.after({.kind = CallEvent::kWarmUp,
                           .function = &function,
                           .key = &key,
                           .axes = &engine.present.axes(),
                           .time = stopwatch.elapsed()});
  engine.extensions.after({.kind = CallEvent::kCounters, .tree = &engine.tree});
}

void count_static_changes(Engine& engine, FunctionState& function, const Explanation& why) {
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
    engine.extensions.after(
        {.kind = CallEvent::kDemote, .function = &function, .mismatch = &mismatch});
  }
}

void refuse(Engine& engine, const Decision& decision, const FunctionState& function) {
  const Call& call = engine.present;
  if (decision.reason == SkipReason::kAboveLargestBucket) {
    throw InvalidArgument(str_format("'{}': {}", function.name,
                                     function.axes->why_not(decision.reason, call.axes())));
  }
  throw CaptureError(static_cast<int>(Code::kStreamCaptureUnsupported),
                     str_format("'{}' cannot be graphed: {}", function.name,
                                to_string(engine.explain(decision, function))));
}

void refuse_guest(const Engine& engine, const FunctionState& function) {
  throw InvalidArgument(str_format(
      "'{}' on a stream where its context cannot work: the default stream of a thread, or one of "
      "another device. A capture would miss the engine's work: pass a stream of your own, of {}",
      function.name, to_string(engine.memory->device())));
}

void refuse_end(const FunctionState& function, std::string_view why) {
  throw InvalidArgument(str_format("end() of a step of '{}' {}", function.name, why));
}

void check_apart(const Call& call) {
  const Overlap overlap = call.find_overlap();
  if (!overlap) return;
  const Function& function = call.function();
  const auto describe = [&](std::uint32_t i) {
    const Tensor& binding = call.inputs()[i];
    return str_format("{} ({}, {} bytes at {:#x})",
                      text_of_binding(i, function.input_options(i).name), name(call.treatment(i)),
                      binding.bytes(), binding.address());
  };
  throw InvalidArgument(
      str_format("{} and {} of '{}' share memory; one is written and one is copied, so that the "
                 "copy would miss what is written: pass ranges that lie apart, or let neither be "
                 "copied",
                 describe(overlap.first), describe(overlap.second), function.name));
}

void add_recording(Engine& engine, KeyState& key, std::unique_ptr<Node> made,
                   const Decision& decision) {
  FunctionState& function = *made->function;
  const bool is_again =
      key.released == 0 && !key.nodes.empty() && decision.mismatch != Mismatch::Kind::kGuard;
  if (is_again && function.precaptures.load(std::memory_order_relaxed) == 0) key.note_remake();
  const bool is_forgotten = !key.warmed_for.empty() && key.warmed_for.front().empty();
  if (is_forgotten) key.warmed_for.front() = made->recording.guards;
  Node& node = engine.tree.add(std::move(made));
  count_static_changes(engine, function, node.why);
  ++function.counters.recordings;
  function.last_outcome.set(Outcome::kRecord);
  key.was_recorded = true;
  if (key.released > 0) --key.released;
  key.is_too_large = node.recording.costs.graph_bytes > engine.limits.graph_bytes;
  if (!key.is_too_large) {
    if (decision.evict != nullptr && decision.reason != SkipReason::kGraphBytesLimit)
      engine.evictor.evict(*decision.evict, decision.reason);
    engine.evictor.keep_within_graph_bytes(node);
  }
  engine.extensions.after(
      {.kind = CallEvent::kRecord, .node = &node, .axes = &engine.present.axes()});
  if (key.is_too_large) engine.evictor.evict(node, SkipReason::kGraphBytesLimit);
  engine.extensions.after({.kind = CallEvent::kCounters, .tree = &engine.tree});
}

void count_skip(Engine& engine, FunctionState& function, const AnnouncedSkip& announced) noexcept {
  const SkipReason reason = announced.reason;
  const bool backs_off = reason == SkipReason::kBacksOff || reason == SkipReason::kChangingGuard;
  if (backs_off) function.evictions.note_wait();
  if (backs_off || is_of_captures(reason)) {
    KeyState* const key = function.find(engine.present);
    if (key != nullptr && backs_off) key->note_wait(engine.present.hash_of_places());
    if (key != nullptr && !backs_off) key->captures.note_wait();
  }
  ++function.counters.skips_for(reason);
  function.last_outcome.set_skipped(reason);
  engine.extensions.after({.kind = CallEvent::kSkip, .function = &function, .skip = &announced});
  if (announced.why) engine.extensions.after({.kind = CallEvent::kCounters, .tree = &engine.tree});
}

AnnouncedSkip announce_skip(Engine& engine, FunctionState& function, SkipReason reason) {
  const Decision decision{.reason = reason};
  if (function.options.require_graph) {
    throw CaptureError(static_cast<int>(Code::kStreamCaptureUnsupported),
                       str_format("'{}' requires a graph, but would be skipped: {}", function.name,
                                  to_string(engine.explain(decision, function))));
  }
  const std::uint64_t bit = std::uint64_t{1} << static_cast<int>(reason);
  const bool is_asked_for = reason == SkipReason::kDisabled || reason == SkipReason::kNoGraphScope;
  const bool warns = (function.warned & bit) == 0 && !is_asked_for;
  function.warned |= bit;
  const LogLevel level = warns ? LogLevel::kWarn : LogLevel::kDebug;
  AnnouncedSkip announced{.reason = reason};
  if (!engine.extensions.wants().skips && !log_enabled(level)) return announced;
  announced.why = engine.explain(decision, function);
  engine.extensions.after(
      {.kind = CallEvent::kSkipBegins, .function = &function, .level = level, .skip = &announced});
  return announced;
}

}  // namespace cgtree
