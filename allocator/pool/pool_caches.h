// PoolCaches: the interface of a pool to threads that keep blocks which they have freed.
//
// Such a block is live in the layout of the pool, and free for any request. The implementation is
// ThreadCaches (caching/threads/); a build of the core alone has none, nor do the pools of a
// context.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "allocator/pool/block_mark.h"
#include "allocator/pool/statistics.h"

namespace cgtree {

// ThreadCaching decides whether threads keep blocks of small segments (Segment::is_small) that they
// have freed (caching/threads/thread_caches.h). Equal requests may then get different addresses,
// and there are no checkpoints and no restores. All counters are exact except the peaks, which also
// count blocks that threads keep, up to 64 blocks and 4 MiB per thread: only a counter shared by
// all threads could give their sum at one moment.
enum class ThreadCaching {
  kNever,
  kWhenContended,  // once threads have often waited for each other
  kAlways,
};

// A CachedBlock is live in the layout of its pool, and its word says that it is cached.
struct CachedBlock {
  void* address = nullptr;
  BlockMark::Word* word = nullptr;
};

class Pool;

// The words of blocks tell which blocks are live and which are cached, so that free() refuses a
// wrong address without the pool's lock.
//
// Thread safety: all functions may be called from any thread; their locks come before the pool's.
class PoolCaches {
 public:
  PoolCaches() = default;
  PoolCaches(const PoolCaches&) = delete;
  PoolCaches& operator=(const PoolCaches&) = delete;
  virtual ~PoolCaches() = default;

  enum class Freed {
    kKept,      // the thread keeps it
    kMarked,    // unchanged: the pool has to free or to refuse it; it had a mark
    kUnmarked,  // unchanged: only the pool tracks it
  };

  // Returns a block of the thread's own cache, or null; `marks` then says whether to mark the block
  // that the pool finds.
  virtual void* allocate(std::size_t requested, bool& marks) noexcept = 0;
  virtual Freed free(void* address) noexcept = 0;

  // The next two return the word of the address, or null if only the pool tracks it; find_marked()
  // also if the word is empty.
  virtual BlockMark::Word* find(const void* address) const noexcept = 0;
  virtual BlockMark::Word* find_marked(const void* address) const noexcept = 0;

  // Marks a block that the pool has made live, so that a cache may take it. Requires: the pool's
  // lock is held.
  virtual void mark(void* address, std::size_t bytes, std::size_t requested) noexcept = 0;
  // Must be called after the word of a block was emptied. Requires: the pool's lock is held.
  virtual void note_removal(const void* address) noexcept = 0;

  // Gives all blocks back permanently: threads have no cache of this pool any more. Returns the
  // flow. Must be called before this is destroyed.
  virtual Flow close() noexcept = 0;

  class Held;

 private:
  // The functions of Held.
  virtual void lock() = 0;
  virtual void unlock() noexcept = 0;
  virtual void empty() noexcept = 0;
  virtual Flow flow() const noexcept = 0;
  virtual void validate(std::size_t cached, std::optional<std::size_t> marked) const = 0;
};

// A Held keeps all caches unchanged while it exists. Without caches it does nothing.
class PoolCaches::Held {
 public:
  explicit Held(PoolCaches* caches) : caches_(caches) {
    if (caches_ != nullptr) caches_->lock();
  }
  ~Held() {
    if (caches_ != nullptr) caches_->unlock();
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  // Gives all blocks back to the pool.
  void empty() noexcept {
    if (caches_ != nullptr) caches_->empty();
  }
  // Returns the flow that the tallies of the pool do not count.
  Flow flow() const noexcept { return caches_ == nullptr ? Flow() : caches_->flow(); }
  // Checks the invariants, and aborts unless the caches have `cached` blocks, and, if `marked` is
  // given, that number of blocks has a mark. Requires: there are caches, and the pool's lock is
  // held.
  void validate(std::size_t cached, std::optional<std::size_t> marked) const {
    caches_->validate(cached, marked);
  }

 private:
  PoolCaches* const caches_;
};

// Makes the caches of a pool, which must outlive them.
using MakePoolCaches = std::unique_ptr<PoolCaches> (*)(Pool& pool);

}  // namespace cgtree
