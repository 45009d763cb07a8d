// The functions of the CUDA runtime that docs/first_hour/two_files.md calls, over the host device.
// Requires: cgtree_steps.cc is included before.
#pragma once

#include <cstddef>

using cudaStream_t = CUstream_st*;
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };

inline cgtree::DeviceAPI& fake_runtime() {
  return cgtree::device_api({cgtree::DeviceType::kHost, 0});
}

inline int cudaMalloc(void** data, std::size_t bytes) {
  return static_cast<int>(fake_runtime().alloc_data_space(0, bytes, data));
}

inline int cudaStreamCreate(cudaStream_t* stream) {
  cgtree::StreamHandle handle{};
  const cgtree::Code code = fake_runtime().create_stream(0, cgtree::StreamKind::kBlocking, &handle);
  *stream = reinterpret_cast<cudaStream_t>(static_cast<std::uintptr_t>(handle));
  return static_cast<int>(code);
}

inline int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                           cudaStream_t stream) {
  const auto handle = static_cast<cgtree::StreamHandle>(reinterpret_cast<std::uintptr_t>(stream));
  return static_cast<int>(fake_runtime().copy(handle, to, from, bytes));
}

// Like a copy on the legacy stream: it waits for all streams.
inline int cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  cgtree::check(fake_runtime().synchronize_device(0), "wait");
  const int code = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  cgtree::check(fake_runtime().synchronize_device(0), "wait");
  return code;
}
