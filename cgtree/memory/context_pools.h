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

// A ContextPools has one pool per Region, all for one stream and in one account, which has the
// context's budget. The segments of the output and scratch pools stay until trim(), whatever is
// live by the bookkeeping of the pools, because recordings contain their addresses.
//
// Thread safety: any thread may call any function except end() and empty_pinned().
class ContextPools {
 public:
  // Frees memory of the context, and returns about the number of bytes; `needed` would be enough.
  // It must not allocate from the pools.
  using Reclaim = std::function<std::size_t(std::size_t needed)>;

  // Throws InvalidArgument if the device cannot follow the options.
  ContextPools(Device device, const ContextOptions& options, StreamRef stream);
  ~ContextPools();
  ContextPools(const ContextPools&) = delete;
  ContextPools& operator=(const ContextPools&) = delete;

  Pool& operator[](Region region) const noexcept { return *pools_[static_cast<int>(region)]; }
  bool owns(const void* address) const;
  std::size_t reserved_bytes() const;
  void validate() const;

  // Makes them pools for another stream, which must wait for all work that has used them.
  void move_to(StreamId stream) noexcept;
  // Releases all memory. The stream is not used from then on and may be destroyed. `is_idle`: all
  // work that used the memory has ended.
  void end(bool is_idle) noexcept;

  // Releases idle segments to the source, unless other contexts share their cache.
  void give_back_idle();
  // As give_back_idle(), even if others share the cache.
  void give_back_cached() { (void)device_->cache().trim(); }
  // Defers frees on the device while the result lives, because a capture is open.
  [[nodiscard]] std::shared_ptr<const void> defer_frees();
  // Sets the function that is called when memory is short, here or in other pools of the device;
  // null for none. Waits for a call in progress.
  void set_reclaim(Reclaim reclaim);

  // Returns a tensor of pinned memory, uninitialized. The memory is reused when its last handle is
  // destroyed and its uses (StorageOwner::used()) have ended. Throws OutOfMemory.
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
