// ReplayVerifier: takes turns, and compares replays with eager runs. In a group, whose turn it is
// depends on the calls alone, so that all ranks verify the same calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cgtree/memory/context_memory.h"
#include "cgtree/tree/attempts.h"
#include "cgtree/tree/call_observer.h"
#include "cgtree/tree/verifier.h"

namespace cgtree {

class ReplayVerifier final : public Verifier {
 public:
  // All are borrowed.
  ReplayVerifier(const ContextOptions& options, Tree& tree, ContextMemory& memory,
                 CallObserver& events, Attempts& attempts) noexcept
      : every_(options.verify_every),
        first_(options.verify_first),
        tree_(tree),
        memory_(memory),
        events_(events),
        attempts_(attempts) {}

  // Verifier.
  bool verifies(const FunctionState& function) const noexcept override {
    return every_ > 0 || first_of(function) > 0;
  }
  void watch(Node& node) override;
  bool is_turn(const Node& node) const noexcept override;
  void ask(Node* node) override;
  std::unique_ptr<ReplayCheck> prepare(Node& node, const Call& call) override;
  void begin(Node& node) override;
  void compare(Node& node, ReplayCheck& check, std::span<const Tensor> replayed,
               std::span<const Tensor> eager) override;
  void leave_out(Node& node, std::string_view what) override;

 private:
  void count_unverified(Node& node, UnverifiedReason reason);
  AttemptResult end_attempt(AttemptResult mine);
  std::size_t first_of(const FunctionState& function) const noexcept;

  const std::size_t every_;
  const std::size_t first_;
  Tree& tree_;
  ContextMemory& memory_;
  CallObserver& events_;
  Attempts& attempts_;
  std::vector<std::uint32_t> asked_;  // by id: a node may go before its turn
};

}  // namespace cgtree
