// Enters segments into the map of addresses.
#include "caching/mapped_pool.h"

#include <memory>
#include <new>

namespace cgtree {
namespace {

Range range_of(const void* segment, std::size_t bytes) {
  return {reinterpret_cast<std::uintptr_t>(segment), bytes};
}

class MappedSegments final : public PoolSegments {
 public:
  MappedSegments(MappedPool& owner, SegmentCache& cache, SegmentAccount& account, SegmentMap& map)
      : PoolSegments(cache, account), owner_(owner), map_(map) {}

  // SegmentSource.
  void* allocate(std::size_t bytes, StreamId stream) override {
    return enter(PoolSegments::allocate(bytes, stream), bytes);
  }
  void* allocate_from_free(std::size_t bytes, StreamId stream) override {
    return enter(PoolSegments::allocate_from_free(bytes, stream), bytes);
  }
  void free(void* segment, std::size_t bytes, StreamId stream) noexcept override {
    map_.erase(range_of(segment, bytes));
    PoolSegments::free(segment, bytes, stream);
  }
  bool grow(void* segment, std::size_t bytes, std::size_t grown, StreamId stream) override {
    const Range more{reinterpret_cast<std::uintptr_t>(segment) + bytes, grown - bytes};
    map_.prepare(more);  // a new end might not be given back before a capture ends
    bool has_grown = false;
    try {
      has_grown = PoolSegments::grow(segment, bytes, grown, stream);
    } catch (...) {
      map_.forget_prepared();
      throw;
    }
    has_grown ? map_.insert_prepared(more, owner_) : map_.forget_prepared();
    return has_grown;
  }
  // As soon as the source has the end back, it may be part of another segment.
  std::size_t shrink(void* segment, std::size_t bytes, std::size_t least,
                     StreamId stream) noexcept override {
    const Range end{reinterpret_cast<std::uintptr_t>(segment) + least, bytes - least};
    try {
      map_.prepare(end);
    } catch (const std::bad_alloc&) {
      return bytes;
    }
    map_.erase(end);
    const std::size_t left = PoolSegments::shrink(segment, bytes, least, stream);
    map_.insert_prepared({end.address, left - least}, owner_);
    return left;
  }

 private:
  // Enters a segment, or gives it back and throws.
  void* enter(void* segment, std::size_t bytes) {
    try {
      map_.insert(range_of(segment, bytes), owner_);
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

MappedPool::MappedPool(SegmentCache& cache, SegmentAccount& account, SegmentMap& map,
                       const PoolOptions& options, bool is_private)
    : StreamPool(cache, std::make_unique<MappedSegments>(*this, cache, account, map), options),
      is_private_(is_private) {
}

}  // namespace cgtree
