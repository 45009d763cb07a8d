// SpinningMutex: a lock for sections of tens of nanoseconds. It spins before it sleeps.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace cgtree {

// std::mutex parks a thread at the first failure. With two threads at one pool, parking and waking
// costs at least ten times the section (docs/decisions/0005-spinning-mutex.md).
//
// unlock() is a plain store, which costs half of what an atomic exchange would. It therefore cannot
// know of sleeping threads, and wakes none: a sleeper wakes by itself and looks again, as a spinner
// does. No wake-up can be lost, because there are none. The store releases the writes of the
// section, and the exchange that takes the lock acquires them; waiting orders nothing else.
//
// The data of the section moves to another processor with the lock, which takes longer than the
// section. A waiting thread therefore looks seldom, and more seldom the more threads wait: the
// owner returns for several sections before it loses the lock. This is unfair on purpose. With more
// threads than processors, a queue would hand the lock to threads that do not run.
class SpinningMutex {
 public:
  void lock() noexcept {
    if (!try_lock()) [[unlikely]] {
      wait_for_lock();
    }
  }
  bool try_lock() noexcept { return !is_taken_.exchange(true, std::memory_order_acquire); }
  void unlock() noexcept { is_taken_.store(false, std::memory_order_release); }

 private:
  // In pauses of the processor, of 15 to 50 ns.
  static constexpr unsigned kPauses = 64;         // of one waiter between two looks
  static constexpr unsigned kMostPauses = 10000;  // then it sleeps: the owner may not be running
  static constexpr std::chrono::microseconds kSleep{50};  // about the slack of the timer

  static void pause() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");  // a yield takes no time there
#endif
  }

  void wait_for_lock() noexcept;

  std::atomic<bool> is_taken_{false};
  std::atomic<unsigned> waiters_{0};
};

// It is not inlined: it is the rare path of a lock that is free nearly always.
[[gnu::noinline]] inline void SpinningMutex::wait_for_lock() noexcept {
  waiters_.fetch_add(1, std::memory_order_relaxed);
  unsigned spun = 0;
  do {
    if (spun < kMostPauses) {
      // Each of n waiters pauses n times as long as a single one: together they look equally often.
      const unsigned pauses = kPauses * waiters_.load(std::memory_order_relaxed);
      for (unsigned i = 0; i < pauses && spun < kMostPauses; ++i, ++spun)
        pause();
    } else {
      std::this_thread::sleep_for(kSleep);
    }
    // Only looks until an exchange may succeed: a failed one takes the cache line from the owner.
  } while (is_taken_.load(std::memory_order_relaxed) || !try_lock());
  waiters_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace cgtree
