// ContextPools: the three pools of a context, over the memory of its device.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "allocator/device/device_memory.h"
#include "allocator/device/pinned_memory.h"
#include "allocator/device/pool_segments.h"
#include "allocator/pool/pool.h"
#include "cgtree/memory/slots.h"
#include "cgtree/values/options.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// A ContextPools has one pool per Region, all of them for one stream and in one account, which has
// the context's budget. The segments of the output and the scratch pool stay until trim(), because
// recordings know their addresses, whatever the bookkeeping of the pools says is live.
//
// Thread safety: all functions may be called from any thread, except end() and empty_pinned().
class ContextPools {
 public:
  // Frees memory that the context holds, and returns about how many bytes; `needed` would be
  // enough. It must not allocate from the pools.
  using Reclaim = std::function<std::size_t(std::size_t needed)>;

  // Throws InvalidArgument if the options ask for what the device cannot do.
  ContextPools(Device device, const ContextOptions& options, StreamRef stream);
  ~ContextPools();
  ContextPools(const ContextPools&) = delete;
  ContextPools& operator=(const ContextPools&) = delete;

  Pool& operator[](Region region) const noexcept { return *pools_[static_cast<int>(region)]; }
  bool owns(const void* address) const;
  std::size_t reserved_bytes() const;
  void validate() const;

  // Makes them pools for another stream, which waits for all work that has used them.
  void move_to(StreamId stream) noexcept;
  // Gives all memory back. The stream is not used from then on and may be destroyed. `is_idle`: all
  // work that has used the memory has ended.
  void end(bool is_idle) noexcept;

  // Gives idle segments back to the source, unless other contexts share the cache that has them.
  void give_back_idle();
  // The same, also if others share the cache.
  void give_back_cached() { (void)device_->cache().trim(); }
  // Defers frees on the device while the result lives, because a capture is open.
  [[nodiscard]] std::shared_ptr<const void> defer_frees();
  // Sets the function that is called when memory is short, here or in other pools of the device;
  // null for none. Waits for a call in progress.
  void set_reclaim(Reclaim reclaim);

  // Returns a tensor of pinned memory whose contents are not set. It is used again when its last
  // handle is gone and what it was used for (StorageOwner::used()) is done. Throws OutOfMemory.
  Tensor empty_pinned(const Shape& shape, DType dtype);

 private:
  const std::shared_ptr<DeviceMemory> device_;
  SegmentAccount account_;
  std::optional<SegmentCache::ReclaimId> reclaim_;
  std::array<std::unique_ptr<PoolSegments>, 3> segments_;  // by Region
  std::array<std::unique_ptr<Pool>, 3> pools_;             // by Region
  std::optional<PinnedMemory> pinned_;
  std::size_t on_retire_ = 0;
};

}  // namespace cgtree
