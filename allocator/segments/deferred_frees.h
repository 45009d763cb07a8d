// A promise that a segment cache makes no call that an open capture forbids.
#pragma once

#include <utility>

namespace cgtree {

class SegmentCache;

// While any exists, nothing is given back to the device, and no event is recorded, asked or waited
// for. What should have been given back is when the last one ends. Move-only; the cache must
// outlive it.
class DeferredFrees {
 public:
  DeferredFrees() = default;
  explicit DeferredFrees(SegmentCache& cache) noexcept;
  ~DeferredFrees();
  DeferredFrees(DeferredFrees&& other) noexcept : cache_(std::exchange(other.cache_, nullptr)) {}
  DeferredFrees& operator=(DeferredFrees&& other) noexcept {
    std::swap(cache_, other.cache_);
    return *this;
  }

  explicit operator bool() const noexcept { return cache_ != nullptr; }

 private:
  SegmentCache* cache_ = nullptr;
};

}  // namespace cgtree
