// PoolSegments: the segments of one pool, from an account of a segment cache.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <utility>

#include "allocator/pool/segment_source.h"
#include "allocator/segments/segment_cache.h"

namespace cgtree {

// A PoolSegments connects a pool to the cache: it has the stream of the pool, and keeps unused
// segments while recordings may use their addresses.
//
// Thread safety: all functions may be called from any thread.
class PoolSegments : public SegmentSource, public SegmentUser {
 public:
  // Both are borrowed.
  PoolSegments(SegmentCache& cache, SegmentAccount& account) noexcept
      : cache_(cache), account_(account) {}

  // The stream of all segments; it replaces PoolOptions::stream.
  StreamId stream() const noexcept { return stream_; }
  // Makes it the source of a pool for another stream, which must wait for all work of the former.
  void set_stream(StreamId stream);
  // If true, keeps unused segments when the cache asks for them.
  void set_keeps(bool keeps) noexcept { keeps_ = keeps; }
  // Sets a function that is called before unused segments are given back. Must be called before the
  // pool is attached.
  void set_before_give_back(std::function<void()> function) { before_ = std::move(function); }

  // SegmentSource.
  void* allocate(std::size_t bytes, StreamId) override {
    return cache_.allocate_for(account_, bytes, stream_);
  }
  void* allocate_from_free(std::size_t bytes, StreamId) override {
    return cache_.allocate_for(account_, bytes, stream_, SegmentCache::Room::kFree);
  }
  void free(void* segment, std::size_t bytes, StreamId) noexcept override {
    cache_.free_for(account_, segment, bytes, stream_);
  }
  bool grow(void* segment, std::size_t bytes, std::size_t grown, StreamId) override {
    return cache_.grow_for(account_, segment, bytes, grown, stream_);
  }
  std::size_t shrink(void* segment, std::size_t bytes, std::size_t least,
                     StreamId) noexcept override {
    return cache_.shrink_for(account_, segment, bytes, least, stream_);
  }
  void map(void* segment, std::size_t bytes, std::size_t offset, std::size_t count,
           StreamId) override {
    cache_.map_for(account_, segment, bytes, offset, count, stream_);
  }
  bool unmap(void* segment, std::size_t bytes, std::size_t offset, std::size_t count,
             StreamId) noexcept override {
    return cache_.unmap_for(account_, segment, bytes, offset, count, stream_);
  }
  void attach(SegmentUser& user) override;
  void detach(SegmentUser&) noexcept override { cache_.detach(*this); }

  // SegmentUser.
  std::size_t give_back_unused() noexcept override;
  PoolUse use() const override { return user_->use(); }

 protected:
  SegmentCache& cache_;
  SegmentAccount& account_;

 private:
  std::atomic<StreamId> stream_{0};
  std::atomic<bool> keeps_{false};
  std::function<void()> before_;
  SegmentUser* user_ = nullptr;  // the pool
};

}  // namespace cgtree
