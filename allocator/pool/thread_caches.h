// ThreadCaches: freed blocks of one pool that their threads use again without the pool's lock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "allocator/pool/block_marks.h"
#include "allocator/pool/statistics.h"
#include "base/spinning_mutex.h"

namespace cgtree {

class ThreadCaches;

// A CachedBlock is live in the layout of its pool, and its word says that it is cached.
struct CachedBlock {
  void* address = nullptr;
  BlockMarks::Word* word = nullptr;
};

// A ThreadCache has the blocks that one thread has freed. Its lock is the thread's nearly always;
// others take it to count the blocks or to take them back.
//
// A size that the thread asks for again and again is in demand: its blocks replace the oldest of a
// full cache. Blocks of other sizes only fill it, so that a thread whose sizes never come back
// costs no more than without a cache.
struct ThreadCache {
  static constexpr std::uint32_t kMostBlocks = 64;
  static constexpr std::size_t kMostBytes = std::size_t{4} << 20;

  explicit ThreadCache(ThreadCaches& caches) : owner(&caches) {}

  // Removes and returns a block of exactly `bytes`; it has no word if there is none.
  CachedBlock pop(std::size_t bytes) noexcept;
  // Requires: there is room.
  void push(const CachedBlock& block, std::size_t bytes) noexcept;
  bool has_room(std::size_t more) const {
    return count < kMostBlocks && bytes + more <= kMostBytes;
  }
  bool is_in_demand(std::size_t wanted) const {
    const std::uint16_t unit = unit_of(wanted);
    return demand[slot_of(unit)] == (unit | kAgain);
  }

  alignas(64) SpinningMutex mutex;  // guards all below
  std::atomic<ThreadCaches*>
      owner;               // null once its pool is closed; read without the lock as a hint
  bool is_open = false;    // else nothing is cached
  bool has_ended = false;  // the thread
  std::uint32_t count = 0;
  std::size_t bytes = 0;
  Flow flow;
  std::array<std::uint16_t, kMostBlocks> units{};  // of each block: its bytes / 512
  std::array<CachedBlock, kMostBlocks> blocks;     // the oldest first, nearly
  // The sizes that were asked for last, in a hash where a new one replaces the old.
  static constexpr std::uint16_t kAgain = 0x8000;  // more than once since
  std::array<std::uint16_t, 256> demand{};

 private:
  static std::uint16_t unit_of(std::size_t bytes) {
    return static_cast<std::uint16_t>(bytes / kBlockAlignment);
  }
  static std::size_t slot_of(std::uint16_t unit) {
    return static_cast<std::uint16_t>(unit * 40503u) >> 8;
  }
};

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
// pool, the oldest first. The words of blocks say which are live and which are cached, so that
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

  // Returns a block that this thread has freed, or null.
  void* allocate(std::size_t requested) noexcept;

  // Caches a live block and returns true. Returns false, with nothing changed, if the pool has to
  // free or to refuse it.
  bool free(void* address) noexcept;

  // Returns the word of the address, or null if the pool alone knows about it.
  BlockMarks::Word* find(const void* address) const noexcept { return marks_.find(address); }

  // Marks a block that the pool has made live, if caches take its size. Requires: the pool's lock
  // is held.
  void mark(void* address, std::size_t bytes, std::size_t requested, bool is_small) noexcept;

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
    void validate() const;

   private:
    std::span<const std::shared_ptr<ThreadCache>> all() const;

    ThreadCaches* const caches_;
  };

  // Gives all blocks back for good: threads have no cache of this pool any more. Returns the flow.
  Flow close() noexcept;

 private:
  friend class OwnCaches;

  ThreadCache* lock_own() noexcept;
  ThreadCache* lock_own_slowly() noexcept;
  void take_back(ThreadCache& cache, std::uint32_t count) noexcept;
  void forget_ended() noexcept;

  CachedPool& pool_;
  BlockMarks marks_;
  std::mutex mutex_;  // guards all below
  std::vector<std::shared_ptr<ThreadCache>> caches_;
  Flow flow_;  // of caches whose threads have ended
  bool is_open_ = true;
  bool is_closed_ = false;
};

}  // namespace cgtree
