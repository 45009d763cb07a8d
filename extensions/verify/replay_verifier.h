// ReplayVerifier: takes turns, and compares replays with eager runs. In a group, turns depend only
// on the calls, so that all ranks verify the same calls.
//
// A recording whose next replay must be verified is held back in the tree, so that the call is not
// predicted but decided: the decision notices the turn. All other replays check nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cgtree/tree/engine.h"
#include "extensions/verify/verify.h"

namespace cgtree {

class ReplayVerifier final : public Extension {
 public:
  // `engine`: borrowed. Throws InvalidArgument: see verify().
  ReplayVerifier(const VerifyOptions& options, Engine& engine);

  std::size_t every() const noexcept { return every_; }
  std::size_t first_of(const FunctionState& function) const noexcept;
  // Returns whether replays of the function have turns to be verified.
  bool verifies(const FunctionState& function) const noexcept {
    return every_ > 0 || first_of(function) > 0;
  }
  // The next replay of the node is verified in any case; null ends the request.
  void ask(Node* node);

  // Extension.
  int order() const noexcept override { return -100; }
  std::string shared_options() const override;
  std::unique_ptr<ReplayCheck> before_replay(Node& node, const Call& call) override;
  bool is_turn(const Node& node) const noexcept override;
  void after(const CallEvent& event) noexcept override;
  Wants wants() const noexcept override { return {.replays = every_ > 0}; }

 private:
  class Check;

  void watch(Node& node) noexcept;
  void count_unverified(Node& node, UnverifiedReason reason);
  AttemptResult end_attempt(AttemptResult mine);

  const std::size_t every_;
  const std::size_t first_;
  Engine& engine_;
  std::vector<std::uint32_t> asked_;  // by id: a node may be dropped before its turn
};

}  // namespace cgtree
