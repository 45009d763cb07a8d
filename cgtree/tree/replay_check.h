// ReplayCheck: compares a replay with an eager run of the same call.
#pragma once

#include <span>
#include <string_view>

#include "cgtree/record/step.h"
#include "interop/random/generator.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// A ReplayCheck is of one replay. The extension that has made it lets the replay and the run be
// attempts, on whose outcome the ranks of a group vote.
class ReplayCheck {
 public:
  virtual ~ReplayCheck() = default;

  // The node was replayed, and the eager run begins: compare() or leave_out() must follow. Gives
  // all that the work writes the contents from before the replay, and draws the numbers of the
  // replay again, until compare() returns or this is destroyed. Throws DeviceError, GroupError.
  virtual void begin_eager_run() = 0;
  // How the work is to run: with the call's actual sizes, so that the effect of padding shows.
  // Padded alike if the work draws, because other sizes draw other numbers, and if it is an
  // engine's, whose sizes are in its key.
  virtual StepRun run_as() const noexcept = 0;
  // Returns the source of random numbers in the eager run. Requires: begin_eager_run().
  virtual DrawHandler& draws() noexcept = 0;
  // Compares, and gives all that the work writes the contents that the replay has left, however
  // this ends. Waits for the stream. `replayed`, `eager`: the outputs of the two. Requires: the
  // eager run is over. Throws VerifyError, DeviceError, and GroupError if another rank has thrown.
  virtual void compare(std::span<const Tensor> replayed, std::span<const Tensor> eager) = 0;
  // There was no memory for the eager run. Throws GroupError.
  virtual void leave_out(std::string_view what) = 0;
};

}  // namespace cgtree
