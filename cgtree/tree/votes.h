// Votes: the ranks of a group agree on warm-ups, recordings and eager runs. Without a group nothing
// is asked, and a rank's own result is the outcome.
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

// Returns whether the step function did what captures forbid, and will do it again. After another
// error a second try may succeed: kStreamCaptureInvalidated alone is the deed of another thread.
bool breaks_capture_rules(Code code) noexcept;

// Returns the meaning for an attempt of a capture that gave no recording.
AttemptResult result_of(const CaptureFailure& failure);

// A call that is no replay is one attempt after the other: a recording that cannot be kept is
// followed by an eager run. Each begins with a vote and ends with one, whatever happens.
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

  // Votes on the options with the ranks of the group, if there is one, which all ranks join.
  // `of_extensions`: their options, in words. Must be called once, when nothing else of the context
  // can fail. Throws GroupError.
  void join(const ContextOptions& options, std::string_view of_extensions) {
    if (options.group != nullptr) ballot_ = std::make_unique<Ballot>(options, of_extensions);
  }
  bool are_shared() const noexcept { return ballot_ != nullptr; }
  // Returns whether all ranks say `mine`: for limits outside of calls. Throws GroupError.
  bool agree(bool mine) { return ballot_ == nullptr ? mine : ballot_->agree(mine); }

  // A call begins, which makes one attempt or more.
  void begin_call() noexcept { has_trimmed_ = false; }
  // The first vote, on the decision. Throws GroupError.
  void begin(const Decision& decision, const FunctionState& function, const Call& call);
  // What this rank was to do is done. Throws OtherRankFailed if that is not so on all ranks.
  void settle(Stopwatch* stopwatch);
  // Ends the attempt, if one is open, with the worst of all ranks' results.
  AttemptResult end(AttemptResult mine);
  // All ranks are done with the attempt, and the call goes on: how, is another one.
  void go_on(const FunctionState& function, std::string_view what);
  // The call ends with this exception, and `capture` is the result of a capture in it. Other ranks
  // are told, if they do not know it yet; they throw, too. Returns the worst of all ranks' results,
  // of an attempt that was open. Nothing waits for the stream: it may wait for a rank that has
  // failed. A capture counts as it does on the others, also if this rank has thrown something of
  // its own in the same attempt.
  AttemptResult leave(const std::exception_ptr& thrown,
                      AttemptResult::Capture capture = AttemptResult::Capture::kNone,
                      SkipReason reason = SkipReason::kCaptureFailed) noexcept;

  // Returns what is called when a recording is ready to be launched, or null: all ranks launch it,
  // or none, and none keeps one that a rank launches once. settle() must follow when all has
  // succeeded that is to be done before it is kept.
  std::function<void(Recording&)> before_launch(FunctionState& function, Stopwatch& stopwatch);
  // Makes the outcome of a capture that of all ranks. `result`: of this one, or none if it has
  // thrown. Returns nothing if memory was short and there is room now: nothing has run yet, so the
  // call is to be decided again. Another result than a Recorded means that the call is to be run
  // eagerly, which is the next attempt. Throws what was thrown, unless that is OutOfMemory.
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
  bool is_capture_ = false;    // the attempt that is open
  bool has_launched_ = false;  // the attempt that is open: in a group there is no other way then
  bool has_trimmed_ = false;   // for this call, which was then decided again
  std::size_t reserved_bytes_ = 0;  // of the pools, when the attempt began
  AttemptResult ended_;             // the worst of the attempt that has ended last
};

}  // namespace cgtree
