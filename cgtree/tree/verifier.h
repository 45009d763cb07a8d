// Verifier: which replays of a context are verified, and what becomes of it.
//
// A recording whose next replay is to be verified is held back in the tree, so that the call is not
// predicted but decided: that is where it is noticed. All other replays ask nothing. In a group,
// whose turn it is depends on the calls alone, so that all ranks verify the same calls.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "cgtree/memory/context_memory.h"
#include "cgtree/record/call.h"
#include "cgtree/record/replay_check.h"
#include "cgtree/tree/attempts.h"
#include "cgtree/tree/call_observer.h"
#include "cgtree/tree/tree.h"

namespace cgtree {

// Thread safety: used by the thread that is inside the context.
class Verifier {
 public:
  // All are borrowed.
  Verifier(const ContextOptions& options, Tree& tree, ContextMemory& memory, CallObserver& events,
           Attempts& attempts) noexcept
      : every_(options.verify_every),
        first_(options.verify_first),
        tree_(tree),
        memory_(memory),
        events_(events),
        attempts_(attempts) {}

  // Must be called when a replay of a node that is held back was counted, with verify_every any
  // replay, and when a recording has been made: holds the node back, or no longer. A replay is
  // counted when it begins, as other ranks may see it succeed; one that is to be verified, when it
  // has succeeded on all ranks.
  void watch(Node& node);
  // Returns whether the next replay of the node is to be verified. Among the first replays others
  // are held back, too, so that none that is predicted has to be watched for their sake.
  bool is_turn(const Node& node) const noexcept;

  // The turn of the node has come: prepares the comparison of its next replay, and lets that be an
  // attempt, which must be settled. Returns null if it is left out, on any rank. Throws
  // DeviceError, GroupError.
  std::unique_ptr<ReplayCheck> prepare(Node& node, const Call& call);
  // The node was replayed, and the eager run begins: compare() or leave_out() must follow. Throws
  // GroupError.
  void begin(Node& node);
  // `replayed`, `eager`: the outputs of the two. Throws VerifyError, DeviceError, and GroupError if
  // another rank has thrown.
  void compare(Node& node, ReplayCheck& check, std::span<const Tensor> replayed,
               std::span<const Tensor> eager);
  // There was no memory for the eager run. Throws GroupError.
  void leave_out(Node& node, std::string_view what);

 private:
  void count_unverified(Node& node, UnverifiedReason reason);
  AttemptResult end_attempt(AttemptResult mine);

  std::size_t first_of(const Node& node) const noexcept;

  const std::size_t every_;
  const std::size_t first_;
  Tree& tree_;
  ContextMemory& memory_;
  CallObserver& events_;
  Attempts& attempts_;
};

}  // namespace cgtree
