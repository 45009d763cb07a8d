// Condition: waits for other threads with a Mutex.
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/mutex.h"

namespace cgtree {

// A Condition is a std::condition_variable for a Mutex. A thread that waits holds no other lock
// than the one it gives up, except kLong ones.
class Condition {
 public:
  template <LockRank kRank, typename Predicate>
  void wait(std::unique_lock<Mutex<kRank>>& lock, Predicate is_true) {
    lock_order::expect_may_wait(kRank);
    Borrowed borrowed(lock.mutex()->lock_);
    changed_.wait(borrowed.lock, std::move(is_true));
  }
  template <LockRank kRank>
  void wait(std::unique_lock<Mutex<kRank>>& lock) {
    lock_order::expect_may_wait(kRank);
    Borrowed borrowed(lock.mutex()->lock_);
    changed_.wait(borrowed.lock);
  }
  template <LockRank kRank, typename Duration, typename Predicate>
  bool wait_for(std::unique_lock<Mutex<kRank>>& lock, const Duration& limit, Predicate is_true) {
    lock_order::expect_may_wait(kRank);
    Borrowed borrowed(lock.mutex()->lock_);
    return changed_.wait_for(borrowed.lock, limit, std::move(is_true));
  }
  void notify_one() noexcept { changed_.notify_one(); }
  void notify_all() noexcept { changed_.notify_all(); }

 private:
  // The lock stays locked for its owner, also if a predicate throws.
  struct Borrowed {
    explicit Borrowed(std::mutex& mutex) : lock(mutex, std::adopt_lock) {}
    ~Borrowed() { lock.release(); }
    std::unique_lock<std::mutex> lock;
  };

  std::condition_variable changed_;
};

}  // namespace cgtree
