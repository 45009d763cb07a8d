// The differences between the toolkits from CUDA 12.0 to 13: each function is that of 13.0, built
// on the functions of the present toolkit. Functions of the driver are looked up by version: see
// driver.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "interop/device/cuda/driver.h"

#if CUDART_VERSION < 12000
#error "cgtree needs CUDA 12.0 or later, and CUDART_VERSION says that this is an earlier one"
#endif

namespace cgtree::cuda {

// Before 12.3 edges have no data. If an edge has data, functions that do not return it fail with
// cudaErrorLossyQuery.
#if CUDART_VERSION >= 12030
// Returns room for the data of the edges to or from these nodes; data() is null for a null array.
inline std::vector<cudaGraphEdgeData> data_of(const cudaGraphNode_t* nodes,
                                              const std::size_t* count) {
  return std::vector<cudaGraphEdgeData>(nodes == nullptr ? 0 : *count);
}

// As graph_edges(), with the data of each edge.
inline cudaError_t graph_edges_with_data(cudaGraph_t graph, cudaGraphNode_t* from,
                                         cudaGraphNode_t* to, cudaGraphEdgeData* data,
                                         std::size_t* count) noexcept {
#if CUDART_VERSION >= 13000
  return cudaGraphGetEdges(graph, from, to, data, count);
#else
  return cudaGraphGetEdges_v2(graph, from, to, data, count);
#endif
}
#endif

// Writes up to *count edges, and their number. With null arrays: their number alone.
inline cudaError_t graph_edges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                               std::size_t* count) {
#if CUDART_VERSION >= 12030
  return graph_edges_with_data(graph, from, to, data_of(from, count).data(), count);
#else
  return cudaGraphGetEdges(graph, from, to, count);
#endif
}

// As graph_edges(), for the nodes before a node.
inline cudaError_t node_dependencies(cudaGraphNode_t node, cudaGraphNode_t* before,
                                     std::size_t* count) {
#if CUDART_VERSION >= 13000
  return cudaGraphNodeGetDependencies(node, before, data_of(before, count).data(), count);
#elif CUDART_VERSION >= 12030
  return cudaGraphNodeGetDependencies_v2(node, before, data_of(before, count).data(), count);
#else
  return cudaGraphNodeGetDependencies(node, before, count);
#endif
}

// Adds edges without data.
inline cudaError_t add_edges(cudaGraph_t graph, const cudaGraphNode_t* from,
                             const cudaGraphNode_t* to, std::size_t count) noexcept {
#if CUDART_VERSION >= 13000
  return cudaGraphAddDependencies(graph, from, to, nullptr, count);
#else
  return cudaGraphAddDependencies(graph, from, to, count);
#endif
}

// Conditional nodes with the functions that we need.
#if CUDART_VERSION >= 12080
inline cudaError_t add_node(cudaGraphNode_t* node, cudaGraph_t graph,
                            const std::vector<cudaGraphNode_t>& before,
                            cudaGraphNodeParams* params) noexcept {
#if CUDART_VERSION >= 13000
  return cudaGraphAddNode(node, graph, before.data(), nullptr, before.size(), params);
#else
  return cudaGraphAddNode(node, graph, before.data(), before.size(), params);
#endif
}

// Makes the next captured node depend on `before` alone.
inline cudaError_t set_capture_dependencies(cudaStream_t stream,
                                            std::vector<cudaGraphNode_t> before) noexcept {
#if CUDART_VERSION >= 13000
  return cudaStreamUpdateCaptureDependencies(stream, before.data(), nullptr, before.size(),
                                             cudaStreamSetCaptureDependencies);
#else
  return cudaStreamUpdateCaptureDependencies(stream, before.data(), before.size(),
                                             cudaStreamSetCaptureDependencies);
#endif
}
#endif

inline cudaError_t stream_capture_info(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                       unsigned long long* id, cudaGraph_t* graph,
                                       const cudaGraphNode_t** before,
                                       std::size_t* count) noexcept {
#if CUDART_VERSION >= 13000
  return cudaStreamGetCaptureInfo(stream, status, id, graph, before, nullptr, count);
#elif CUDART_VERSION >= 12030
  return cudaStreamGetCaptureInfo_v3(stream, status, id, graph, before, nullptr, count);
#else
  return cudaStreamGetCaptureInfo_v2(stream, status, id, graph, before, count);
#endif
}

// Before 12.8 through the context of the stream.
inline cudaError_t stream_device(cudaStream_t stream, int* id) noexcept {
#if CUDART_VERSION >= 12080
  return cudaStreamGetDevice(stream, id);
#else
  const StreamDriver* const driver = stream_driver();
  if (driver == nullptr) return cudaErrorCallRequiresNewerDriver;
  CUcontext context = nullptr;
  CUdevice device = 0;
  CUresult result = driver->get_context(stream, &context);
  if (result == CUDA_SUCCESS) result = driver->push_context(context);
  if (result != CUDA_SUCCESS) return static_cast<cudaError_t>(result);
  result = driver->get_device(&device);
  (void)driver->pop_context(&context);
  if (result == CUDA_SUCCESS) *id = device;
  return static_cast<cudaError_t>(result);
#endif
}

// Returns null, with the error as the runtime's last error, if there is none; before 12.8 always,
// without an error, because the driver does not accept the result of 12.4 as a handle (measured,
// driver 580).
inline CUkernel kernel_of(const void* symbol) noexcept {
#if CUDART_VERSION >= 12080
  cudaKernel_t kernel = nullptr;
  return cudaGetKernel(&kernel, symbol) == cudaSuccess ? kernel : nullptr;
#else
  static_cast<void>(symbol);
  return nullptr;
#endif
}

// Code that is loaded into all contexts, and its kernels, which the runtime launches from 12.8 on.
#if CUDART_VERSION >= 12080
using Library = cudaLibrary_t;

inline cudaError_t load_library(Library* library, const void* image) noexcept {
  return cudaLibraryLoadData(library, image, nullptr, nullptr, 0, nullptr, nullptr, 0);
}
inline cudaError_t unload_library(Library library) noexcept {
  return cudaLibraryUnload(library);
}
inline cudaError_t find_kernel(CUkernel* kernel, Library library, const char* name) noexcept {
  return cudaLibraryGetKernel(kernel, library, name);
}
#endif

}  // namespace cgtree::cuda
