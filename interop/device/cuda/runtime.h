// Conversions between our handles and numbers and the CUDA runtime's; the scope of a current GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <span>
#include <vector>

#include "interop/device/code.h"
#include "interop/device/device_api.h"
#include "interop/device/graph_api.h"

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
inline std::vector<cudaGraphNode_t> native(std::span<const NodeHandle> nodes) {
  std::vector<cudaGraphNode_t> found;
  found.reserve(nodes.size());
  for (const NodeHandle node : nodes)
    found.push_back(native(node));
  return found;
}

template <typename Handle, typename Native>
Handle to_handle(Native object) noexcept {
  return static_cast<Handle>(reinterpret_cast<std::uintptr_t>(object));
}

// A CurrentDevice makes a GPU current on this thread, and restores the previous one at its end.
class CurrentDevice {
 public:
  explicit CurrentDevice(int id) noexcept {
    code_ = to_code(cudaGetDevice(&before_));
    if (ok(code_) && before_ != id) code_ = to_code(cudaSetDevice(id));
    is_changed_ = ok(code_) && before_ != id;
  }
  ~CurrentDevice() {
    if (is_changed_) (void)cudaSetDevice(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

  Code code() const noexcept { return code_; }

 private:
  int before_ = 0;
  bool is_changed_ = false;
  Code code_ = Code::kSuccess;
};

}  // namespace cgtree::cuda
