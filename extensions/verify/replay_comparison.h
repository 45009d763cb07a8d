// ReplayComparison: compares a replay with an eager run of the same call.
//
// Example: a step adds its input to a static cache, and returns the sum.
//
//   prepare()   saved = cache                 the cache holds 1
//   replay      cache = 3, output = 3         by the recording
//   begin_eager_run()   saved <-> cache       the cache holds 1 again, saved 3
//   the step runs       cache = 3             and an output in memory of its own
//   compare()   saved is compared with cache, output with output
//               cache = saved                 what the replay has left
//
// The order keeps the verification from disturbing the replay: it comes first, and its outputs are
// at their usual addresses.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "cgtree/memory/context_memory.h"
#include "cgtree/record/call.h"
#include "cgtree/record/recording.h"
#include "cgtree/record/step.h"
#include "extensions/verify/element_pairs.h"
#include "extensions/verify/repeated_draws.h"
#include "extensions/verify/verification.h"

namespace cgtree {

class ReplayComparison {
 public:
  struct Result {
    std::vector<VerifiedTensor> compared;
    std::optional<Divergence> divergence;  // the first; without function, key, node and suspects
  };

  // Saves the memory that the work of the call may write: inputs, and outputs that are memory from
  // outside. Returns null, and the reason, if a replay of this recording cannot be verified now.
  // All arguments are borrowed. Requires: the recording fits the call. Throws DeviceError.
  static std::unique_ptr<ReplayComparison> prepare(const Call& call, const Recording& recording,
                                                   ContextMemory& memory,
                                                   UnverifiedReason* why_not);
  ~ReplayComparison();
  ReplayComparison(const ReplayComparison&) = delete;
  ReplayComparison& operator=(const ReplayComparison&) = delete;

  // See ReplayCheck.
  void begin_eager_run();
  StepRun run_as() const noexcept {
    return runs_padded_ ? StepRun::kVerifyPadded : StepRun::kVerify;
  }
  DrawHandler& draws() noexcept { return draws_; }
  // Requires: begin_eager_run() was called. Must be called once. Throws OutOfMemory, DeviceError.
  Result compare(std::span<const Tensor> replayed, std::span<const Tensor> eager);

 private:
  // A tensor that the work may write.
  struct Written {
    Divergence::Of of;
    std::uint32_t index;  // of the input, or of the output
    Tensor tensor;        // all elements that may be written
    Tensor actual;        // the part that the caller sees
    Tensor saved;         // a dense copy
  };
  // One comparison of two tensors.
  struct Pair {
    Divergence::Of of;
    std::uint32_t index;
    Tensor replayed;
    Tensor eager;
  };
  class PutBack;

  ReplayComparison(const Call& call, const Recording& recording, ContextMemory& memory);

  bool shares_memory() const;
  void save();
  Tensor make_like(const Tensor& tensor) const;
  bool is_written(std::uint32_t input) const;
  // Returns the saved memory of the output, if it is memory from outside.
  const Written* find_constant(const Tensor& output) const;
  std::optional<Divergence> pair_outputs(std::span<const Tensor> replayed,
                                         std::span<const Tensor> eager);
  bool is_compared(const Pair& pair) const;
  std::optional<Divergence> compare_pairs(std::vector<VerifiedTensor>* compared);
  Divergence describe(const Pair& pair, const ComparedElements& found) const;
  std::string what(Divergence::Of of, std::uint32_t index) const;
  double tolerance(const Pair& pair) const;
  double tolerance(Divergence::Of of, std::uint32_t index) const;
  bool is_cut(const Tensor& replayed, const Tensor& eager) const;

  const Call& call_;
  const Recording& recording_;
  ContextMemory& memory_;
  const bool runs_padded_;   // so does the eager run
  const bool sizes_differ_;  // between the eager run and the replay
  std::vector<Written> written_;
  StorageRef found_;  // a ComparedElements for each possible pair
  std::vector<Pair> pairs_;
  RepeatedDraws draws_;
  std::unique_ptr<PutBack> put_back_;  // during the eager run; destroyed first
};

}  // namespace cgtree
