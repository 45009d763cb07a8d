// Rendezvous: the threads of ranks, one for each, wait for each other in it, with a time limit.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/condition.h"
#include "base/mutex.h"

namespace cgtree {

// A Rendezvous fails permanently: when a rank does not come in time, when a rank is refused, or by
// fail(). From then on each function returns false at once, and failure() has the reason.
//
// Thread safety: any thread, meet() by one thread at a time for each rank.
class Rendezvous {
 public:
  // Throws InvalidArgument for less than one rank, or a limit that is not positive.
  Rendezvous(int size, std::chrono::milliseconds limit);

  int size() const noexcept { return static_cast<int>(is_here_.size()); }
  std::chrono::milliseconds limit() const noexcept { return limit_; }

  // These are called under the lock. A Check returns the reason why the rendezvous fails, or "".
  using Check = std::function<std::string()>;
  using Enter = std::function<std::string(int first)>;
  using Change = std::function<void()>;

  // Returns true when all ranks have come. `enter` is a Check that is called when this rank comes,
  // with the rank that came first; `complete` is called by the last rank before any rank returns;
  // both may be null.
  bool meet(int rank, const Enter& enter = nullptr, const Change& complete = nullptr);

  // Returns true when `is_done` returns true; it reads only data that change() changes, and waits
  // for `rank`. If that takes longer than the limit, the rendezvous fails with the result of `why`.
  bool wait(int rank, const std::function<bool()>& is_done, const Check& why);
  bool change(const Check& change);

  // The first reason stays.
  void fail(std::string why) noexcept;
  // The rank does not come again: the rendezvous fails with `why` when another rank needs it.
  void leave(int rank, std::string why) noexcept;
  std::string failure() const;  // "" unless it has failed
  bool has_failed() const noexcept;

 private:
  bool fail_locked(std::string why) noexcept;  // returns false
  std::string missing() const;
  // Returns the reason why a rank left; -1: any rank. Null if it did not leave.
  const std::string* left(int rank = -1) const noexcept;

  const std::chrono::milliseconds limit_;
  mutable Mutex<LockRank::kLeaf> mutex_;
  Condition changed_;
  std::uint64_t meeting_ = 0;      // number of this meeting
  std::vector<bool> is_here_;      // by rank: true while it waits in this meeting
  int here_ = 0;                   // number of waiting ranks
  int first_ = 0;                  // the first rank in this meeting, if here_ > 0
  std::vector<std::string> left_;  // by rank: the reason why it does not come again, or ""
  bool has_failed_ = false;
  std::string failure_;
};

}  // namespace cgtree
