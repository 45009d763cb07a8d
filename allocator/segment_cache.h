// The segments of one device that pools have freed, kept for other pools, within one budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "allocator/segment_source.h"

namespace cgtree {

struct SegmentCacheStatistics {
  std::size_t bytes_in_use = 0;  // handed out to pools
  std::size_t bytes_cached = 0;  // freed by pools, not yet given back upstream

  friend bool operator==(const SegmentCacheStatistics&, const SegmentCacheStatistics&) = default;
};

// A segment is reused for a request of exactly its size, the lowest first.
//
// Invariant: bytes_in_use + bytes_cached <= max_bytes.
//
// Threads: every function may be called from any thread. The lock is held while upstream is called,
// so that the budget is exact; pools come here only when they grow.
class SegmentCache : public SegmentSource {
 public:
  // `upstream` must outlive the cache.
  explicit SegmentCache(SegmentSource& upstream, std::size_t max_bytes = SIZE_MAX);
  // Gives the cached segments back. Those still in use are logged as an error.
  ~SegmentCache() override;
  SegmentCache(const SegmentCache&) = delete;
  SegmentCache& operator=(const SegmentCache&) = delete;

  // Gives cached segments back where the budget or upstream needs their room. Throws OutOfMemory
  // when that is not enough, and what else upstream throws.
  void* allocate(std::size_t bytes, StreamId stream) override;

  // Aborts unless `segment` is in use with `bytes`.
  void free(void* segment, std::size_t bytes, StreamId stream) noexcept override;

  // Gives all cached segments back upstream and returns their bytes.
  std::size_t trim() noexcept;

  SegmentCacheStatistics statistics() const;

 private:
  struct Held {
    std::size_t bytes;
    bool in_use;
    StreamId stream;  // where it is used, or was last
  };

  void* reuse(std::size_t bytes, StreamId stream);
  void* allocate_upstream(std::size_t bytes, StreamId stream);
  std::size_t give_back(std::size_t enough) noexcept;

  SegmentSource& upstream_;
  const std::size_t max_bytes_;
  mutable std::mutex mutex_;       // guards all below
  std::map<void*, Held> held_;     // everything upstream has given and not got back
  SegmentCacheStatistics totals_;  // of held_
};

}  // namespace cgtree
