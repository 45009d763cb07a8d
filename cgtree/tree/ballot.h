// Ballot: how a context decides about a call together with others.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

#include "base/error.h"
#include "cgtree/tree/digest.h"
#include "cgtree/values/explanation.h"
#include "cgtree/values/options.h"

namespace cgtree {

// How an attempt went on one rank, or on the rank where it went worst. The worst comes first.
struct AttemptResult {
  // kRunsOnce: the graph is launched once, and is no recording.
  enum class Kind { kFailed, kOutOfMemory, kCaptureFailed, kRunsOnce, kDone };

  Kind kind = Kind::kDone;
  SkipReason reason = SkipReason::kCaptureFailed;  // kCaptureFailed
  std::chrono::microseconds time{0};               // spent on warm-ups and recordings so far
  std::size_t graph_bytes = 0;                     // of the recording
  // Whether a capture has failed, on any rank, and for kBreaksRules will do so again; also if the
  // rank has then thrown.
  enum class Capture { kNone, kFailed, kBreaksRules };
  Capture capture = Capture::kNone;
  std::string what;  // why it is not kDone
};

// Another rank could not do what this one has done.
class OtherRankFailed : public GroupError {
 public:
  explicit OtherRankFailed(AttemptResult worst)
      : GroupError(worst.what), result_(std::move(worst)) {}
  const AttemptResult& result() const noexcept { return result_; }

 private:
  AttemptResult result_;
};

// A Ballot is one context's end of the votes of a group; a context that is in none has no ballot.
// Agreement is what there is, and says what is voted on.
//
// Thread safety: used by the thread that is inside the context.
class Ballot {
 public:
  Ballot() = default;
  Ballot(const Ballot&) = delete;
  Ballot& operator=(const Ballot&) = delete;
  virtual ~Ballot() = default;

  // The first vote, on what the rank is about to do: `what` says it in words, `digest` and the
  // options of the function must be the same on all ranks. An attempt is open from then on. Throws
  // GroupError that shows what each rank is about to do, if it is not the same. Requires: no
  // attempt is open.
  virtual void begin(const CompileOptions& options, Digest digest, std::string what) = 0;
  virtual bool is_open() const noexcept = 0;

  // The second vote. Returns the worst of the results, with the largest figures. Without an open
  // attempt it returns `mine`. Throws GroupError.
  virtual AttemptResult end(AttemptResult mine) = 0;

  // All ranks have just said that they are done, and all go on with the same: another attempt is
  // open, without a first vote. Requires: no attempt is open.
  virtual void go_on(std::string what) = 0;

  // Returns whether all ranks say `mine`, outside of attempts. Throws GroupError.
  virtual bool agree(bool mine) = 0;
};

}  // namespace cgtree
