// Ways to copy many inputs by hand on a GPU.
#pragma once

#include <cstddef>
#include <vector>

#include "interop/device/stream.h"

namespace cgtree::benchmarks {

// Copies `bytes` bytes from each source to its destination with one kernel launch, to which the
// addresses are passed as kernel arguments. Requires: at most 64 sources; addresses and `bytes` are
// multiples of 16.
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
