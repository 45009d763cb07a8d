// MemoryResource: a pool as a memory resource of CUDA's C++ libraries, for cuda::mr, Thrust and
// CUB.
#pragma once

#include <cuda/memory_resource>

#include <cstddef>
#include <memory>

#include "allocator/pool/pool.h"

namespace cgtree {

// A MemoryResource refers to a pool: copies refer to the same pool, and are equal. It satisfies
// cuda::mr::async_resource_with<cuda::mr::device_accessible> of CUDA 13.0.
//
// Deallocated memory may be returned by the next allocation, so all uses must be on the stream of
// the resource, or have ended.
//
// Thread safety: all functions may be called from any thread.
class MemoryResource {
 public:
  // The pool must outlive all uses; see the other constructor. The stream must be the pool's
  // (PoolOptions::stream).
  MemoryResource(Pool& pool, cuda::stream_ref stream) noexcept
      : pool_(std::shared_ptr<Pool>(), &pool), stream_(stream) {}

  // Shares the pool. Throws InvalidArgument if it is null.
  MemoryResource(std::shared_ptr<Pool> pool, cuda::stream_ref stream);

  Pool& pool() const noexcept { return *pool_; }

  // A request of 0 bytes gets a block, too. Throws InvalidArgument for an alignment that is not a
  // power of two or is above kBlockAlignment, and the exceptions of Pool::allocate().
  void* allocate(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t));

  // Requires: no work on the device still uses the memory, except on the stream.
  void deallocate(void* memory, std::size_t bytes,
                  std::size_t alignment = alignof(std::max_align_t)) noexcept;

  // The same for use on `stream`. Throws InvalidArgument, and changes nothing, if that is not the
  // stream of the resource.
  void* allocate_async(std::size_t bytes, std::size_t alignment, cuda::stream_ref stream);
  void* allocate_async(std::size_t bytes, cuda::stream_ref stream);
  void deallocate_async(void* memory, std::size_t bytes, std::size_t alignment,
                        cuda::stream_ref stream);
  void deallocate_async(void* memory, std::size_t bytes, cuda::stream_ref stream);

  friend bool operator==(const MemoryResource& left, const MemoryResource& right) noexcept {
    return left.pool_.get() == right.pool_.get();
  }
  friend bool operator!=(const MemoryResource& left, const MemoryResource& right) noexcept {
    return !(left == right);
  }

  friend void get_property(const MemoryResource&, cuda::mr::device_accessible) noexcept {}

 private:
  void check_stream(cuda::stream_ref stream) const;

  std::shared_ptr<Pool> pool_;  // not counted if it was made from a reference
  cuda::stream_ref stream_;
};

static_assert(cuda::mr::resource_with<MemoryResource, cuda::mr::device_accessible>);
static_assert(cuda::mr::async_resource_with<MemoryResource, cuda::mr::device_accessible>);

}  // namespace cgtree
