// Gives threads their caches, and takes blocks back from them.
#include "allocator/pool/thread_caches.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"

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

namespace {

// What a thread has looked up last. It needs no destructor, so that objects that end after the
// thread's other variables may still free blocks.
struct Known {
  const ThreadCaches* caches = nullptr;
  ThreadCache* cache = nullptr;
};
constexpr std::size_t kKnown = 8;  // pools of one thread, a power of two
constinit thread_local std::array<Known, kKnown> t_known;
constinit thread_local bool t_has_ended = false;
thread_local OwnCaches t_own;

Known& known_of(const ThreadCaches* caches) noexcept {
  return t_known[reinterpret_cast<std::uintptr_t>(caches) / 64 % kKnown];
}

}  // namespace

// The pool cannot end meanwhile: to close its caches it takes their locks.
OwnCaches::~OwnCaches() {
  t_has_ended = true;
  t_known.fill({});
  for (const std::shared_ptr<ThreadCache>& cache : caches_) {
    const std::lock_guard lock(cache->mutex);
    cache->is_open = false;
    cache->has_ended = true;
    ThreadCaches* const owner = cache->owner.load(std::memory_order_relaxed);
    if (owner != nullptr) owner->take_back(*cache, cache->count);
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
  for (Known& known : t_known)
    known = {};  // one of those that are gone
  caches_.push_back(std::move(cache));
}

CachedBlock ThreadCache::pop(std::size_t wanted) noexcept {
  const std::uint16_t unit = unit_of(wanted);
  std::uint16_t& asked = demand[slot_of(unit)];
  if ((asked & ~kAgain) != unit) {
    asked = unit;
    return {};
  }
  asked |= kAgain;
  for (std::uint32_t i = count; i-- > 0;) {
    if (units[i] != unit) continue;
    const CachedBlock block = blocks[i];
    --count;
    units[i] = units[count];
    blocks[i] = blocks[count];
    bytes -= wanted;
    return block;
  }
  return {};
}

void ThreadCache::push(const CachedBlock& block, std::size_t more) noexcept {
  units[count] = unit_of(more);
  blocks[count] = block;
  ++count;
  bytes += more;
}

// Returns the cache of this thread, locked, or null if nothing is cached.
ThreadCache* ThreadCaches::lock_own() noexcept {
  const Known& known = known_of(this);
  if (known.caches == this) [[likely]] {
    ThreadCache* const cache = known.cache;
    cache->mutex.lock();
    if (cache->is_open) [[likely]] {
      return cache;
    }
    cache->mutex.unlock();
  }
  return lock_own_slowly();
}

ThreadCache* ThreadCaches::lock_own_slowly() noexcept {
  if (t_has_ended) return nullptr;
  std::shared_ptr<ThreadCache> own = t_own.find(*this);
  if (own == nullptr) {
    try {
      const std::lock_guard lock(mutex_);
      if (is_closed_) return nullptr;
      forget_ended();
      own = std::make_shared<ThreadCache>(*this);
      own->is_open = is_open_;
      caches_.reserve(caches_.size() + 1);
      t_own.add(own);
      caches_.push_back(own);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  known_of(this) = {this, own.get()};
  own->mutex.lock();
  if (own->is_open) return own.get();
  own->mutex.unlock();
  return nullptr;
}

void* ThreadCaches::allocate(std::size_t requested) noexcept {
  const std::size_t bytes = block_bytes(requested);
  if (bytes > BlockMark::kLargest) return nullptr;
  ThreadCache* const cache = lock_own();
  if (cache == nullptr) return nullptr;
  const std::lock_guard lock(cache->mutex, std::adopt_lock);
  const CachedBlock block = cache->pop(bytes);
  if (block.word == nullptr) return nullptr;
  const bool is_small = BlockMark(block.word->load(std::memory_order_relaxed)).is_small();
  block.word->store(BlockMark::live(bytes, requested, is_small).word(), std::memory_order_relaxed);
  cache->flow.began[is_small] += {1, bytes, requested};
  return block.address;
}

bool ThreadCaches::free(void* address) noexcept {
  BlockMarks::Word* const word = marks_.find(address);
  if (word == nullptr) return false;
  std::uint32_t value = word->load(std::memory_order_relaxed);
  const BlockMark mark(value);
  if (mark.state() != BlockMark::State::kLive) return false;
  ThreadCache* const cache = lock_own();
  if (cache == nullptr) return false;
  const std::lock_guard lock(cache->mutex, std::adopt_lock);
  const std::size_t bytes = mark.bytes();
  if (!cache->has_room(bytes) && !cache->is_in_demand(bytes)) return false;
  // Of two threads that free one block, one fails here.
  if (!word->compare_exchange_strong(value, mark.cached().word(), std::memory_order_relaxed)) {
    return false;
  }
  cache->flow.ended[mark.is_small()] += {1, bytes, mark.requested()};
  while (!cache->has_room(bytes))
    [[unlikely]] take_back(*cache, std::min(cache->count, ThreadCache::kMostBlocks / 4));
  cache->push({address, word}, bytes);
  return true;
}

void ThreadCaches::mark(void* address, std::size_t bytes, std::size_t requested,
                        bool is_small) noexcept {
  if (!BlockMark::fits(bytes, requested)) return;
  BlockMarks::Word* const word = marks_.make(address);
  if (word == nullptr) return;
  word->store(BlockMark::live(bytes, requested, is_small).word(), std::memory_order_relaxed);
}

// Gives the oldest blocks back. Requires: the lock of the cache is held.
void ThreadCaches::take_back(ThreadCache& cache, std::uint32_t count) noexcept {
  if (count == 0) return;
  pool_.take_back(std::span(cache.blocks).first(count), cache.flow);
  for (std::uint32_t i = 0; i < count; ++i)
    cache.bytes -= cache.units[i] * kBlockAlignment;
  std::copy(cache.units.begin() + count, cache.units.begin() + cache.count, cache.units.begin());
  std::copy(cache.blocks.begin() + count, cache.blocks.begin() + cache.count, cache.blocks.begin());
  cache.count -= count;
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
    take_back(*cache, cache->count);
    cache->is_open = false;
    cache->owner.store(nullptr, std::memory_order_relaxed);
    flow_ += cache->flow;
  }
  caches_.clear();
  return std::exchange(flow_, {});
}

ThreadCaches::Held::Held(ThreadCaches* caches) : caches_(caches) {
  if (caches_ == nullptr) return;
  caches_->mutex_.lock();
  caches_->forget_ended();
  for (const std::shared_ptr<ThreadCache>& cache : all())
    cache->mutex.lock();
}

ThreadCaches::Held::~Held() {
  if (caches_ == nullptr) return;
  for (const std::shared_ptr<ThreadCache>& cache : all())
    cache->mutex.unlock();
  caches_->mutex_.unlock();
}

std::span<const std::shared_ptr<ThreadCache>> ThreadCaches::Held::all() const {
  if (caches_ == nullptr) return {};
  return caches_->caches_;
}

void ThreadCaches::Held::empty() noexcept {
  for (const std::shared_ptr<ThreadCache>& cache : all())
    caches_->take_back(*cache, cache->count);
}

Flow ThreadCaches::Held::flow() const noexcept {
  Flow sum;
  if (caches_ != nullptr) sum = caches_->flow_;
  for (const std::shared_ptr<ThreadCache>& cache : all())
    sum += cache->flow;
  return sum;
}

void ThreadCaches::Held::reset_flow() noexcept {
  if (caches_ != nullptr) caches_->flow_ = {};
  for (const std::shared_ptr<ThreadCache>& cache : all())
    cache->flow = {};
}

void ThreadCaches::Held::set_open(bool is_open) noexcept {
  if (caches_ != nullptr) caches_->is_open_ = is_open;
  for (const std::shared_ptr<ThreadCache>& cache : all())
    cache->is_open = is_open;
}

std::size_t ThreadCaches::Held::blocks() const noexcept {
  std::size_t count = 0;
  for (const std::shared_ptr<ThreadCache>& cache : all())
    count += cache->count;
  return count;
}

void ThreadCaches::Held::validate() const {
  for (const std::shared_ptr<ThreadCache>& cache : all()) {
    std::size_t bytes = 0;
    for (std::uint32_t i = 0; i < cache->count; ++i) {
      const CachedBlock& block = cache->blocks[i];
      const BlockMark mark(block.word->load(std::memory_order_relaxed));
      CGTREE_CHECK(caches_->find(block.address) == block.word);
      CGTREE_CHECK(mark.state() == BlockMark::State::kCached);
      CGTREE_CHECK(mark.bytes() == cache->units[i] * kBlockAlignment);
      bytes += mark.bytes();
    }
    CGTREE_CHECK(bytes == cache->bytes && bytes <= ThreadCache::kMostBytes);
    CGTREE_CHECK(cache->is_open || cache->count == 0);
  }
}

}  // namespace cgtree
