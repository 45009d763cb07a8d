// Counts, tells and refuses.
#include "cgtree/tree/outcomes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include "base/error.h"

namespace cgtree {
namespace {

// What the device has refused to patch twice it may refuse for good: the next call copies. In a
// group nothing is rebound, and all ranks keep what they have.
void drop_refused(Workings& workings, const FunctionState& function) {
  if (workings.attempts.are_shared()) return;
  for (std::size_t i = workings.tree.nodes().size(); i-- > 0;) {
    Node& node = *workings.tree.nodes()[i];
    if (node.function != &function || node.recording.refused_patches < 2) continue;
    workings.pass->never_patch(function);
    workings.events->after({.kind = CallEvent::kDrop,
                            .node = &node,
                            .what = "the device has refused to patch it twice"});
    workings.tree.drop(node);
  }
}

}  // namespace

void count_failure(Workings& workings, FunctionState& function) noexcept {
  ++function.counters.failures;
  function.last_outcome.set(Outcome::kThrow);
  CallEvent event{.kind = CallEvent::kFailure, .function = &function};
  const auto tell = [&](std::string_view what) {
    event.what = what;
    workings.events->after(event);
  };
  try {
    throw;
  } catch (const StaleTensor& error) {  // it tells the caller all there is to know
    event.level = LogLevel::kDebug;
    tell(error.what());
  } catch (const DeviceError& error) {
    tell(error.what());
    drop_refused(workings, function);
  } catch (const std::exception& error) {
    tell(error.what());
  } catch (...) {
    tell("an exception of unknown type");
  }
}

void count_warm_up(Workings& workings, FunctionState& function, const KeyState& key,
                   const Stopwatch& stopwatch) {
  ++function.counters.warm_ups;
  function.last_outcome.set(Outcome::kWarmUp);
  workings.events->after({.kind = CallEvent::kWarmUp,
                          .function = &function,
                          .key = &key,
                          .axes = &workings.call.axes(),
                          .time = stopwatch.elapsed()});
  workings.events->after({.kind = CallEvent::kCounters, .tree = &workings.tree});
}

void expect_capture_failure(const CaptureFailure& failure, const FunctionState& function,
                            KeyState& key) {
  std::string what = fmt::format("capture of '{}' failed: {}", function.name, failure.what);
  if (function.options.require_graph) {
    if (failure.thrown) std::rethrow_exception(failure.thrown);
    throw CaptureError(static_cast<int>(failure.code), what);
  }
  key.capture_failure = std::move(what);
  key.capture_reason = failure.reason;
}

void count_capture_failure(Workings& workings, const CaptureFailure& failure,
                           FunctionState& function, KeyState& key) {
  key.captures.note_failure(breaks_capture_rules(failure.code));
  workings.tree.set_capture_failure(function, key.capture_failure);
}

void forget_capture_failure(Workings& workings, FunctionState& function, KeyState& key) {
  key.captures.reset();
  if (key.capture_failure.empty()) return;
  if (function.capture_failure == key.capture_failure)
    workings.tree.set_capture_failure(function, "");
  key.capture_failure.clear();
}

void count_static_changes(Workings& workings, FunctionState& function, const Explanation& why) {
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
    workings.events->after(
        {.kind = CallEvent::kDemote, .function = &function, .mismatch = &mismatch});
  }
}

void refuse(Workings& workings, const Decision& decision, const FunctionState& function) {
  const Call& call = workings.call;
  if (decision.reason == SkipReason::kAboveLargestBucket) {
    throw InvalidArgument(fmt::format("'{}': {}", function.name,
                                      function.axes->why_not(decision.reason, call.axes())));
  }
  throw CaptureError(static_cast<int>(Code::kStreamCaptureUnsupported),
                     fmt::format("'{}' cannot be graphed: {}", function.name,
                                 workings.events->text_of(workings.explain(decision, function))));
}

void count_skip(Workings& workings, FunctionState& function, SkipReason reason,
                const AnnouncedSkip& announced) noexcept {
  const bool backs_off = reason == SkipReason::kBacksOff;
  if (backs_off) function.evictions.note_wait();
  if (backs_off || is_of_captures(reason)) {
    KeyState* const key = function.find(workings.call);
    if (key != nullptr && backs_off) key->note_wait(workings.call.hash_of_places());
    if (key != nullptr && !backs_off) key->captures.note_wait();
  }
  ++function.counters.skips_for(reason);
  function.last_outcome.set_skipped(reason);
  workings.events->after({.kind = CallEvent::kSkip, .function = &function, .skip = &announced});
  if (announced.why) workings.events->after({.kind = CallEvent::kCounters, .tree = &workings.tree});
}

AnnouncedSkip announce_skip(Workings& workings, FunctionState& function, SkipReason reason) {
  const Decision decision{.reason = reason};
  if (function.options.require_graph) {
    throw CaptureError(static_cast<int>(Code::kStreamCaptureUnsupported),
                       fmt::format("'{}' requires a graph, but would be skipped: {}", function.name,
                                   workings.events->text_of(workings.explain(decision, function))));
  }
  const std::uint64_t bit = std::uint64_t{1} << static_cast<int>(reason);
  const bool is_asked_for = reason == SkipReason::kDisabled || reason == SkipReason::kNoGraphScope;
  const bool warns = (function.warned & bit) == 0 && !is_asked_for;
  function.warned |= bit;
  AnnouncedSkip announced;
  if (!workings.events->tells_skip(warns)) return announced;
  announced.why = workings.explain(decision, function);
  workings.events->announce_skip(function, *announced.why, warns);
  return announced;
}

}  // namespace cgtree
