// A pool as a memory resource of CUDA's C++ libraries: for cuda::mr, and through it Thrust and CUB.
#pragma once

#include <cuda/memory_resource>

#include <cstddef>
#include <memory>

#include "allocator/pool/pool.h"

namespace cgtree {

// A reference to a pool: copies refer to the same one, and are equal. Satisfies
// cuda::mr::async_resource_with<cuda::mr::device_accessible> of CUDA 13.0.
//
// Memory that a stream uses is handed out again at once when it is deallocated, so all uses must be
// on the pool's stream (PoolOptions::stream) or have ended.
//
// Threads: any.
class MemoryResource {
 public:
  // The pool must outlive all uses; see the other constructor.
  explicit MemoryResource(Pool& pool) noexcept : pool_(std::shared_ptr<Pool>(), &pool) {}

  // Shares the pool. Throws InvalidArgument when it is null.
  explicit MemoryResource(std::shared_ptr<Pool> pool);

  Pool& pool() const noexcept { return *pool_; }

  // 0 bytes get a block too. Throws InvalidArgument for an alignment that is no power of two or is
  // above kBlockAlignment, and what Pool::allocate() throws.
  void* allocate(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t));

  // Requires that no work on the device uses the memory any more, unless it is on the pool's
  // stream.
  void deallocate(void* memory, std::size_t bytes,
                  std::size_t alignment = alignof(std::max_align_t)) noexcept;

  // The same for use on `stream`. Throws InvalidArgument, and changes nothing, when that is not the
  // pool's.
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

  std::shared_ptr<Pool> pool_;  // of a reference: without a count
};

static_assert(cuda::mr::resource_with<MemoryResource, cuda::mr::device_accessible>);
static_assert(cuda::mr::async_resource_with<MemoryResource, cuda::mr::device_accessible>);

}  // namespace cgtree
