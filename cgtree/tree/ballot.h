// Ballot: how contexts of a group decide about a call together.
//
// The way of a call is a function of the calls before it and of the options. So ranks that make the
// same calls do the same, and need not ask each other, as long as all that decide() reads is the
// same on all of them. Facts that differ by nature are made the same, by two votes in each call
// that is no replay:
//
//   rank 0: first vote   warm up, record or run      second vote   keep it, launch it, or undo it
//   rank 1: first vote   warm up, record or run      second vote   the same
//
//   first vote    All ranks are about to do the same: a digest of their history, of this call and
//                 of the decision. Nothing has happened yet if it differs.
//   second vote   The worst of the results is the result of all: if one rank cannot record, none
//                 does. Measured time and bytes of the graph become the largest of the ranks'
//                 figures. So limits are reached, and recordings evicted, by all in
//                 one call.
//
// The second vote on a recording comes before its first launch, because a launch needs all ranks. A
// third one follows when the launch, the functions of breaks and all else have succeeded: only then
// is the recording kept, by all ranks or by none.
//
// Three rules keep the rest the same: pools grow in place, so that the distances between addresses
// in them depend on live blocks and on the requests alone; no rank drops a recording on its own,
// for want of memory or after a refused launch; and a replay, which has no vote, counts when it
// begins, so that a rank on which it throws knows as much as the others. The caller's part is to
// make the same calls, and to release outputs at the same points between them: where a call has
// thrown on one rank alone, the others release theirs.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "cgtree/tree/digest.h"
#include "cgtree/values/explanation.h"
#include "cgtree/values/group.h"
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

Digest digest_of(const ContextOptions& options);
Digest digest_of(const CompileOptions& options);

// A Ballot is one context's end of the votes of a group.
//
// Thread safety: used by the thread that is inside the context.
class Ballot {
 public:
  // Votes on the options, and on those of extensions in words. Throws GroupError if they differ,
  // and as Group::minimum(). Requires: options.group.
  Ballot(const ContextOptions& options, std::string_view of_extensions);

  // The first vote, on what the rank is about to do: `what` says it in words, `digest` and the
  // options of the function must be the same on all ranks. An attempt is open from then on. Throws
  // GroupError that shows what each rank is about to do, if it is not the same. Requires: no
  // attempt is open.
  void begin(const CompileOptions& options, Digest digest, std::string what);
  bool is_open() const noexcept { return !what_.empty(); }

  // The second vote. Returns the worst of the results, with the largest figures. Without an open
  // attempt it returns `mine`. Throws GroupError.
  AttemptResult end(AttemptResult mine);

  // All ranks have just said that they are done, and all go on with the same: another attempt is
  // open, without a first vote. Requires: no attempt is open.
  void go_on(std::string what);

  // Returns whether all ranks say `mine`, outside of attempts. Throws GroupError.
  bool agree(bool mine) { return cgtree::agree(*group_, mine); }

 private:
  enum class Vote { kOptions, kBegin, kEnd };
  // All votes have as many words, so that two ranks at different votes find out by the digest.
  using Words = std::array<std::uint64_t, 6>;

  Words vote(Vote vote, Words words, const std::string& what);

  const std::shared_ptr<Group> group_;
  std::string what_;          // "" while no attempt is open
  std::uint64_t digest_ = 0;  // of the open attempt
};

}  // namespace cgtree
