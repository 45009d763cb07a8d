// The allocators of the CUDA toolkit, as allocator_bench uses them.
#pragma once

#include <cuda_runtime_api.h>

#include <cub/util_allocator.cuh>

#include "base/error.h"

namespace cgtree::benchmarks {

inline void expect_success(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();
  throw DeviceError(static_cast<int>(error), what);
}

// Bins of powers of two from 512 B to 64 MiB; the default is only powers of eight.
class CubMemory {
 public:
  void* allocate(std::size_t bytes) {
    void* data = nullptr;
    expect_success(allocator_.DeviceAllocate(&data, bytes, nullptr), "cub DeviceAllocate");
    return data;
  }
  void free(void* data) { expect_success(allocator_.DeviceFree(data), "cub DeviceFree"); }

 private:
  cub::CachingDeviceAllocator allocator_{2, 9, 26, cub::CachingDeviceAllocator::INVALID_SIZE};
};

// The device's default memory pool, which keeps its memory. Each object has its own stream.
class AsyncMemory {
 public:
  AsyncMemory() {
    std::uint64_t threshold = UINT64_MAX;
    expect_success(cudaDeviceGetDefaultMemPool(&pool_, 0), "get the default pool");
    expect_success(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &threshold),
                   "set the release threshold");
    expect_success(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
  }
  ~AsyncMemory() {
    (void)cudaStreamSynchronize(stream_);
    (void)cudaStreamDestroy(stream_);
    (void)cudaMemPoolTrimTo(pool_, 0);
  }
  AsyncMemory(const AsyncMemory&) = delete;
  AsyncMemory& operator=(const AsyncMemory&) = delete;

  void* allocate(std::size_t bytes) {
    void* data = nullptr;
    expect_success(cudaMallocAsync(&data, bytes, stream_), "cudaMallocAsync");
    return data;
  }
  void free(void* data) { expect_success(cudaFreeAsync(data, stream_), "cudaFreeAsync"); }

 private:
  cudaMemPool_t pool_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

}  // namespace cgtree::benchmarks
