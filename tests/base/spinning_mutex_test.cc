// The lock has one owner at a time, with spinning and with sleeping waiters.
#include "base/spinning_mutex.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace cgtree {
namespace {

TEST(SpinningMutexTest, OneOwnerAtATime) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 20000;
  SpinningMutex mutex;
  long long sum = 0;  // a race is also found by ThreadSanitizer
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const std::lock_guard lock(mutex);
        sum = sum + 1;
      }
    });
  }
  threads.clear();

  EXPECT_EQ(sum, kThreads * kRounds);
}

TEST(SpinningMutexTest, WaitersThatFellAsleepGetTheLock) {
  SpinningMutex mutex;
  int owners = 0;
  std::vector<std::jthread> threads;
  {
    const std::lock_guard lock(mutex);
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        const std::lock_guard inner(mutex);
        ++owners;
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // far longer than waiters spin
    EXPECT_EQ(owners, 0);
  }
  threads.clear();

  EXPECT_EQ(owners, 4);
}

// Each owner gives up the processor while it has the lock, as a preempted thread does.
TEST(SpinningMutexTest, OwnersThatDoNotRunDelayTheOthersButLoseNoTurn) {
  constexpr int kThreads = 16;
  constexpr int kRounds = 20;
  SpinningMutex mutex;
  std::vector<int> turns;
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < kRounds; ++round) {
        const std::lock_guard lock(mutex);
        turns.push_back(i);
        if (round % 4 == 0) {
          std::this_thread::sleep_for(std::chrono::microseconds(200));
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  threads.clear();

  for (int i = 0; i < kThreads; ++i)
    EXPECT_EQ(std::count(turns.begin(), turns.end(), i), kRounds);
}

TEST(SpinningMutexTest, TryLockFailsWhileAnotherOwnsIt) {
  SpinningMutex mutex;
  mutex.lock();

  EXPECT_FALSE(mutex.try_lock());
  mutex.unlock();
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
}

}  // namespace
}  // namespace cgtree
