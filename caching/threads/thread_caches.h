// ThreadCaches: freed blocks of one pool that their threads reuse without the pool's lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "allocator/pool/pool_caches.h"
#include "base/frame.h"
#include "base/mutex.h"
#include "caching/threads/block_marks.h"
#include "caching/threads/thread_cache.h"

namespace cgtree {

// ThreadCaches belong to a pool. A freed block goes to the cache of the freeing thread, whose next
// request of that size takes it; excess blocks return to the pool.
//
// A thread finds its cache of a pool in a table of the thread. The table is not state of the
// program: an entry is only used by its thread, and is empty once the pool or the thread ends.
//
// Locks are taken in this order: the list's, caches' in the order of the list, the pool's.
//
// Thread safety: all functions may be called from any thread.
class ThreadCaches final : public PoolCaches {
 public:
  // `pool` must outlive this object.
  explicit ThreadCaches(Pool& pool) : pool_(pool) {}
  // Requires: close() was called.
  ~ThreadCaches() override = default;

  // PoolCaches.
  void* allocate(std::size_t requested, bool& marks) noexcept override;
  Freed free(void* address) noexcept override;
  BlockMark::Word* find(const void* address) const noexcept override {
    return marks_.find(address);
  }
  BlockMark::Word* find_marked(const void* address) const noexcept override {
    return marks_.find_marked(address);
  }
  void mark(void* address, std::size_t bytes, std::size_t requested) noexcept override;
  void note_removal(const void* address) noexcept override { marks_.note_removal(address); }
  Flow close() noexcept override;

 private:
  friend class OwnCaches;

  // The caches that a thread has looked up last. It needs no destructor, so that objects destroyed
  // after the thread's other variables may still free blocks.
  struct KnownCaches {
    struct Known {
      const ThreadCaches* caches = nullptr;
      ThreadCache* cache = nullptr;
    };
    std::array<Known, 8> all;  // pools of one thread, a power of two
    bool has_ended = false;    // OwnCaches of the thread
  };
  static KnownCaches::Known& known_of(const ThreadCaches* caches) noexcept {
    auto& all = of_thread<KnownCaches>().all;
    return all[reinterpret_cast<std::uintptr_t>(caches) / 64 % all.size()];
  }

  // Returns the cache of this thread; null if host memory for it runs out, and after close().
  ThreadCache* own() noexcept {
    const KnownCaches::Known& known = known_of(this);
    // The cache may be of a former pool at this address.
    if (known.caches == this && known.cache->owner.load(std::memory_order_relaxed) == this)
        [[likely]] {
      return known.cache;
    }
    return find_own();
  }
  ThreadCache* find_own() noexcept;
  bool keep(void* address, BlockMark::Word& word) noexcept;
  void give_back(ThreadCache& cache) noexcept;
  void forget_ended() noexcept;

  // The functions of PoolCaches for Held.
  void lock() override;
  void unlock() noexcept override;
  void empty() noexcept override;
  Flow flow() const noexcept override;
  void validate(std::size_t cached, std::optional<std::size_t> marked) const override;

  Pool& pool_;
  BlockMarks marks_;
  Mutex<LockRank::kThreadCaches> mutex_;  // guards all below
  std::vector<std::shared_ptr<ThreadCache>> caches_;
  Flow flow_;  // of caches whose threads have ended
  bool is_closed_ = false;
};

// For PoolOptions::make_caches.
std::unique_ptr<PoolCaches> make_thread_caches(Pool& pool);

}  // namespace cgtree
