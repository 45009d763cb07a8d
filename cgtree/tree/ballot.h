// Ballot: how the contexts of a group decide about a call together.
//
// The decision about a call is a function of the earlier calls and of the options. Ranks that make
// the same calls therefore decide alike without communication, as long as everything that decide()
// reads is the same on all of them. Facts that differ by nature, such as failures, are made equal
// by two votes in each call that is not a replay:
//
//   rank 0: first vote   warm up, record or run      second vote   keep it, launch it, or undo it
//   rank 1: first vote   warm up, record or run      second vote   the same
//
//   first vote    All ranks are about to do the same: a digest of their history, of this call and
//                 of the decision. Nothing has happened yet if these differ.
//   second vote   The worst of the results is the result of all: if one rank cannot record, none
//                 does. Measured time and bytes of the graph become the largest of the ranks'
//                 figures. All ranks thus reach limits, and evict recordings, in the same call.
//
// The second vote on a recording comes before its first launch, because a launch needs all ranks. A
// third vote follows when the launch, the functions of breaks and everything else have succeeded:
// only then do all ranks keep the recording, or none does.
//
// Three rules keep the remaining state equal: pools grow in place, so that the distances between
// addresses in them depend only on live blocks and on the requests; no rank drops a recording
// alone, after lack of memory or a refused launch; and a replay, which has no vote, counts when it
// begins, so that a rank on which it throws has the same counts as the others. The caller must make
// the same calls, and release outputs at the same points between them: if a call throws on one rank
// alone, the others release its outputs.
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

// The result of an attempt on one rank, or the worst of all ranks. The first kind is the worst.
struct AttemptResult {
  // kRunsOnce: the graph is launched once and not kept as a recording.
  enum class Kind { kFailed, kOutOfMemory, kCaptureFailed, kRunsOnce, kDone };

  Kind kind = Kind::kDone;
  SkipReason reason = SkipReason::kCaptureFailed;  // kCaptureFailed
  std::chrono::microseconds time{0};               // spent on warm-ups and recordings so far
  std::size_t graph_bytes = 0;                     // of the recording
  // Tells if a capture failed on any rank, also a throwing rank. kBreaksRules: it will fail again.
  enum class Capture { kNone, kFailed, kBreaksRules };
  Capture capture = Capture::kNone;
  std::string what;  // the reason of another kind than kDone
};

// An OtherRankFailed says that this rank succeeded in an attempt and another rank failed.
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

// A Ballot holds one context's votes in a group.
//
// Thread safety: used by the thread that is inside the context.
class Ballot {
 public:
  // Votes on the options, and on those of extensions in words. Throws GroupError if they differ,
  // and as Group::minimum(). Requires: options.group.
  Ballot(const ContextOptions& options, std::string_view of_extensions);

  // Casts the first vote, on the action that the rank is about to take: `what` describes it;
  // `digest` and the options of the function must be the same on all ranks. An attempt is open from
  // then on. If they differ, throws GroupError with each rank's action. Requires: no attempt is
  // open.
  void begin(const CompileOptions& options, Digest digest, std::string what);
  bool is_open() const noexcept { return !what_.empty(); }

  // Casts the second vote. Returns the worst of the results, with the largest figures. Without an
  // open attempt it returns `mine`. Throws GroupError.
  AttemptResult end(AttemptResult mine);

  // Opens another attempt without a first vote: all ranks have just voted that they are done, and
  // all continue with the same action. Requires: no attempt is open.
  void go_on(std::string what);

  // Returns whether `mine` is true on all ranks, outside of attempts. Throws GroupError.
  bool agree(bool mine) { return cgtree::agree(*group_, mine); }

 private:
  enum class Vote { kOptions, kBegin, kEnd };
  // All votes have as many words, so that two ranks at different votes detect this by the digest.
  using Words = std::array<std::uint64_t, 6>;

  Words vote(Vote vote, Words words, const std::string& what);

  const std::shared_ptr<Group> group_;
  std::string what_;          // "" while no attempt is open
  std::uint64_t digest_ = 0;  // of the open attempt
};

}  // namespace cgtree
