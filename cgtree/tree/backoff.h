// Backoff: decides when to retry an attempt that did not pay, such as a capture that failed.
#pragma once

#include <algorithm>
#include <cstdint>

namespace cgtree {

// A Backoff counts failed attempts in a row. After the allowed number, calls wait before the next
// attempt, each time twice as long. Waits are counted in calls, not in time, so that the ranks of a
// group decide alike.
//
// Example: with two attempts allowed, failures at calls 1 and 2 make calls 3 to 66 wait. Call 67
// tries again; if it fails, calls 68 to 195 wait.
class Backoff {
 public:
  static constexpr std::uint64_t kFirstWait = 64;
  static constexpr std::uint64_t kForGood = UINT64_MAX;

  explicit constexpr Backoff(unsigned tries, std::uint64_t first_wait = kFirstWait) noexcept
      : tries_(tries), left_(tries), first_wait_(first_wait) {}

  // Returns whether the next call waits.
  bool waits() const noexcept { return left_ == 0; }
  // Returns how many calls wait before the next try, or kForGood. Requires: waits().
  std::uint64_t calls_left() const noexcept { return calls_left_; }
  // Returns the number of failed attempts in a row, at most the allowed number.
  unsigned failures() const noexcept { return tries_ - left_; }

  // Notes a failed attempt. `for_good`: later ones will fail, too. No effect while calls wait.
  void note_failure(bool for_good = false) noexcept {
    if (waits()) return;
    left_ = for_good ? 0 : left_ - 1;
    if (left_ > 0) return;
    calls_left_ = for_good ? kForGood : next_wait_;
    next_wait_ *= 2;
  }
  // Notes that `calls` calls had to wait.
  void note_wait(std::uint64_t calls = 1) noexcept {
    if (!waits() || calls_left_ == kForGood) return;
    calls_left_ -= std::min(calls, calls_left_);
    if (calls_left_ == 0) left_ = 1;
  }
  // Notes an attempt that paid.
  void reset() noexcept {
    left_ = tries_;
    next_wait_ = first_wait_;
  }

 private:
  unsigned tries_;
  unsigned left_;  // attempts before calls wait
  std::uint64_t first_wait_;
  std::uint64_t calls_left_ = 0;
  std::uint64_t next_wait_ = first_wait_;
};

}  // namespace cgtree
