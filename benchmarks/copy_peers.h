// What one would copy inputs with by hand on a GPU, other than one memcpy each.
#pragma once

#include <cstddef>
#include <vector>

#include "interop/device/stream.h"

namespace cgtree::benchmarks {

// Copies of `bytes` bytes each from sources to destinations, by one kernel launch: the addresses
// ride by value. Requires at most 64, aligned to 16 bytes, and bytes % 16 == 0.
void copy_by_kernel(StreamRef stream, const std::vector<const void*>& sources,
                    const std::vector<void*>& destinations, std::size_t bytes);

// cub::DeviceMemcpy::Batched over tables of addresses and sizes in pinned host memory, which the
// device reads.
class CubBatchedCopy {
 public:
  CubBatchedCopy(const std::vector<const void*>& sources, const std::vector<void*>& destinations,
                 std::size_t bytes);
  ~CubBatchedCopy();
  CubBatchedCopy(const CubBatchedCopy&) = delete;
  CubBatchedCopy& operator=(const CubBatchedCopy&) = delete;

  void enqueue(StreamRef stream);

 private:
  std::size_t count_;
  const void** sources_ = nullptr;
  void** destinations_ = nullptr;
  std::size_t* sizes_ = nullptr;
  void* scratch_ = nullptr;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace cgtree::benchmarks
