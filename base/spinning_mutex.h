// SpinningMutex: a lock for sections of tens of nanoseconds. It spins before it puts the thread to
// sleep.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace cgtree {

// std::mutex parks a thread at the first failure. With two threads at one pool, parking and waking
// costs ten times the section and more (docs/decisions/0005-spinning-mutex.md). Here a thread that
// has spun in vain sleeps and looks again. So no thread has to be woken, and unlock() is a plain
// store: an atomic exchange would cost as much as lock() does.
//
// What the section reads and writes moves to another processor with the lock, which takes longer
// than the section itself. So the more threads wait, the more seldom each of them looks: the owner
// comes back for several sections until it loses the lock.
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
  static constexpr unsigned kPauses = 16;         // between two looks of all threads that wait
  static constexpr unsigned kMostPauses = 10000;  // then a thread sleeps; far longer than a section
  static constexpr std::chrono::microseconds kSleep{50};  // about what the timer's slack is

  static void pause() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");  // a yield takes no time there
#endif
  }

  // Spins, then sleeps.
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
      const unsigned pauses = kPauses * waiters_.load(std::memory_order_relaxed);
      for (unsigned i = 0; i < pauses; ++i)
        pause();
      spun += pauses;
    } else {
      std::this_thread::sleep_for(kSleep);
    }
    // This only looks until the exchange may succeed: a failed exchange takes the cache line from
    // the owner.
  } while (is_taken_.load(std::memory_order_relaxed) || !try_lock());
  waiters_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace cgtree
