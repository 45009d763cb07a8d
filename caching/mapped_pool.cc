// Enters segments into the map of addresses.
#include "caching/mapped_pool.h"

#include <memory>

namespace cgtree {
namespace {

class MappedSegments final : public PoolSegments {
 public:
  MappedSegments(MappedPool& owner, SegmentCache& cache, SegmentMap& map)
      : PoolSegments(cache, cache.own_account()), owner_(owner), map_(map) {}

  // SegmentSource.
  void* allocate(std::size_t bytes, StreamId stream) override {
    return enter(PoolSegments::allocate(bytes, stream), bytes);
  }
  void* allocate_from_free(std::size_t bytes, StreamId stream) override {
    return enter(PoolSegments::allocate_from_free(bytes, stream), bytes);
  }
  void free(void* segment, std::size_t bytes, StreamId stream) noexcept override {
    map_.erase({reinterpret_cast<std::uintptr_t>(segment), bytes});
    PoolSegments::free(segment, bytes, stream);
  }

 private:
  // Enters a segment, or gives it back and throws.
  void* enter(void* segment, std::size_t bytes) {
    try {
      map_.insert({reinterpret_cast<std::uintptr_t>(segment), bytes}, owner_);
    } catch (...) {
      PoolSegments::free(segment, bytes, stream());
      throw;
    }
    return segment;
  }

  MappedPool& owner_;
  SegmentMap& map_;
};

}  // namespace

MappedPool::MappedPool(SegmentCache& cache, SegmentMap& map, const PoolOptions& options)
    : StreamPool(cache, std::make_unique<MappedSegments>(*this, cache, map), options) {
}

}  // namespace cgtree
