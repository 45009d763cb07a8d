// Votes on the attempts of calls, and makes the outcome of each the same on all ranks.
#include "cgtree/tree/votes.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/log_event.h"
#include "cgtree/values/graph_scope.h"
#include "interop/device/code.h"

namespace cgtree {
namespace {

// Returns the result of an attempt that threw this exception.
AttemptResult result_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const OtherRankFailed& error) {
    return error.result();
  } catch (const OutOfMemory& error) {
    return {.kind = AttemptResult::Kind::kOutOfMemory, .what = std::string(error.message())};
  } catch (const Error& error) {
    return {.kind = AttemptResult::Kind::kFailed, .what = std::string(error.message())};
  } catch (const std::exception& error) {
    return {.kind = AttemptResult::Kind::kFailed, .what = error.what()};
  } catch (...) {
    return {.kind = AttemptResult::Kind::kFailed, .what = "an exception of unknown type"};
  }
}

bool is_of_other_rank(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const OtherRankFailed&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

bool breaks_capture_rules(Code code) noexcept {
  return code >= Code::kStreamCaptureUnsupported && code <= Code::kStreamCaptureWrongThread &&
         code != Code::kStreamCaptureInvalidated;
}

AttemptResult result_of(const CaptureFailure& failure) {
  return {.kind = AttemptResult::Kind::kCaptureFailed,
          .reason = failure.reason,
          .capture = breaks_capture_rules(failure.code) ? AttemptResult::Capture::kBreaksRules
                                                        : AttemptResult::Capture::kFailed,
          .what = failure.what};
}

// Ranks that run eagerly by option need not meet.
void Votes::begin(const Decision& decision, const FunctionState& function, const Call& call) {
  has_launched_ = false;
  is_capture_ = decision.outcome == Outcome::kRecord;
  reserved_bytes_ = memory_.reserved_bytes();
  if (!are_shared() || is_off(function, graph_override())) return;
  Digest digest;
  digest.add(tree_.digest()).add(memory_.generation()).add(function.id).add(function.name);
  digest.add(static_cast<std::uint64_t>(decision.outcome));
  digest.add(static_cast<std::uint64_t>(decision.reason));
  const InputList& inputs = call.inputs();
  digest.add(inputs.key()).add(inputs.size()).add(inputs.buffers());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    digest.add(inputs[i].defined());
    // Weights and caches may be sharded differently on each rank.
    if (function.input_options(i).is_static || !inputs[i].defined()) continue;
    digest.add(inputs.shape(i).hash()).add(static_cast<std::uint64_t>(inputs[i].dtype()));
  }
  constexpr std::string_view kActions[] = {"replay", "record", "warm up", "run eagerly", "refuse"};
  ballot_->begin(
      function.options, digest,
      str_format("{} '{}' {}, generation {}", kActions[static_cast<int>(decision.outcome)],
                 function.name, Signature(inputs).to_string(), memory_.generation()));
}

AttemptResult Votes::end(AttemptResult mine) {
  const bool was_open = is_open();
  if (was_open) ended_ = {};
  mine.time = tree_.spent.recording_time;
  AttemptResult worst = are_shared() ? ballot_->end(std::move(mine)) : std::move(mine);
  tree_.spent.recording_time = worst.time;
  if (was_open) ended_ = worst;
  return worst;
}

void Votes::settle(Stopwatch* stopwatch) {
  if (!is_open()) return;
  if (stopwatch != nullptr) stopwatch->stop();
  AttemptResult worst = end({});
  if (worst.kind != AttemptResult::Kind::kDone) throw OtherRankFailed(std::move(worst));
}

void Votes::go_on(const FunctionState& function, std::string_view what) {
  if (are_shared()) ballot_->go_on(str_format("{} '{}'", what, function.name));
}

AttemptResult Votes::leave(const std::exception_ptr& thrown, AttemptResult::Capture capture,
                           SkipReason reason) noexcept {
  AttemptResult worst{.reason = reason, .capture = capture};
  if (!are_shared()) return worst;
  const bool was_open = is_open();
  if (!was_open && !is_of_other_rank(thrown)) return std::exchange(ended_, {});
  try {
    AttemptResult mine = result_of(thrown);
    // Ranks that decide again for lack of memory would wait for a rank that has left.
    if (was_open && is_capture_ && !has_launched_) mine.kind = AttemptResult::Kind::kFailed;
    mine.capture = std::max(mine.capture, capture);
    mine.reason = reason;
    worst = end(std::move(mine));
    if (worst.kind == AttemptResult::Kind::kOutOfMemory) (void)evictor_.evict_one();
  } catch (const std::exception& error) {
    log_event(LogLevel::kError, "group error=\"{}\"", error.what());
  }
  ended_ = {};
  return worst;
}

std::function<void(Recording&)> Votes::before_launch(FunctionState& function,
                                                     Stopwatch& stopwatch) {
  if (!are_shared() && !before_first_launch_) return nullptr;
  return [this, &function, &stopwatch](Recording& recording) {
    if (is_open()) {
      stopwatch.stop();
      using Kind = AttemptResult::Kind;
      AttemptResult worst = end({.kind = recording.runs_once ? Kind::kRunsOnce : Kind::kDone,
                                 .graph_bytes = recording.costs.graph_bytes,
                                 .what = "its step keeps a tensor that it has made"});
      if (worst.kind < Kind::kRunsOnce) throw OtherRankFailed(std::move(worst));
      recording.runs_once = worst.kind == Kind::kRunsOnce;
      recording.costs.graph_bytes = worst.graph_bytes;
    }
    if (before_first_launch_) register_recording(function, recording);
    go_on(function, "launch");
    has_launched_ = are_shared();
  };
}

void Votes::register_recording(const FunctionState& function, Recording& recording) {
  std::vector<GraphHandle> graphs;
  std::vector<ExecHandle> execs;
  recording.for_each_graph([&](const Graph& graph, const GraphExec& exec) {
    graphs.push_back(graph.handle());
    execs.push_back(exec.handle());
  });
  go_on(function, "register");
  before_first_launch_({function.name, recording.key, graphs, execs});
  settle(nullptr);
}

std::optional<CaptureResult> Votes::settle_capture(const FunctionState& function, const Call& call,
                                                   std::optional<CaptureResult> result,
                                                   const std::exception_ptr& thrown,
                                                   Stopwatch& stopwatch) {
  using Kind = AttemptResult::Kind;
  if (result && std::holds_alternative<Recorded>(*result)) return result;  // see before_launch()
  if (thrown && has_launched_) std::rethrow_exception(thrown);  // leave() tells the others
  stopwatch.stop();  // from here on the call runs eagerly, or fails
  const AttemptResult worst =
      end(result ? result_of(std::get<CaptureFailure>(*result)) : result_of(thrown));
  const bool is_out_of_memory = worst.kind == Kind::kOutOfMemory;
  if (is_out_of_memory && makes_room_for(thrown)) return std::nullopt;
  if (worst.kind == Kind::kFailed || (is_out_of_memory && throws_at_limit_)) {
    if (thrown) std::rethrow_exception(thrown);
    throw OtherRankFailed(worst);
  }
  const SkipReason reason = is_out_of_memory ? SkipReason::kPoolLimit : worst.reason;
  begin({.reason = reason}, function, call);
  auto* const own = result ? std::get_if<CaptureFailure>(&*result) : nullptr;
  CaptureFailure failure =
      own ? std::move(*own) : CaptureFailure{Code::kUnknown, worst.what, thrown};
  failure.reason = reason;
  const bool breaks_rules = worst.capture == AttemptResult::Capture::kBreaksRules;
  if (breaks_rules && !breaks_capture_rules(failure.code)) {
    failure.code = Code::kStreamCaptureUnsupported;
  }
  return failure;
}

// Returns whether the call must be decided again: a recording was evicted, or, once in a call, the
// pools released more than the capture took. In a group each rank does the same, whatever its need.
bool Votes::makes_room_for(const std::exception_ptr& thrown) {
  const std::size_t before = tree_.nodes().size();
  if (are_shared()) {
    (void)evictor_.evict_one();
    (void)evictor_.try_to_trim();
  } else {
    (void)evictor_.try_to_trim();
    if (memory_.reserved_bytes() < reserved_bytes_ && !has_trimmed_) return has_trimmed_ = true;
    try {
      std::rethrow_exception(thrown);
    } catch (const OutOfMemory& error) {
      const std::size_t needed = error.report() != nullptr ? error.report()->requested : 1;
      evictor_.make_room(needed, /*must_evict=*/true);
    }
  }
  if (tree_.nodes().size() < before) return true;
  return are_shared() && !std::exchange(has_trimmed_, true);
}

}  // namespace cgtree
