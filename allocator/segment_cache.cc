// Keeps freed segments for other pools of the device.
#include "allocator/segment_cache.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"

namespace cgtree {

SegmentCache::SegmentCache(SegmentSource& upstream, std::size_t max_bytes)
    : upstream_(upstream), max_bytes_(max_bytes) {
}

SegmentCache::~SegmentCache() {
  trim();
  if (held_.empty()) return;
  log_event(LogLevel::kError, "segment_cache_destroyed_with_segments_in_use segments={} bytes={}",
            held_.size(), totals_.bytes_in_use);
}

void* SegmentCache::allocate(std::size_t bytes, StreamId stream) {
  const std::lock_guard lock(mutex_);
  if (void* const segment = reuse(bytes, stream)) return segment;

  if (bytes > max_bytes_ - totals_.bytes_in_use) {
    throw OutOfMemory(fmt::format(
        "a segment of {} bytes would exceed the device's budget of {}: in use {}, cached {}", bytes,
        max_bytes_, totals_.bytes_in_use, totals_.bytes_cached));
  }
  const std::size_t room = max_bytes_ - totals_.bytes_in_use - totals_.bytes_cached;
  if (bytes > room) give_back(bytes - room);
  try {
    return allocate_upstream(bytes, stream);
  } catch (const OutOfMemory&) {
    if (give_back(SIZE_MAX) == 0) throw;
  }
  return allocate_upstream(bytes, stream);
}

// A cached segment of exactly `bytes`, null without one.
void* SegmentCache::reuse(std::size_t bytes, StreamId stream) {
  if (totals_.bytes_cached < bytes) return nullptr;
  for (auto& [segment, held] : held_) {
    if (held.in_use || held.bytes != bytes) continue;
    held.in_use = true;
    held.stream = stream;
    totals_.bytes_cached -= bytes;
    totals_.bytes_in_use += bytes;
    return segment;
  }
  return nullptr;
}

void* SegmentCache::allocate_upstream(std::size_t bytes, StreamId stream) {
  auto node = std::map<void*, Held>{{nullptr, Held{bytes, true, stream}}}.extract(nullptr);
  void* const segment = upstream_.allocate(bytes, stream);  // nothing after this throws
  node.key() = segment;
  const bool inserted = held_.insert(std::move(node)).inserted;
  CGTREE_CHECK(inserted);
  totals_.bytes_in_use += bytes;
  return segment;
}

// Gives cached segments back, the lowest first, until `enough` bytes are; returns how many were.
std::size_t SegmentCache::give_back(std::size_t enough) noexcept {
  std::size_t bytes = 0;
  for (auto position = held_.begin(); position != held_.end() && bytes < enough;) {
    if (position->second.in_use) {
      ++position;
      continue;
    }
    bytes += position->second.bytes;
    const Held& held = position->second;
    upstream_.free(position->first, held.bytes, held.stream);
    position = held_.erase(position);
  }
  totals_.bytes_cached -= bytes;
  return bytes;
}

void SegmentCache::free(void* segment, std::size_t bytes, StreamId stream) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(segment);
  CGTREE_CHECK(found != held_.end());
  CGTREE_CHECK(found->second.in_use && found->second.bytes == bytes);
  found->second.in_use = false;
  found->second.stream = stream;
  totals_.bytes_in_use -= bytes;
  totals_.bytes_cached += bytes;
}

std::size_t SegmentCache::trim() noexcept {
  const std::lock_guard lock(mutex_);
  return give_back(SIZE_MAX);
}

SegmentCacheStatistics SegmentCache::statistics() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

}  // namespace cgtree
