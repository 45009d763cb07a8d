// ThreadCaches: freed blocks of one pool that their threads use again without the pool's lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "allocator/pool/block_marks.h"
#include "allocator/pool/statistics.h"
#include "allocator/pool/thread_cache.h"
#include "base/mutex.h"

namespace cgtree {

// The pool of ThreadCaches.
class CachedPool {
 public:
  // Frees blocks that are cached, and subtracts them from what `flow` says has been freed. It is
  // called with the lock of their cache held.
  virtual void take_back(std::span<const CachedBlock> blocks, Flow& flow) noexcept = 0;

 protected:
  ~CachedPool() = default;
};

// ThreadCaches belong to a pool. A block that a thread frees goes to the cache of the thread, from
// which the thread's next request of that size takes it; what is too much there goes back to the
// pool. The words of blocks say which are live and which are cached, so that
// free() refuses a wrong address without the pool's lock.
//
// A thread finds its cache of a pool in a table of the thread. That is no state of the program: an
// entry is of use to its thread alone, and empty once the pool or the thread ends, whichever is
// first.
//
// Locks are taken in this order: the list's, caches' in the order of the list, the pool's.
//
// Thread safety: all functions may be called from any thread.
class ThreadCaches {
 public:
  // `pool` must outlive this object.
  explicit ThreadCaches(CachedPool& pool) : pool_(pool) {}
  // Requires: close() was called.
  ~ThreadCaches() = default;
  ThreadCaches(const ThreadCaches&) = delete;
  ThreadCaches& operator=(const ThreadCaches&) = delete;

  // Returns the cache of this thread, or null without host memory for one and after close().
  ThreadCache* own() noexcept {
    const Known& known = known_of(this);
    // The cache may be of a former pool at this address.
    if (known.caches == this && known.cache->owner.load(std::memory_order_relaxed) == this)
        [[likely]] {
      return known.cache;
    }
    return find_own();
  }

  // Returns a block of the thread's own cache, or null.
  void* allocate(ThreadCache& cache, std::size_t requested) noexcept;

  // Caches a live block and returns true. Returns false, with nothing changed, if the pool has to
  // free or to refuse it. `word` is that of the address.
  bool free(void* address, BlockMarks::Word& word) noexcept;

  // Return the word of the address, or null if the pool alone knows about it; find_marked() also if
  // the word is empty.
  BlockMarks::Word* find(const void* address) const noexcept { return marks_.find(address); }
  BlockMarks::Word* find_marked(const void* address) const noexcept {
    return marks_.find_marked(address);
  }

  // Marks a block that the pool has made live, so that a cache may take it. Requires: the pool's
  // lock is held.
  void mark(void* address, std::size_t bytes, std::size_t requested, bool is_small) noexcept;
  // Must be called when the word of a block has been emptied. Requires: the pool's lock is held.
  void note_removal(const void* address) noexcept { marks_.note_removal(address); }

  // A Held keeps all caches as they are while it exists. Without caches it does nothing.
  class Held {
   public:
    explicit Held(ThreadCaches* caches);
    ~Held();
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

    // Gives all blocks back to the pool.
    void empty() noexcept;
    // Returns what the tallies of the pool do not count.
    Flow flow() const noexcept;
    // From now on flow() is what has been since.
    void reset_flow() noexcept;
    // Lets caches take blocks, or no longer.
    void set_open(bool is_open) noexcept;
    std::size_t blocks() const noexcept;
    // Returns how many blocks have a mark. Requires: the pool's lock is held.
    std::size_t marked() const noexcept {
      return caches_ == nullptr ? 0 : caches_->marks_.marked();
    }
    void validate() const;

   private:
    std::span<const std::shared_ptr<ThreadCache>> all() const;

    ThreadCaches* const caches_;
  };

  // Gives all blocks back for good: threads have no cache of this pool any more. Returns the flow.
  Flow close() noexcept;

 private:
  friend class OwnCaches;

  // What a thread has looked up last. It needs no destructor, so that objects that end after the
  // thread's other variables may still free blocks.
  struct Known {
    const ThreadCaches* caches = nullptr;
    ThreadCache* cache = nullptr;
  };
  static constexpr std::size_t kKnown = 8;  // pools of one thread, a power of two
  static constinit thread_local std::array<Known, kKnown> t_known_;
  static Known& known_of(const ThreadCaches* caches) noexcept {
    return t_known_[reinterpret_cast<std::uintptr_t>(caches) / 64 % kKnown];
  }

  ThreadCache* find_own() noexcept;
  void empty(ThreadCache& cache) noexcept;
  void forget_ended() noexcept;

  CachedPool& pool_;
  BlockMarks marks_;
  Mutex<LockRank::kThreadCaches> mutex_;  // guards all below
  std::vector<std::shared_ptr<ThreadCache>> caches_;
  Flow flow_;  // of caches whose threads have ended
  bool is_open_ = true;
  bool is_closed_ = false;
};

}  // namespace cgtree
