// Takes turns, votes on the replays to verify and on the results, counts, and throws VerifyError
// for differences.
#include "extensions/verify/replay_verifier.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "base/format.h"
#include "extensions/audit/audit.h"
#include "extensions/verify/replay_comparison.h"

namespace cgtree {
namespace {

// Returns n of CGTREE_VERIFY=n in the environment; 0 without it.
std::size_t every_of_environment() {
  const char* const text = std::getenv("CGTREE_VERIFY");
  if (text == nullptr || *text == '\0') return 0;
  std::size_t every = 0;
  const char* const end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, every);
  if (error == std::errc() && rest == end) return every;
  throw InvalidArgument(
      str_format("CGTREE_VERIFY is \"{}\" in the environment, and a whole number is expected: n to "
                 "verify every n-th replay of each recording, 0 to verify none",
                 text));
}

}  // namespace

ExtensionFactory verify(VerifyOptions options) {
  return [options](Engine& engine) { return std::make_unique<ReplayVerifier>(options, engine); };
}

// A replay is counted when it begins, as other ranks may see it succeed; a replay to be verified,
// when it has succeeded on all ranks.
class ReplayVerifier::Check final : public ReplayCheck {
 public:
  Check(ReplayVerifier& verifier, Node& node, std::unique_ptr<ReplayComparison> comparison) noexcept
      : verifier_(verifier), node_(node), comparison_(std::move(comparison)) {}

  void begin_eager_run() override {
    verifier_.engine_.votes.go_on(*node_.function, "verify a replay of");
    comparison_->begin_eager_run();
  }
  StepRun run_as() const noexcept override { return comparison_->run_as(); }
  DrawHandler& draws() noexcept override { return comparison_->draws(); }
  void compare(std::span<const Tensor> replayed, std::span<const Tensor> eager) override;
  void leave_out(std::string_view what) override;

 private:
  ReplayVerifier& verifier_;
  Node& node_;
  std::unique_ptr<ReplayComparison> comparison_;
};

ReplayVerifier::ReplayVerifier(const VerifyOptions& options, Engine& engine)
    : every_(options.every > 0 ? options.every : every_of_environment()),
      first_(options.first),
      engine_(engine) {
}

std::string ReplayVerifier::shared_options() const {
  return str_format("verify {} and first {}", every_, first_);
}

std::size_t ReplayVerifier::first_of(const FunctionState& function) const noexcept {
  return std::max(first_, function.options.verify_first);
}

void ReplayVerifier::after(const CallEvent& event) noexcept {
  const bool is_next = event.kind == CallEvent::kRecord || event.kind == CallEvent::kBeginReplay;
  if (is_next) watch(*event.node);
}

// Holds the node back if its next replay has a turn, or is among the first replays, so that no
// predicted replay needs a check. Among these, number 2^k is turn k.
void ReplayVerifier::watch(Node& node) noexcept {
  const std::uint64_t next = node.recording.costs.replays + 1;
  const auto turns_before = static_cast<std::size_t>(std::bit_width(next - 1));
  const bool is_among_first = turns_before < first_of(*node.function);
  is_among_first || is_turn(node) ? engine_.tree.hold_back(node) : engine_.tree.release(node);
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
  engine_.tree.hold_back(*node);
}

void ReplayVerifier::count_unverified(Node& node, UnverifiedReason reason) {
  ++node.function->counters.unverified[static_cast<std::size_t>(reason)];
  ++node.recording.costs.unverified;
  engine_.extensions.after({.kind = CallEvent::kUnverified, .node = &node, .unverified = reason});
}

// Returns the worst of all ranks' results, unless a rank failed.
AttemptResult ReplayVerifier::end_attempt(AttemptResult mine) {
  AttemptResult worst = engine_.votes.end(std::move(mine));
  if (worst.kind == AttemptResult::Kind::kFailed) throw OtherRankFailed(std::move(worst));
  return worst;
}

std::unique_ptr<ReplayCheck> ReplayVerifier::before_replay(Node& node, const Call& call) {
  if (!is_turn(node)) return nullptr;
  std::erase(asked_, node.id);
  engine_.votes.begin({.outcome = Outcome::kReplay, .node = &node}, *node.function, call);
  auto why_not = UnverifiedReason::kNoMemory;
  auto comparison = ReplayComparison::prepare(call, node.recording, *engine_.memory, &why_not);
  AttemptResult mine;
  if (comparison == nullptr)
    mine = {.kind = AttemptResult::Kind::kOutOfMemory, .what = std::string(name(why_not))};
  if (end_attempt(std::move(mine)).kind == AttemptResult::Kind::kDone) {
    engine_.votes.go_on(*node.function, "replay");
    return std::make_unique<Check>(*this, node, std::move(comparison));
  }
  count_unverified(node, comparison == nullptr ? why_not : UnverifiedReason::kNoMemory);
  return nullptr;
}

void ReplayVerifier::Check::leave_out(std::string_view what) {
  comparison_.reset();  // the replay's contents are restored before the others are notified
  (void)verifier_.end_attempt(
      {.kind = AttemptResult::Kind::kOutOfMemory, .what = std::string(what)});
  verifier_.count_unverified(node_, UnverifiedReason::kNoMemory);
}

void ReplayVerifier::Check::compare(std::span<const Tensor> replayed,
                                    std::span<const Tensor> eager) {
  Node& node = node_;
  FunctionState& function = *node.function;
  Engine& engine = verifier_.engine_;
  ReplayComparison::Result result;
  try {
    result = comparison_->compare(replayed, eager);
  } catch (const OutOfMemory& error) {
    return leave_out(error.message());
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
    engine.tree.note_compared(function, std::move(result.compared));
    engine.extensions.after({.kind = CallEvent::kVerify, .node = &node, .divergence = &divergence});
    throw VerifyError(std::move(divergence));  // other ranks learn of it when the call ends
  }
  if (verifier_.end_attempt({}).kind != AttemptResult::Kind::kDone) {
    return verifier_.count_unverified(node, UnverifiedReason::kNoMemory);
  }
  ++function.counters.verified;
  ++node.recording.costs.verified;
  engine.tree.note_compared(function, std::move(result.compared));
  engine.extensions.after({.kind = CallEvent::kVerify, .node = &node});
}

}  // namespace cgtree
