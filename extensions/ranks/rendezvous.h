// Rendezvous: where the threads of ranks, one for each, wait for each other, with a time limit.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/condition.h"
#include "base/mutex.h"

namespace cgtree {

// A Rendezvous fails once and for good: when a rank does not come in time, when one is refused, or
// by fail(). From then on each function returns false at once, and failure() says why.
//
// Thread safety: any thread, meet() by one thread at a time for each rank.
class Rendezvous {
 public:
  // Throws InvalidArgument for less than one rank, or a limit that is not positive.
  Rendezvous(int size, std::chrono::milliseconds limit);

  int size() const noexcept { return static_cast<int>(is_here_.size()); }
  std::chrono::milliseconds limit() const noexcept { return limit_; }

  // These are called under the lock. A Check returns why the rendezvous fails, or "".
  using Check = std::function<std::string()>;
  using Enter = std::function<std::string(int first)>;
  using Change = std::function<void()>;

  // Returns true when all ranks have come. `enter` is a Check that is called when this rank comes,
  // with the rank that came first, `complete` by the last one before any returns; both may be null.
  bool meet(int rank, const Enter& enter = nullptr, const Change& complete = nullptr);

  // Returns true when `is_done` does, which reads only what change() changes and waits for `rank`.
  // If that takes longer than the limit, the rendezvous fails with what `why` returns.
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
  // Returns why a rank has left; -1: any rank. Null if it has not.
  const std::string* left(int rank = -1) const noexcept;

  const std::chrono::milliseconds limit_;
  mutable Mutex<LockRank::kLeaf> mutex_;
  Condition changed_;
  std::uint64_t meeting_ = 0;      // its number
  std::vector<bool> is_here_;      // by rank: it waits in this meeting
  int here_ = 0;                   // how many do
  int first_ = 0;                  // the rank that came first to this meeting, if here_ > 0
  std::vector<std::string> left_;  // by rank: why it does not come again, or ""
  bool has_failed_ = false;
  std::string failure_;
};

}  // namespace cgtree
