// Names the reasons why replays are not verified, and makes and prints reports.
#include "extensions/verify/verification.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "base/format.h"
#include "cgtree/tree/engine.h"
#include "extensions/verify/replay_verifier.h"

namespace cgtree {

std::string_view name(UnverifiedReason reason) noexcept {
  switch (reason) {
    case UnverifiedReason::kEagerBreaks:
      return "eager_breaks";
    case UnverifiedReason::kForeignMemory:
      return "foreign_memory";
    case UnverifiedReason::kSharedMemory:
      return "shared_memory";
    case UnverifiedReason::kNoMemory:
      return "no_memory";
    case UnverifiedReason::kLoopStream:
      return "loop_stream";
  }
  return "unknown";
}

std::string_view explain(UnverifiedReason reason) noexcept {
  switch (reason) {
    case UnverifiedReason::kEagerBreaks:
      return "the functions of its breaks act on the world, and must not run twice: verify a "
             "variant of the step function without them";
    case UnverifiedReason::kForeignMemory:
      return "the work uses memory that it may write and that cannot be put back: bind it as "
             "is_mutated, or declare() it";
    case UnverifiedReason::kSharedMemory:
      return "tensors that the function writes share memory, so that they cannot be put back one "
             "by one: pass the memory once";
    case UnverifiedReason::kNoMemory:
      return "there was no memory for an eager run beside the recording, or to save what it "
             "writes: give the context more, or verify with smaller inputs";
    case UnverifiedReason::kLoopStream:
      return "a loop hands out rows to a LoopStream, and an eager run would hand them out again: "
             "verify a variant of the step function that has loop() without one";
  }
  return "";
}

Verification verification_of(const Context& context) {
  const Engine& engine = *context.share_engine();
  const ReplayVerifier& verifier = *engine.extensions.find<ReplayVerifier>();
  std::map<std::uint32_t, FunctionVerification> by_id;
  const auto add_function = [&](const FunctionState& function) {
    if (!verifier.verifies(function)) return;
    const FunctionStats stats = engine.tree.stats_of(function);
    FunctionVerification& one = by_id[function.id];
    one.function = function.name;
    one.first = verifier.first_of(function);
    one.verified = stats.verified;
    one.differed = stats.differed;
    one.unverified = stats.unverified;
    one.tensors = function.verified_tensors;
  };
  const auto add_node = [&](const Node& node) {
    const auto found = by_id.find(node.function->id);
    if (found == by_id.end()) return;
    const RecordingCosts& costs = node.recording.costs;
    ++(costs.verified > 0     ? found->second.verified_recordings
       : costs.unverified > 0 ? found->second.unverified_recordings
                              : found->second.waiting_recordings);
  };
  engine.tree.visit(add_function, add_node);
  Verification all{verifier.every(), {}};
  for (auto& [id, one] : by_id)
    all.functions.push_back(std::move(one));
  return all;
}

std::string to_string(const Verification& verification) {
  if (verification.functions.empty() && verification.every == 0) return "no replay is verified";
  std::string text = "replays that are verified:";
  if (verification.every > 0) {
    text = str_format("every {}. replay of a recording is verified", verification.every);
  }
  for (const FunctionVerification& function : verification.functions) {
    text += str_format(
        "\n{}: {} replays verified, {} differed; recordings: {} verified, {} waiting, {} left out",
        function.function, function.verified, function.differed, function.verified_recordings,
        function.waiting_recordings, function.unverified_recordings);
    if (function.first > 0) text += str_format("\n  {} of the first replays", function.first);
    for (int i = 0; i < kUnverifiedReasonCount; ++i) {
      if (function.unverified[i] == 0) continue;
      const auto reason = static_cast<UnverifiedReason>(i);
      text += str_format("\n  left out {}: {} ({})", function.unverified[i], name(reason),
                         explain(reason));
    }
    for (const VerifiedTensor& tensor : function.tensors) {
      if (tensor.tolerance == std::numeric_limits<double>::infinity()) {
        text += str_format("\n  {}: not compared", tensor.what);
        continue;
      }
      text += str_format(
          "\n  {}: {}, largest difference {:g}", tensor.what,
          tensor.tolerance > 0 ? str_format("within {:g}", tensor.tolerance) : "bit for bit",
          tensor.largest);
    }
  }
  return text;
}

}  // namespace cgtree
