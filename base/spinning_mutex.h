// SpinningMutex: a lock for sections of tens of nanoseconds. It spins before it parks the thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace cgtree {

// std::mutex parks a thread at the first failure. With two threads at one pool, parking and waking
// costs ten times the section and more (docs/decisions/0005-spinning-mutex.md).
class SpinningMutex {
 public:
  void lock() noexcept {
    std::uint32_t expected = kFree;
    if (!state_.compare_exchange_strong(expected, kTaken, std::memory_order_acquire)) [[unlikely]] {
      wait_for_lock();
    }
  }
  bool try_lock() noexcept {
    std::uint32_t expected = kFree;
    return state_.compare_exchange_strong(expected, kTaken, std::memory_order_acquire);
  }
  void unlock() noexcept {
    if (state_.exchange(kFree, std::memory_order_release) == kTakenWithSleepers) [[unlikely]] {
      state_.notify_one();
    }
  }

 private:
  static constexpr std::uint32_t kFree = 0;
  static constexpr std::uint32_t kTaken = 1;
  static constexpr std::uint32_t kTakenWithSleepers = 2;  // or there have been sleepers

  static constexpr int kRounds = 200;            // far longer than a section, shorter than parking
  static constexpr unsigned kLongestPause = 64;  // in pauses of the processor

  static void pause() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  // Spins with growing pauses, then sleeps.
  void wait_for_lock() noexcept;

  std::atomic<std::uint32_t> state_{kFree};
};

// It is not inlined: it is the rare path of a lock that is free nearly always.
[[gnu::noinline]] inline void SpinningMutex::wait_for_lock() noexcept {
  unsigned pauses = 1;
  for (int round = 0; round < kRounds; ++round) {
    // This only looks until the exchange may succeed: a failed exchange takes the cache line from
    // the owner.
    if (state_.load(std::memory_order_relaxed) == kFree && try_lock()) return;
    for (unsigned i = 0; i < pauses; ++i)
      pause();
    if (pauses < kLongestPause) pauses *= 2;
  }
  while (state_.exchange(kTakenWithSleepers, std::memory_order_acquire) != kFree) {
    state_.wait(kTakenWithSleepers, std::memory_order_relaxed);
  }
}

}  // namespace cgtree
