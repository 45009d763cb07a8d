// Keeps freed segments, and gives them back when no capture forbids it.
#include "allocator/segments/segment_cache.h"

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"

namespace cgtree {
namespace {

std::uintptr_t number(const void* segment) {
  return reinterpret_cast<std::uintptr_t>(segment);
}

void* pointer(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);
}

}  // namespace

DeferredFrees::DeferredFrees(SegmentCache& cache) noexcept : cache_(&cache) {
  cache.begin_hold();
}

DeferredFrees::~DeferredFrees() {
  if (cache_ != nullptr) cache_->end_hold();
}

SegmentCache::SegmentCache(SegmentSource& upstream, Budget* budget, StreamEvents* events)
    : budget_(budget),
      upstream_(std::shared_ptr<void>(), &upstream),  // shares nothing: upstream outlives us
      progress_(events, gate_) {
}

SegmentCache::SegmentCache(SegmentSource& upstream, std::size_t max_bytes)
    : own_budget_(std::in_place, "device", max_bytes),
      budget_(&*own_budget_),
      upstream_(std::shared_ptr<void>(), &upstream),
      progress_(nullptr, gate_) {
}

SegmentCache::~SegmentCache() {
  CGTREE_CHECK(!gate_.is_held());
  trim();
  if (in_use_.empty()) return;
  log_event(LogLevel::kError, "segment_cache_destroyed_with_segments_in_use segments={} bytes={}",
            in_use_.size(), totals_.bytes_in_use);
  if (budget_ != nullptr) budget_->release(totals_.bytes_in_use);
}

void SegmentCache::end_hold() noexcept {
  if (gate_.end_hold()) give_back(SIZE_MAX, Which::kTrash, nullptr);
}

void* SegmentCache::allocate(std::size_t bytes, StreamId stream) {
  return allocate_from(upstream_, bytes, stream);
}

void* SegmentCache::allocate_from(const Source& source, std::size_t bytes, StreamId stream) {
  if (void* const segment = reuse(source, bytes, stream)) return segment;
  Segments::node_type node =
      Segments{{Key{source.get(), bytes, 0}, Held{source, stream, {}}}}.extract(
          Key{source.get(), bytes, 0});
  Refusal refusal;
  void* segment = nullptr;
  // What the source gives is entered without a step that can fail.
  const auto call = [&] {
    segment = source->allocate(bytes, stream);
    node.key().address = number(segment);
    const std::lock_guard lock(mutex_);
    CGTREE_CHECK(in_use_.insert(std::move(node)).inserted);
    totals_.bytes_in_use += bytes;
  };
  if (take(bytes, refusal, call)) return segment;
  recover(bytes, refusal, [&] {
    segment = reuse(source, bytes, stream);
    return segment != nullptr || take(bytes, refusal, call);
  });
  return segment;
}

// A cached segment of exactly `bytes`, null without one that may be used on `stream` now.
void* SegmentCache::reuse(const Source& source, std::size_t bytes, StreamId stream) {
  bool is_waiting = false;
  if (void* const segment = try_reuse(source, bytes, stream, is_waiting)) return segment;
  if (!is_waiting) return nullptr;
  progress_.poll();
  return try_reuse(source, bytes, stream, is_waiting);
}

void* SegmentCache::try_reuse(const Source& source, std::size_t bytes, StreamId stream,
                              bool& is_waiting) {
  const std::lock_guard lock(mutex_);
  auto complete = cached_.end();
  for (auto entry = cached_.lower_bound({source.get(), bytes, 0}); entry != cached_.end();
       ++entry) {
    if (entry->first.source != source.get() || entry->first.bytes != bytes) break;
    if (entry->second.stream == stream) return take_cached(entry, stream);
    if (complete != cached_.end()) continue;
    if (progress_.is_complete(entry->second.point)) {
      complete = entry;
    } else {
      is_waiting = true;
    }
  }
  return complete == cached_.end() ? nullptr : take_cached(complete, stream);
}

void* SegmentCache::take_cached(Segments::iterator segment, StreamId stream) noexcept {
  Segments::node_type node = cached_.extract(segment);
  Held& held = node.mapped();
  totals_.bytes_cached -= node.key().bytes;
  totals_.bytes_in_use += node.key().bytes;
  if (held.is_trash) totals_.bytes_trash -= node.key().bytes;
  held.is_trash = false;
  held.stream = stream;
  void* const address = pointer(node.key().address);
  in_use_.insert(std::move(node));
  return address;
}

void SegmentCache::free(void* segment, std::size_t bytes, StreamId stream) noexcept {
  free_to(upstream_, segment, bytes, stream);
}

void SegmentCache::free_to(const Source& source, void* segment, std::size_t bytes,
                           StreamId stream) noexcept {
  const StreamPoint point = progress_.now(stream);
  const std::lock_guard lock(mutex_);
  Segments::node_type node = in_use_.extract({source.get(), bytes, number(segment)});
  CGTREE_CHECK(!node.empty());
  node.mapped().stream = stream;
  node.mapped().point = point;
  cached_.insert(std::move(node));
  totals_.bytes_in_use -= bytes;
  totals_.bytes_cached += bytes;
}

bool SegmentCache::grow(void* segment, std::size_t bytes, std::size_t grown, StreamId stream) {
  CGTREE_CHECK(grown > bytes);
  const std::size_t more = grown - bytes;
  bool has_grown = false;
  Refusal refusal;
  const auto call = [&] { has_grown = upstream_->grow(segment, bytes, grown, stream); };
  if (!take(more, refusal, call)) recover(more, refusal, [&] { return take(more, refusal, call); });
  if (has_grown) {
    resize({upstream_.get(), bytes, number(segment)}, grown);
  } else if (budget_ != nullptr) {
    budget_->release(more);
  }
  return has_grown;
}

std::size_t SegmentCache::shrink(void* segment, std::size_t bytes, std::size_t least,
                                 StreamId stream) noexcept {
  const GateEntry entry(gate_);
  if (!entry) return bytes;
  const std::size_t left = upstream_->shrink(segment, bytes, least, stream);
  if (left == bytes) return bytes;
  resize({upstream_.get(), bytes, number(segment)}, left);
  if (budget_ != nullptr) budget_->release(bytes - left);
  return left;
}

void SegmentCache::resize(const Key& from, std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  Segments::node_type node = in_use_.extract(from);
  CGTREE_CHECK(!node.empty());
  node.key().bytes = bytes;
  in_use_.insert(std::move(node));
  totals_.bytes_in_use += bytes;
  totals_.bytes_in_use -= from.bytes;
}

void SegmentCache::attach(SegmentUser& user) {
  users_.attach(user);
}

void SegmentCache::detach(SegmentUser& user) noexcept {
  users_.detach(user);
}

std::size_t SegmentCache::trim() noexcept {
  return give_back(SIZE_MAX, Which::kAll, nullptr);
}

std::size_t SegmentCache::trim(const Source& source) noexcept {
  return give_back(SIZE_MAX, Which::kAll, source.get());
}

// Cached segments, until `enough` bytes are given back; returns how many were. While frees are held
// they are marked instead.
std::size_t SegmentCache::give_back(std::size_t enough, Which which,
                                    const SegmentSource* source) noexcept {
  const GateEntry entry(gate_);
  const Segments given = extract_cached(enough, which, source, !entry);
  std::size_t bytes = 0;
  for (const auto& [key, held] : given) {
    // Of a stream whose work is done upstream need know nothing: it may be gone.
    const bool is_idle = progress_.is_complete(held.point);
    held.source->free(pointer(key.address), key.bytes, is_idle ? kIdle : held.stream);
    if (budget_ != nullptr) budget_->release(key.bytes);
    bytes += key.bytes;
  }
  return bytes;
}

SegmentCache::Segments SegmentCache::extract_cached(std::size_t enough, Which which,
                                                    const SegmentSource* source,
                                                    bool only_mark) noexcept {
  Segments extracted;
  std::size_t bytes = 0;
  const std::lock_guard lock(mutex_);
  for (auto next = cached_.begin(); next != cached_.end() && bytes < enough;) {
    const auto entry = next++;
    Held& held = entry->second;
    if (which == Which::kTrash && !held.is_trash) continue;
    if (source != nullptr && entry->first.source != source) continue;
    bytes += entry->first.bytes;
    if (only_mark) {
      if (!held.is_trash) totals_.bytes_trash += entry->first.bytes;
      held.is_trash = true;
      continue;
    }
    totals_.bytes_cached -= entry->first.bytes;
    if (held.is_trash) totals_.bytes_trash -= entry->first.bytes;
    extracted.insert(cached_.extract(entry));
  }
  return extracted;
}

SegmentCacheStatistics SegmentCache::statistics() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

void SegmentCache::validate() const {
  const std::lock_guard lock(mutex_);
  SegmentCacheStatistics sums;
  for (const auto& [key, held] : in_use_)
    sums.bytes_in_use += key.bytes;
  for (const auto& [key, held] : cached_) {
    sums.bytes_cached += key.bytes;
    if (held.is_trash) sums.bytes_trash += key.bytes;
    CGTREE_CHECK(!held.is_trash || gate_.is_held());
  }
  CGTREE_CHECK(sums == totals_);
  CGTREE_CHECK(!own_budget_ || own_budget_->current() == sums.bytes_in_use + sums.bytes_cached);
}

}  // namespace cgtree
