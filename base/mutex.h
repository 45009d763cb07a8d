// Mutex: a lock that knows its place in the order of all locks. Condition: waits with it.
#pragma once

#include <cstdint>
#include <mutex>
#include <utility>

#include "base/spinning_mutex.h"

namespace cgtree {

// The locks of the library, in the order in which a thread takes them: first to last. A thread that
// holds a lock takes only later ones. docs/locks.md has a row for each.
//
// The second column says what a thread may do while it holds the lock:
//   kBrief    only work that ends by itself. No call of a device that may block: one that enqueues
//             work, records an event, waits, or allocates or frees memory. It may never end,
//             because the awaited work may need a thread that waits for the lock.
//   kLong     also calls that may block. Such a lock serialises the long operation that it is named
//             after, and work on a device never needs it. A thread may hold several of one rank:
//             the source of a pool's memory may be another pool.
//   kSeveral  as kBrief; a thread may hold several of this rank, which have their own order.
#define CGTREE_LOCK_RANKS(X)                                           \
  X(kTurns, kLong)          /* callers that take turns in a context */ \
  X(kTorchRecording, kLong) /* recordings that draw from PyTorch */    \
  X(kUpkeep, kLong)         /* of a context */                         \
  X(kGrowth, kLong)         /* of a pool */                            \
  X(kCommunicator, kLong)   /* the last event of a communicator */     \
  X(kTree, kBrief)          /* the tree, as monitors read it */        \
  X(kWatch, kBrief)         /* times and marks of replays */           \
  X(kDeclared, kBrief)      /* declared memory of a context */         \
  X(kKeepers, kLong)        /* users of a context's outputs */         \
  X(kContextMemory, kBrief) /* slots and steps of a context */         \
  X(kContextStream, kLong)  /* readers of a context's memory */        \
  X(kTorchMemory, kBrief)   /* PyTorch's blocks */                     \
  X(kTorchDevices, kBrief)  /* PyTorch's allocators, of the process */ \
  X(kDevices, kBrief)       /* memory of devices, of the process */    \
  X(kImports, kBrief)       /* imported memory, of the process */      \
  X(kForeignMemory, kBrief) /* streams that use imported memory */     \
  X(kAllocator, kBrief)     /* pools of a device */                    \
  X(kStreamPool, kBrief)    /* uses and pending frees of a pool */     \
  X(kThreadCaches, kBrief)  /* the list of caches of a pool */         \
  X(kThreadCache, kSeveral) /* blocks that a thread keeps */           \
  X(kPool, kBrief)          /* the layout of a pool */                 \
  X(kVirtualMemory, kLong)  /* mappings of one source of segments */   \
  X(kSegmentCache, kBrief)  /* segments of a device */                 \
  X(kProgress, kBrief)      /* of the streams of a device */           \
  X(kHostRuntime, kBrief)   /* the objects of a host device */         \
  X(kHostThreads, kBrief)   /* its threads */                          \
  X(kHostQueue, kBrief)     /* its queued work */                      \
  X(kHostMemory, kBrief)    /* its memory */                           \
  X(kLeaf, kBrief)          /* a table, a count: see docs/locks.md */  \
  X(kLog, kLong)            /* the sink of the log, of the process */

enum class LockRank : std::uint8_t {
#define CGTREE_LOCK_RANK(name, held) name,
  CGTREE_LOCK_RANKS(CGTREE_LOCK_RANK)
#undef CGTREE_LOCK_RANK
};

// The check of the order, in builds that define CGTREE_CHECK_LOCK_ORDER for everything that is
// linked together: Bazel's, except -c opt. In other builds the functions are empty.
namespace lock_order {

#ifdef CGTREE_CHECK_LOCK_ORDER
// Aborts if this thread holds a lock of this rank or a later one.
void expect_next(LockRank rank) noexcept;
void note_taken(LockRank rank) noexcept;
void note_released(LockRank rank) noexcept;
// Aborts if this thread holds a lock that a call that may block must not hold.
void expect_may_block(const char* call) noexcept;
// As expect_may_block(), except for the lock that the thread releases while it waits.
void expect_may_wait(LockRank rank) noexcept;
#else
inline void expect_next(LockRank) noexcept {
}
inline void note_taken(LockRank) noexcept {
}
inline void note_released(LockRank) noexcept {
}
inline void expect_may_block(const char*) noexcept {
}
inline void expect_may_wait(LockRank) noexcept {
}
#endif

}  // namespace lock_order

// A Mutex is a lock with its rank in the type, so that it is as large and as fast as `Lock` alone.
//
//   Mutex<LockRank::kLeaf> mutex_;
//   const std::lock_guard lock(mutex_);  // aborts if the thread holds a later one
template <LockRank kRank, typename Lock = std::mutex>
class Mutex {
 public:
  constexpr Mutex() noexcept = default;

  void lock() noexcept(noexcept(std::declval<Lock&>().lock())) {
    lock_order::expect_next(kRank);
    lock_.lock();
    lock_order::note_taken(kRank);
  }
  // Does not wait, so it may be called in any order.
  bool try_lock() noexcept {
    if (!lock_.try_lock()) return false;
    lock_order::note_taken(kRank);
    return true;
  }
  void unlock() noexcept {
    lock_.unlock();
    lock_order::note_released(kRank);
  }

 private:
  friend class Condition;
  Lock lock_;
};

template <LockRank kRank>
using SpinMutex = Mutex<kRank, SpinningMutex>;

}  // namespace cgtree
