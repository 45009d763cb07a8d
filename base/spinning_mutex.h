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

  void wait_for_lock() noexcept;

  std::atomic<std::uint32_t> state_{kFree};
};

}  // namespace cgtree
