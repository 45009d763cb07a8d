// ContextPools: the three pools of a context in the caching allocator of its device.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>

#include "allocator/caching/device_allocator.h"
#include "cgtree/memory/slots.h"
#include "cgtree/options.h"

namespace cgtree {

// A ContextPools has one private pool per Region, all of them for one stream and in one account
// with the context's budget. The segments of the output and the scratch pool stay until trim(),
// because recordings know their addresses, whatever the bookkeeping of the pools says is live.
//
// Thread safety: all functions may be called from any thread, except end().
class ContextPools {
 public:
  // Throws InvalidArgument if the options ask for what the device cannot do.
  ContextPools(Device device, const ContextOptions& options, StreamId stream);
  ~ContextPools();
  ContextPools(const ContextPools&) = delete;
  ContextPools& operator=(const ContextPools&) = delete;

  // Makes them pools for another stream, which waits for all work that has used them.
  void move_to(StreamId stream) noexcept;

  Pool& operator[](Region region) const noexcept { return *pools_[static_cast<int>(region)]; }

  // Gives all memory back. Must be called before the stream is destroyed.
  void end() noexcept;

  // Gives idle segments back to the source, unless other contexts share the cache that has them.
  void give_back_idle(Device device);

  // The same, also if others share the cache.
  void give_back_cached() { (void)device_->cache().trim(); }

  bool owns(const void* address) const;
  std::size_t reserved_bytes() const;

  // Defers frees on the device while the result lives, because a capture is open.
  DeferredFrees defer_frees() noexcept { return device_->cache().defer_frees(); }

  // Sets what is called when memory is short, here or in other pools of the device; null for
  // nothing. Waits for a call in progress.
  void set_reclaim(SegmentCache::Reclaim reclaim);

  void validate() const;

 private:
  StreamId stream_;  // guarded by the mutex of ContextStream
  const std::shared_ptr<DeviceAllocator> device_;
  const std::shared_ptr<SegmentAccount> account_;
  std::optional<SegmentCache::ReclaimId> reclaim_;
  std::array<PoolHandle, 3> handles_;  // by Region
  std::array<Pool*, 3> pools_{};       // the pools of the handles on the stream
};

}  // namespace cgtree
