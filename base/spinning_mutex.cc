// Spins with growing pauses, then sleeps.
#include "base/spinning_mutex.h"

namespace cgtree {
namespace {

constexpr int kRounds = 200;            // far longer than a section, shorter than parking
constexpr unsigned kLongestPause = 64;  // in pauses of the processor

void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void SpinningMutex::wait_for_lock() noexcept {
  unsigned pauses = 1;
  for (int round = 0; round < kRounds; ++round) {
    // Only looks, until it may succeed: a failed exchange takes the cache line from the owner.
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
