// Conversions between our handles and numbers and the CUDA runtime's.
#pragma once

#include <cuda_runtime_api.h>

#include "interop/device/code.h"
#include "interop/device/device_api.h"
#include "interop/device/handles.h"

namespace cgtree::cuda {

inline Code to_code(cudaError_t error) noexcept {
  return static_cast<Code>(error);
}

inline cudaStream_t native(StreamHandle handle) noexcept {
  return reinterpret_cast<cudaStream_t>(handle);
}
inline cudaEvent_t native(EventHandle handle) noexcept {
  return reinterpret_cast<cudaEvent_t>(handle);
}
inline cudaGraph_t native(GraphHandle handle) noexcept {
  return reinterpret_cast<cudaGraph_t>(handle);
}
inline cudaGraphNode_t native(NodeHandle handle) noexcept {
  return reinterpret_cast<cudaGraphNode_t>(handle);
}
inline cudaGraphExec_t native(ExecHandle handle) noexcept {
  return reinterpret_cast<cudaGraphExec_t>(handle);
}

template <typename Handle, typename Native>
Handle to_handle(Native object) noexcept {
  return static_cast<Handle>(reinterpret_cast<std::uintptr_t>(object));
}

}  // namespace cgtree::cuda
