// ReplayCheck: compares a replay with an eager run of the same call.
#pragma once

#include <span>
#include <string_view>

#include "cgtree/record/step.h"
#include "interop/random/generator.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// A ReplayCheck belongs to one replay. The extension that made it makes the replay and the eager
// run attempts, so that the ranks of a group vote on their results.
class ReplayCheck {
 public:
  virtual ~ReplayCheck() = default;

  // Begins the eager run, after the node was replayed: compare() or leave_out() must follow.
  // Restores the contents from before the replay in all memory that the work writes, and repeats
  // the replay's random numbers, until compare() returns or this is destroyed. Throws DeviceError,
  // GroupError.
  virtual void begin_eager_run() = 0;
  // Returns how the work must run: with the call's actual sizes, so that the effect of padding
  // shows. It is padded alike if the work draws random numbers, because other sizes draw other
  // numbers, and if it is an engine's, whose sizes are in its key.
  virtual StepRun run_as() const noexcept = 0;
  // Returns the source of random numbers in the eager run. Requires: begin_eager_run().
  virtual DrawHandler& draws() noexcept = 0;
  // Compares, and in any case restores the contents that the replay left in memory that the work
  // writes. Waits for the stream. `replayed`, `eager`: the outputs of the two. Requires: the eager
  // run has ended. Throws VerifyError, DeviceError, and GroupError if another rank threw.
  virtual void compare(std::span<const Tensor> replayed, std::span<const Tensor> eager) = 0;
  // Says that there was no memory for the eager run. Throws GroupError.
  virtual void leave_out(std::string_view what) = 0;
};

}  // namespace cgtree
