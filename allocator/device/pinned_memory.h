// PinnedMemory: tensors in host memory that a device copies from and to without a staging buffer.
#pragma once

#include <memory>
#include <span>

#include "allocator/pool/statistics.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// A PinnedMemory is a pool of pinned host memory: a pool over the segments of the device, with its
// own budget. A tensor's memory is reused when its last handle is destroyed and every copy() from
// or to it has ended; a recording that copies counts as a handle.
//
// Thread safety: all functions may be called from any thread. Tensors may outlive the object and
// may be released on any thread.
class PinnedMemory {
 public:
  // Throws InvalidArgument if the device does not exist or has no events.
  explicit PinnedMemory(Device device);

  // Returns an uninitialized host tensor. Throws OutOfMemory.
  Tensor empty(const Shape& shape, DType dtype);

  template <typename T>
  Tensor from(const Shape& shape, std::span<const T> values) {
    Tensor tensor = empty(shape, dtype_of<T>);
    tensor.copy_from(values);
    return tensor;
  }

  // Gives back unused memory; returns the bytes.
  std::size_t trim() noexcept;

  PoolStatistics statistics() const;
  // Freed blocks that copies may still use.
  std::size_t pending_blocks() const;

 private:
  class Owner;
  struct Release {
    void operator()(Owner* owner) const noexcept;
  };

  // Reference-counted; lives as long as this object and its tensors.
  std::unique_ptr<Owner, Release> owner_;
};

}  // namespace cgtree
