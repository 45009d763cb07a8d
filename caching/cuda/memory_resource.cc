// Checks alignments and streams, and passes calls to the pool.
#include "caching/cuda/memory_resource.h"

#include <algorithm>
#include <utility>

#include "allocator/pool/block.h"
#include "base/error.h"
#include "base/format.h"

namespace cgtree {

MemoryResource::MemoryResource(std::shared_ptr<Pool> pool, cuda::stream_ref stream)
    : pool_(std::move(pool)), stream_(stream) {
  if (!pool_) throw InvalidArgument("a memory resource over no pool; give it one");
}

void* MemoryResource::allocate(std::size_t bytes, std::size_t alignment) {
  const bool is_power_of_two = alignment != 0 && (alignment & (alignment - 1)) == 0;
  if (!is_power_of_two || alignment > kBlockAlignment) {
    throw InvalidArgument(
        str_format("pool '{}' aligns to {} bytes, not to {}; ask for a power of two up to that",
                   pool_->options().name, kBlockAlignment, alignment));
  }
  return pool_->allocate(std::max<std::size_t>(bytes, 1));
}

void MemoryResource::deallocate(void* memory, std::size_t, std::size_t) noexcept {
  pool_->free(memory);
}

void MemoryResource::check_stream(cuda::stream_ref stream) const {
  if (stream == stream_) return;
  throw InvalidArgument(
      str_format("pool '{}' is used on stream {:#x}, not on {:#x}; give each stream its own pool",
                 pool_->options().name, reinterpret_cast<std::uintptr_t>(stream_.get()),
                 reinterpret_cast<std::uintptr_t>(stream.get())));
}

void* MemoryResource::allocate_async(std::size_t bytes, std::size_t alignment,
                                     cuda::stream_ref stream) {
  check_stream(stream);
  return allocate(bytes, alignment);
}

void* MemoryResource::allocate_async(std::size_t bytes, cuda::stream_ref stream) {
  return allocate_async(bytes, alignof(std::max_align_t), stream);
}

void MemoryResource::deallocate_async(void* memory, std::size_t bytes, std::size_t alignment,
                                      cuda::stream_ref stream) {
  check_stream(stream);
  deallocate(memory, bytes, alignment);
}

void MemoryResource::deallocate_async(void* memory, std::size_t bytes, cuda::stream_ref stream) {
  deallocate_async(memory, bytes, alignof(std::max_align_t), stream);
}

}  // namespace cgtree
