// Verifier: which replays of a context are verified, and what becomes of it.
//
// A recording whose next replay is to be verified is held back in the tree, so that the call is not
// predicted but decided: that is where it is noticed. All other replays ask nothing.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cgtree/record/call.h"
#include "cgtree/record/step.h"
#include "cgtree/tree/tree.h"
#include "interop/random/generator.h"

namespace cgtree {

// A ReplayCheck compares a replay with an eager run of the same call.
class ReplayCheck {
 public:
  struct Result {
    std::vector<VerifiedTensor> compared;
    std::optional<Divergence> divergence;  // the first; without function, key, node and suspects
  };

  virtual ~ReplayCheck() = default;

  // Gives all that the work writes the contents from before the replay, and draws the numbers of
  // the replay again, until compare() returns or this is destroyed. Requires: the recording was
  // replayed. Throws DeviceError.
  virtual void begin_eager_run() = 0;
  // How the work is to run: with the call's actual sizes, so that what a replay makes of its
  // padding shows. Padded alike if the work draws, because other sizes draw other numbers, and if
  // it is an engine's, whose sizes are in its key.
  virtual StepRun run_as() const noexcept = 0;
  // Where random numbers come from in the eager run. Requires: begin_eager_run().
  virtual DrawHandler& draws() noexcept = 0;
  // Compares, and gives all that the work writes the contents that the replay has left, however
  // this ends. Waits for the stream. `replayed`, `eager`: the outputs of the two. Requires: the
  // eager run is over. Throws OutOfMemory, DeviceError. Must be called once.
  virtual Result compare(std::span<const Tensor> replayed, std::span<const Tensor> eager) = 0;
};

// A context that verifies nothing has no Verifier. ReplayVerifier is the one there is.
//
// Thread safety: used by the thread that is inside the context.
class Verifier {
 public:
  Verifier() = default;
  Verifier(const Verifier&) = delete;
  Verifier& operator=(const Verifier&) = delete;
  virtual ~Verifier() = default;

  // Returns whether replays of the function have turns to be verified.
  virtual bool verifies(const FunctionState& function) const noexcept = 0;
  // Must be called when a replay of a node that is held back was counted, with verify_every any
  // replay, and when a recording has been made: holds the node back, or no longer. A replay is
  // counted when it begins, as other ranks may see it succeed; one that is to be verified, when it
  // has succeeded on all ranks.
  virtual void watch(Node& node) = 0;
  // Returns whether the next replay of the node is to be verified. Among the first replays others
  // are held back, too, so that none that is predicted has to be watched for their sake.
  virtual bool is_turn(const Node& node) const noexcept = 0;
  // The next replay of the node is to be verified, whatever its turn is; null: of no node any more.
  virtual void ask(Node* node) = 0;

  // The turn of the node has come: prepares the comparison of its next replay, and lets that be an
  // attempt, which must be settled. Returns null if it is left out, on any rank. Throws
  // DeviceError, GroupError.
  virtual std::unique_ptr<ReplayCheck> prepare(Node& node, const Call& call) = 0;
  // The node was replayed, and the eager run begins: compare() or leave_out() must follow. Throws
  // GroupError.
  virtual void begin(Node& node) = 0;
  // `replayed`, `eager`: the outputs of the two. Throws VerifyError, DeviceError, and GroupError if
  // another rank has thrown.
  virtual void compare(Node& node, ReplayCheck& check, std::span<const Tensor> replayed,
                       std::span<const Tensor> eager) = 0;
  // There was no memory for the eager run. Throws GroupError.
  virtual void leave_out(Node& node, std::string_view what) = 0;
};

}  // namespace cgtree
