// Takes turns, votes on what is verified and how it went, counts, and throws what differs.
#include "extensions/verify/replay_verifier.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "extensions/audit/audit.h"
#include "extensions/verify/replay_comparison.h"

namespace cgtree {

std::size_t ReplayVerifier::first_of(const FunctionState& function) const noexcept {
  return std::max(first_, function.options.verify_first);
}

// Of the first replays, number 2^k is turn k.
void ReplayVerifier::watch(Node& node) {
  const std::uint64_t next = node.recording.costs.replays + 1;
  const auto turns_before = static_cast<std::size_t>(std::bit_width(next - 1));
  const bool is_among_first = turns_before < first_of(*node.function);
  is_among_first || is_turn(node) ? tree_.hold_back(node) : tree_.release(node);
}

bool ReplayVerifier::is_turn(const Node& node) const noexcept {
  const std::uint64_t next = node.recording.costs.replays + 1;
  if (every_ > 0 && next % every_ == 0) return true;
  if (std::ranges::find(asked_, node.id) != asked_.end()) return true;
  return std::has_single_bit(next) &&
         static_cast<std::size_t>(std::countr_zero(next)) < first_of(*node.function);
}

void ReplayVerifier::ask(Node* node) {
  if (node == nullptr) return asked_.clear();
  asked_.push_back(node->id);
  tree_.hold_back(*node);
}

void ReplayVerifier::count_unverified(Node& node, UnverifiedReason reason) {
  ++node.function->counters.unverified[static_cast<std::size_t>(reason)];
  ++node.recording.costs.unverified;
  events_.after({.kind = CallEvent::kUnverified, .node = &node, .unverified = reason});
}

// Returns the worst of all ranks' results, unless one of them has failed.
AttemptResult ReplayVerifier::end_attempt(AttemptResult mine) {
  AttemptResult worst = attempts_.end(std::move(mine));
  if (worst.kind == AttemptResult::Kind::kFailed) throw OtherRankFailed(std::move(worst));
  return worst;
}

std::unique_ptr<ReplayCheck> ReplayVerifier::prepare(Node& node, const Call& call) {
  std::erase(asked_, node.id);
  attempts_.begin({.outcome = Outcome::kReplay, .node = &node}, *node.function, call);
  auto why_not = UnverifiedReason::kNoMemory;
  auto check = ReplayComparison::prepare(call, node.recording, memory_, &why_not);
  AttemptResult mine;
  if (check == nullptr)
    mine = {.kind = AttemptResult::Kind::kOutOfMemory, .what = std::string(name(why_not))};
  if (end_attempt(std::move(mine)).kind == AttemptResult::Kind::kDone) {
    attempts_.go_on(*node.function, "replay");
    return check;
  }
  count_unverified(node, check == nullptr ? why_not : UnverifiedReason::kNoMemory);
  return nullptr;
}

void ReplayVerifier::begin(Node& node) {
  attempts_.go_on(*node.function, "verify a replay of");
}

void ReplayVerifier::leave_out(Node& node, std::string_view what) {
  (void)end_attempt({.kind = AttemptResult::Kind::kOutOfMemory, .what = std::string(what)});
  count_unverified(node, UnverifiedReason::kNoMemory);
}

void ReplayVerifier::compare(Node& node, ReplayCheck& check, std::span<const Tensor> replayed,
                             std::span<const Tensor> eager) {
  FunctionState& function = *node.function;
  ReplayCheck::Result result;
  try {
    result = check.compare(replayed, eager);
  } catch (const OutOfMemory& error) {
    return leave_out(node, error.message());
  }
  if (result.divergence) {
    Divergence& divergence = *result.divergence;
    divergence.function = function.name;
    divergence.key = node.recording.key;
    divergence.node = node.id;
    const std::vector<std::string> more = suspects(audit_of(node.recording));
    divergence.suspects.insert(divergence.suspects.end(), more.begin(), more.end());
    ++function.counters.verified;
    ++function.counters.differed;
    ++node.recording.costs.verified;
    tree_.note_compared(function, std::move(result.compared));
    events_.after({.kind = CallEvent::kVerify, .node = &node, .divergence = &divergence});
    throw VerifyError(std::move(divergence));  // other ranks hear of it when the call ends
  }
  if (end_attempt({}).kind != AttemptResult::Kind::kDone) {
    return count_unverified(node, UnverifiedReason::kNoMemory);
  }
  ++function.counters.verified;
  ++node.recording.costs.verified;
  tree_.note_compared(function, std::move(result.compared));
  events_.after({.kind = CallEvent::kVerify, .node = &node});
}

}  // namespace cgtree
