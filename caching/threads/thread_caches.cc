// Gives threads their caches, and takes blocks back from them.
#include "caching/threads/thread_caches.h"

#include <algorithm>
#include <new>
#include <utility>

#include "allocator/pool/pool.h"
#include "base/check.h"
#include "base/room.h"

namespace cgtree {

// The caches of one thread, of all pools.
class OwnCaches {
 public:
  OwnCaches() = default;
  ~OwnCaches();
  OwnCaches(const OwnCaches&) = delete;
  OwnCaches& operator=(const OwnCaches&) = delete;

  std::shared_ptr<ThreadCache> find(const ThreadCaches& caches) const noexcept;
  // Throws std::bad_alloc; nothing has changed then.
  void add(std::shared_ptr<ThreadCache> cache);

 private:
  std::vector<std::shared_ptr<ThreadCache>> caches_;
};

// The pool cannot end meanwhile: it takes the locks of its caches to close them.
OwnCaches::~OwnCaches() {
  of_thread<ThreadCaches::KnownCaches>() = {.all = {}, .has_ended = true};
  for (const std::shared_ptr<ThreadCache>& cache : caches_) {
    const std::lock_guard lock(cache->mutex);
    cache->is_open = false;
    cache->has_ended = true;
    ThreadCaches* const owner = cache->owner.load(std::memory_order_relaxed);
    if (owner != nullptr) owner->give_back(*cache);
  }
}

std::shared_ptr<ThreadCache> OwnCaches::find(const ThreadCaches& caches) const noexcept {
  for (const std::shared_ptr<ThreadCache>& cache : caches_)
    if (cache->owner.load(std::memory_order_relaxed) == &caches) return cache;
  return nullptr;
}

void OwnCaches::add(std::shared_ptr<ThreadCache> cache) {
  std::erase_if(caches_, [](const std::shared_ptr<ThreadCache>& other) {
    return other->owner.load(std::memory_order_relaxed) == nullptr;
  });
  of_thread<ThreadCaches::KnownCaches>().all.fill({});  // one of those destroyed
  caches_.push_back(std::move(cache));
}

ThreadCache* ThreadCaches::find_own() noexcept {
  if (of_thread<KnownCaches>().has_ended) return nullptr;
  OwnCaches& of_this_thread = of_thread<OwnCaches>();
  std::shared_ptr<ThreadCache> own = of_this_thread.find(*this);
  if (own == nullptr) {
    try {
      const std::lock_guard lock(mutex_);
      if (is_closed_) return nullptr;
      forget_ended();
      own = std::make_shared<ThreadCache>(*this);
      make_room(caches_);
      of_this_thread.add(own);
      caches_.push_back(own);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  known_of(this) = {this, own.get()};
  return own.get();
}

void* ThreadCaches::allocate(std::size_t requested, bool& marks) noexcept {
  ThreadCache* const own_cache = own();
  const std::size_t bytes = block_bytes(requested);
  marks = own_cache != nullptr && own_cache->demand.ask(bytes);
  if (!marks) return nullptr;
  ThreadCache& cache = *own_cache;
  if (!cache.may_have(bytes)) {
    cache.demand.note_miss();
    return nullptr;
  }
  const std::lock_guard lock(cache.mutex);
  const CachedBlock block = cache.pop(bytes);
  if (block.word == nullptr) {  // taken back meanwhile, or of another size
    cache.demand.note_miss();
    return nullptr;
  }
  cache.demand.note_use();
  block.word->store(BlockMark::live(bytes, requested).word(), std::memory_order_relaxed);
  cache.flow.began += {1, bytes, requested};
  return block.address;
}

ThreadCaches::Freed ThreadCaches::free(void* address) noexcept {
  BlockMark::Word* const word = marks_.find_marked(address);
  if (word == nullptr) return Freed::kUnmarked;
  return keep(address, *word) ? Freed::kKept : Freed::kMarked;
}

// Caches a live block and returns true. Returns false, with nothing changed, if the pool has to
// free or to refuse it. `word`: of the address.
bool ThreadCaches::keep(void* address, BlockMark::Word& word) noexcept {
  std::uint32_t value = word.load(std::memory_order_relaxed);
  const BlockMark mark(value);
  if (mark.state() != BlockMark::State::kLive) return false;
  const std::size_t bytes = mark.bytes();
  ThreadCache* const cache = own();
  if (cache == nullptr || !cache->demand.is_in_demand(bytes)) return false;
  const std::lock_guard lock(cache->mutex);
  if (!cache->is_open) return false;
  if (!cache->has_room(bytes)) [[unlikely]] {
    ThreadCache::Popped popped;
    cache->make_room(bytes, popped);
    pool_.take_back(popped.all(), cache->flow);
  }
  // Of two threads that free one block, one fails here.
  if (!word.compare_exchange_strong(value, mark.cached().word(), std::memory_order_relaxed)) {
    return false;
  }
  cache->flow.ended += {1, bytes, mark.requested()};
  cache->push({address, &word}, bytes);
  return true;
}

void ThreadCaches::mark(void* address, std::size_t bytes, std::size_t requested) noexcept {
  if (BlockMark::fits(bytes, requested)) {
    marks_.mark(address, BlockMark::live(bytes, requested));
  }
}

// Gives all blocks back. Requires: the lock of the cache is held.
void ThreadCaches::give_back(ThreadCache& cache) noexcept {
  if (cache.is_empty()) return;
  ThreadCache::Popped popped;
  cache.pop_all(popped);
  pool_.take_back(popped.all(), cache.flow);
}

// Drops the caches of threads that have ended. Requires: the list's lock is held, and no cache's.
void ThreadCaches::forget_ended() noexcept {
  std::erase_if(caches_, [this](const std::shared_ptr<ThreadCache>& cache) {
    const std::lock_guard lock(cache->mutex);
    if (cache->has_ended) flow_ += cache->flow;
    return cache->has_ended;
  });
}

Flow ThreadCaches::close() noexcept {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  for (const std::shared_ptr<ThreadCache>& cache : caches_) {
    const std::lock_guard inner(cache->mutex);
    give_back(*cache);
    cache->is_open = false;
    cache->owner.store(nullptr, std::memory_order_relaxed);
    flow_ += cache->flow;
  }
  caches_.clear();
  return std::exchange(flow_, {});
}

void ThreadCaches::lock() {
  mutex_.lock();
  forget_ended();
  for (const std::shared_ptr<ThreadCache>& cache : caches_)
    cache->mutex.lock();
}

void ThreadCaches::unlock() noexcept {
  for (const std::shared_ptr<ThreadCache>& cache : caches_)
    cache->mutex.unlock();
  mutex_.unlock();
}

void ThreadCaches::empty() noexcept {
  for (const std::shared_ptr<ThreadCache>& cache : caches_)
    give_back(*cache);
}

Flow ThreadCaches::flow() const noexcept {
  Flow sum = flow_;
  for (const std::shared_ptr<ThreadCache>& cache : caches_)
    sum += cache->flow;
  return sum;
}

void ThreadCaches::validate(std::size_t cached, std::optional<std::size_t> marked) const {
  std::size_t all = 0;
  for (const std::shared_ptr<ThreadCache>& cache : caches_) {
    std::size_t count = 0, sum = 0;
    cache->for_each([&](const CachedBlock& block, std::size_t bytes) {
      const BlockMark mark(block.word->load(std::memory_order_relaxed));
      CGTREE_CHECK(find(block.address) == block.word);
      CGTREE_CHECK(mark.state() == BlockMark::State::kCached);
      CGTREE_CHECK(mark.bytes() == bytes);
      ++count;
      sum += bytes;
    });
    CGTREE_CHECK(sum == cache->bytes());
    CGTREE_CHECK(count <= ThreadCache::kMostBlocks && sum <= ThreadCache::kMostBytes);
    CGTREE_CHECK(cache->is_open || count == 0);
    all += count;
  }
  CGTREE_CHECK(all == cached);
  CGTREE_CHECK(!marked || *marked == marks_.marked());
}

std::unique_ptr<PoolCaches> make_thread_caches(Pool& pool) {
  return std::make_unique<ThreadCaches>(pool);
}

}  // namespace cgtree
