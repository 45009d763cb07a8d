// The calls of a pool whose threads cache blocks, without the caches themselves.
#include <mutex>
#include <optional>

#include "allocator/pool/pool.h"
#include "base/check.h"

namespace cgtree {
namespace {

// The number of waits before threads get caches: a pool that threads use in turn has none.
constexpr unsigned kTurnsUntilCaches = 64;

}  // namespace

[[gnu::cold, gnu::noinline]] void Pool::wait_for_turn() noexcept {
  mutex_.lock();
  if (caches_ == nullptr || has_caches() || ++turns_waited_for_ < kTurnsUntilCaches) return;
  has_caches_.store(true, std::memory_order_relaxed);
}

// Returns false unless the address is that of a live block with a mark.
bool Pool::try_free_marked(void* address) {
  const Turn turn(*this);
  BlockMark::Word& word = *caches_->find(address);
  std::uint32_t value = word.load(std::memory_order_relaxed);
  const BlockMark mark(value);
  if (mark.state() != BlockMark::State::kLive) return false;
  // Another thread may be caching the block, and has then freed it.
  if (!word.compare_exchange_strong(value, 0, std::memory_order_relaxed)) return false;
  caches_->note_removal(address);
  const Block freed = layout_.free(reinterpret_cast<std::uintptr_t>(address));
  if (!freed.is_live()) return false;  // the pool is closed
  const std::size_t requested = mark.requested();
  tallies_.blocks_ended({1, freed.range.bytes, freed.requested});
  flow_.ended.requested += requested - freed.requested;
  return true;
}

[[gnu::cold, gnu::noinline]] void Pool::refuse_free(void* address) const {
  empty_caches();  // so that the layout knows the error
  const std::lock_guard lock(mutex_);
  refuse_address("free", address);
}

BlockMark Pool::mark_of(const Block& block) const {
  if (caches_ == nullptr) return {};
  const BlockMark::Word* const word =
      caches_->find(reinterpret_cast<const void*>(block.range.address));
  return word == nullptr ? BlockMark() : BlockMark(word->load(std::memory_order_relaxed));
}

void Pool::empty_caches() const noexcept {
  if (!has_caches()) return;
  PoolCaches::Held held(caches_.get());
  held.empty();
}

void Pool::take_back(std::span<const CachedBlock> blocks, Flow& flow) noexcept {
  const Turn turn(*this);
  for (const CachedBlock& cached : blocks) {
    cached.word->store(0, std::memory_order_relaxed);
    caches_->note_removal(cached.address);
    const Block freed = layout_.free(reinterpret_cast<std::uintptr_t>(cached.address));
    CGTREE_CHECK(freed.is_live());
    const Amount amount{1, freed.range.bytes, freed.requested};
    tallies_.blocks_ended(amount);
    flow.ended += -amount;  // it was counted when its thread freed it
  }
}

// Callers hold the blocks that are live in the layout, except those that the marks call cached.
void Pool::validate_marks(const PoolCaches::Held& held) const {
  Amount live;
  std::size_t marked = 0;
  std::size_t cached = 0;
  for (const auto& [base, segment] : layout_.segments()) {
    for (const Block& block : layout_.blocks(segment)) {
      const BlockMark mark = mark_of(block);
      const bool is_marked = mark.state() != BlockMark::State::kNone;
      if (is_marked) {
        ++marked;
        CGTREE_CHECK(block.is_live());
        CGTREE_CHECK(mark.bytes() == block.range.bytes);
        CGTREE_CHECK(segment.is_small);
      }
      if (mark.state() == BlockMark::State::kCached) {
        ++cached;
      } else if (block.is_live()) {
        live += {1, block.range.bytes, is_marked ? mark.requested() : block.requested};
      }
    }
  }
  held.validate(cached, is_closed_ ? std::nullopt : std::optional(marked));
  const PoolStatistics counted = present_statistics(held);
  CGTREE_CHECK(counted.allocation.current == live.count);
  CGTREE_CHECK(counted.allocated_bytes.current == live.bytes);
  CGTREE_CHECK(counted.requested_bytes.current == live.requested);
}

}  // namespace cgtree
