// Votes: the ranks of a group agree on warm-ups, recordings and eager runs. Without a group there
// are no votes, and a rank's own result is the outcome.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "cgtree/memory/context_memory.h"
#include "cgtree/record/call.h"
#include "cgtree/record/open_recording.h"
#include "cgtree/tree/ballot.h"
#include "cgtree/tree/decide.h"
#include "cgtree/tree/evict.h"
#include "cgtree/tree/tree.h"
#include "cgtree/values/options.h"
#include "interop/device/code.h"

namespace cgtree {

// Returns whether the step function made calls that captures forbid, and will make them again.
// After another error a second attempt may succeed: only another thread causes
// kStreamCaptureInvalidated alone.
bool breaks_capture_rules(Code code) noexcept;

// Returns the result of an attempt whose capture gave no recording.
AttemptResult result_of(const CaptureFailure& failure);

// A call that is not a replay is a sequence of attempts: a recording that cannot be kept is
// followed by an eager run. Each attempt begins and ends with a vote, even if it throws.
//
// Thread safety: used by the thread that is inside the context.
class Votes {
 public:
  // The tree, the memory and the evictor are borrowed.
  Votes(const ContextOptions& options, Tree& tree, const ContextMemory& memory, Evictor& evictor)
      : before_first_launch_(options.before_first_launch),
        throws_at_limit_(options.at_limit == AtLimit::kThrow),
        tree_(tree),
        memory_(memory),
        evictor_(evictor) {}

  // Votes on the options, if there is a group; all its ranks must join. `of_extensions`: the
  // options of extensions, in words. Must be called once, when everything else in the context has
  // succeeded. Throws GroupError.
  void join(const ContextOptions& options, std::string_view of_extensions) {
    if (options.group != nullptr) ballot_ = std::make_unique<Ballot>(options, of_extensions);
  }
  bool are_shared() const noexcept { return ballot_ != nullptr; }
  // Returns whether `mine` is true on all ranks: for limits outside of calls. Throws GroupError.
  bool agree(bool mine) { return ballot_ == nullptr ? mine : ballot_->agree(mine); }

  // Begins a call, which makes one attempt or more.
  void begin_call() noexcept { has_trimmed_ = false; }
  // Casts the first vote, on the decision. Throws GroupError.
  void begin(const Decision& decision, const FunctionState& function, const Call& call);
  // Says that this rank has done its part. Throws OtherRankFailed unless all ranks have.
  void settle(Stopwatch* stopwatch);
  // Ends the attempt, if it is open, with the worst of all ranks' results.
  AttemptResult end(AttemptResult mine);
  // Opens the next attempt of a call that goes on after all ranks succeeded.
  void go_on(const FunctionState& function, std::string_view what);
  // Ends a call that threw; `capture` is the result of a capture in it. Tells other ranks, if they
  // do not know it yet; they throw, too. Returns the worst of all ranks' results, if an attempt was
  // open. Does not wait for the stream: its work may wait for a rank that failed. A failed capture
  // counts as on the other ranks, even if this rank threw another error in the same attempt.
  AttemptResult leave(const std::exception_ptr& thrown,
                      AttemptResult::Capture capture = AttemptResult::Capture::kNone,
                      SkipReason reason = SkipReason::kCaptureFailed) noexcept;

  // Returns the hook to run before a recording's first launch (null without a group). All ranks
  // launch or none does, and none keeps a recording that a rank launches only once. settle() must
  // follow when all work before keeping it has succeeded.
  std::function<void(Recording&)> before_launch(FunctionState& function, Stopwatch& stopwatch);
  // Makes the outcome of a capture the same on all ranks. `result`: of this rank, or nothing if it
  // threw. Returns nothing if memory was short and there is room now: no work has run yet, so the
  // call must be decided again. Another result than a Recorded means that the call must run
  // eagerly, which is the next attempt. Throws this rank's exception, unless it is OutOfMemory.
  std::optional<CaptureResult> settle_capture(const FunctionState& function, const Call& call,
                                              std::optional<CaptureResult> result,
                                              const std::exception_ptr& thrown,
                                              Stopwatch& stopwatch);

 private:
  void register_recording(const FunctionState& function, Recording& recording);
  bool makes_room_for(const std::exception_ptr& thrown);

  bool is_open() const noexcept { return ballot_ != nullptr && ballot_->is_open(); }

  std::unique_ptr<Ballot> ballot_;  // null without a group
  const std::function<void(const NewRecording&)> before_first_launch_;
  const bool throws_at_limit_;
  Tree& tree_;
  const ContextMemory& memory_;
  Evictor& evictor_;
  bool is_capture_ = false;         // the open attempt is a capture
  bool has_launched_ = false;       // the open attempt has launched, so a group cannot repeat it
  bool has_trimmed_ = false;        // for this call, which was then decided again
  std::size_t reserved_bytes_ = 0;  // of the pools, when the attempt began
  AttemptResult ended_;             // the worst result of the last attempt
};

}  // namespace cgtree
