// SpinningMutex: a lock for sections of tens of nanoseconds. It spins before it puts the thread to
// sleep.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace cgtree {

// std::mutex parks a thread at the first failure. With two threads at one pool, parking and waking
// costs ten times the section and more (docs/decisions/0005-spinning-mutex.md). Here a thread that
// has spun in vain sleeps and looks again. So nobody has to be woken, and unlock() is a plain store:
// an atomic exchange would cost as much as lock() does.
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
  static constexpr int kRounds = 200;            // far longer than a section, shorter than a sleep
  static constexpr unsigned kLongestPause = 64;  // in pauses of the processor
  static constexpr std::chrono::microseconds kSleep{50};  // about what the timer's slack is

  static void pause() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  // Spins with growing pauses, then sleeps.
  void wait_for_lock() noexcept;

  std::atomic<bool> is_taken_{false};
};

// It is not inlined: it is the rare path of a lock that is free nearly always.
[[gnu::noinline]] inline void SpinningMutex::wait_for_lock() noexcept {
  unsigned pauses = 1;
  for (int round = 0;; ++round) {
    // This only looks until the exchange may succeed: a failed exchange takes the cache line from
    // the owner.
    if (!is_taken_.load(std::memory_order_relaxed) && try_lock()) return;
    if (round >= kRounds) std::this_thread::sleep_for(kSleep);
    for (unsigned i = 0; i < pauses; ++i)
      pause();
    if (pauses < kLongestPause) pauses *= 2;
  }
}

}  // namespace cgtree
