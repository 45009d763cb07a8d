// The order in which locks may be taken, and the actions that are permitted while they are held.
#include "base/mutex.h"
#include "base/condition.h"

#include <gtest/gtest.h>

#include <mutex>
#include <stdexcept>
#include <thread>

namespace cgtree {
namespace {

TEST(MutexTest, ARankCostsNoRoom) {
  EXPECT_EQ(sizeof(Mutex<LockRank::kPool>), sizeof(std::mutex));
  EXPECT_EQ(sizeof(SpinMutex<LockRank::kPool>), sizeof(SpinningMutex));
}

TEST(MutexTest, LaterLocksMayBeTakenAndReleasedInAnyOrder) {
  Mutex<LockRank::kAllocator> first;
  SpinMutex<LockRank::kPool> second;
  Mutex<LockRank::kStreamPool> third;
  std::unique_lock a(first);
  third.lock();
  std::unique_lock b(second);
  a.unlock();
  b.unlock();
  third.unlock();

  a.lock();
  b.lock();
}

TEST(MutexTest, AConditionGivesItsLockUpAndTakesItAgain) {
  Mutex<LockRank::kLeaf> mutex;
  Condition changed;
  bool is_set = false;
  std::unique_lock lock(mutex);
  std::thread other([&] {
    const std::lock_guard inner(mutex);
    is_set = true;
    changed.notify_all();
  });
  changed.wait(lock, [&] { return is_set; });
  EXPECT_TRUE(lock.owns_lock());
  EXPECT_FALSE(changed.wait_for(lock, std::chrono::milliseconds(1), [] { return false; }));
  EXPECT_THROW(changed.wait(lock, []() -> bool { throw std::runtime_error("no"); }),
               std::runtime_error);
  lock.unlock();
  other.join();
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
}

#ifdef CGTREE_CHECK_LOCK_ORDER

TEST(MutexDeathTest, AnEarlierLockIsRefused) {
  Mutex<LockRank::kAllocator> allocator;
  SpinMutex<LockRank::kPool> pool;
  const std::lock_guard lock(pool);
  EXPECT_DEATH(allocator.lock(), "kAllocator is taken while kPool is held by the same thread");
}

TEST(MutexDeathTest, ASecondLockOfTheSameRankIsRefused) {
  Mutex<LockRank::kStreamPool> one, other;
  const std::lock_guard lock(one);
  EXPECT_DEATH(other.lock(), "kStreamPool is taken while kStreamPool is held");
}

TEST(MutexDeathTest, TheHolderOfALeafTakesNoOtherLeaf) {
  Mutex<LockRank::kLeaf> one;
  SpinMutex<LockRank::kLeaf> other;
  const std::lock_guard lock(one);
  EXPECT_DEATH(other.lock(), "kLeaf is taken while kLeaf is held");
}

TEST(MutexDeathTest, NoCallThatMayBlockIsMadeWithABriefLock) {
  Mutex<LockRank::kGrowth> growth;
  Mutex<LockRank::kProgress> progress;
  const std::lock_guard lock(growth);
  lock_order::expect_may_block("record_event");
  const std::lock_guard brief(progress);
  EXPECT_DEATH(lock_order::expect_may_block("record_event"),
               "record_event may block, but kProgress is held by the same thread");
}

TEST(MutexDeathTest, NoThreadWaitsForAConditionWithAnotherBriefLock) {
  Mutex<LockRank::kSegmentCache> cache;
  Mutex<LockRank::kLeaf> gate;
  Condition changed;
  const std::lock_guard outer(cache);
  std::unique_lock lock(gate);
  EXPECT_DEATH(changed.wait(lock, [] { return true; }),
               "kLeaf is waited with, but kSegmentCache is held");
}

TEST(MutexTest, TheCachesOfSeveralThreadsMayBeHeldAtOnce) {
  SpinMutex<LockRank::kThreadCache> one, other;
  SpinMutex<LockRank::kPool> pool;
  const std::lock_guard first(one);
  const std::lock_guard second(other);
  const std::lock_guard third(pool);
}

// A growing pool may get its memory from another pool.
TEST(MutexTest, SeveralLongLocksOfOneRankMayBeHeld) {
  Mutex<LockRank::kGrowth> one, other;
  const std::lock_guard first(one);
  const std::lock_guard second(other);
}

// A thread that only tries a lock cannot wait forever.
TEST(MutexTest, AnyLockMayBeTried) {
  SpinMutex<LockRank::kPool> pool;
  Mutex<LockRank::kUpkeep> upkeep;
  const std::lock_guard lock(pool);
  EXPECT_TRUE(upkeep.try_lock());
  upkeep.unlock();
}

#endif

}  // namespace
}  // namespace cgtree
