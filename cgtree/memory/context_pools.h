// ContextPools: the three pools of a context, and what it asks of where their segments come from.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>

#include "allocator/pool/pool.h"
#include "cgtree/memory/slots.h"
#include "cgtree/values/options.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// A ContextPools has one pool per Region, all of them for one stream and with the context's budget.
// The segments of the output and the scratch pool stay until trim(), because recordings know their
// addresses, whatever the bookkeeping of the pools says is live.
//
// Thread safety: all functions may be called from any thread, except end() and empty_pinned().
class ContextPools {
 public:
  // Frees memory that the context holds, and returns about how many bytes; `needed` would be
  // enough. It must not allocate from the pools.
  using Reclaim = std::function<std::size_t(std::size_t needed)>;

  ContextPools() = default;
  ContextPools(const ContextPools&) = delete;
  ContextPools& operator=(const ContextPools&) = delete;
  virtual ~ContextPools() = default;

  Pool& operator[](Region region) const noexcept { return *pools_[static_cast<int>(region)]; }
  bool owns(const void* address) const;
  std::size_t reserved_bytes() const;
  void validate() const;

  // Makes them pools for another stream, which waits for all work that has used them.
  virtual void move_to(StreamId stream) noexcept = 0;
  // Gives all memory back. The stream is not used from then on and may be destroyed. `is_idle`: all
  // work that has used the memory has ended.
  virtual void end(bool is_idle) noexcept = 0;

  // Gives idle segments back to the source, unless other contexts share the cache that has them.
  virtual void give_back_idle() = 0;
  // The same, also if others share the cache.
  virtual void give_back_cached() = 0;
  // Defers frees on the device while the result lives, because a capture is open.
  [[nodiscard]] virtual std::shared_ptr<const void> defer_frees() = 0;
  // Sets what is called when memory is short, here or in other pools of the device; null for
  // nothing. Waits for a call in progress.
  virtual void set_reclaim(Reclaim reclaim) = 0;

  // Returns a tensor of pinned memory whose contents are not set. It is used again when its last
  // handle is gone and what it was used for (StorageOwner::used()) is done. Throws OutOfMemory.
  virtual Tensor empty_pinned(const Shape& shape, DType dtype) = 0;

 protected:
  // Returns the options of a pool, but for its stream.
  static PoolOptions pool_options(Region region, const ContextOptions& options);

  std::array<Pool*, 3> pools_{};  // by Region; set by the constructors
};

// Returns the pools of a context. Throws InvalidArgument if the options ask for what the device, or
// a build of the core alone, cannot do. The core declares this and does not define it.
std::unique_ptr<ContextPools> make_context_pools(Device device, const ContextOptions& options,
                                                 StreamRef stream);

}  // namespace cgtree
