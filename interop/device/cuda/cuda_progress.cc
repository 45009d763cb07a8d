// Events with times, and kernels between the nodes of a graph, over the CUDA runtime.
#include <vector>

#include "interop/device/code.h"
#include "interop/device/cuda/cuda_device.h"
#include "interop/device/cuda/driver.h"
#include "interop/device/cuda/node_params.h"
#include "interop/device/cuda/runtime.h"
#include "interop/device/cuda/versions.h"

namespace cgtree::cuda {

Code CudaGraphs::create_timed_event(EventHandle* event) {
  cudaEvent_t created = nullptr;
  const Code code = to_code(cudaEventCreateWithFlags(&created, cudaEventDefault));
  if (ok(code)) *event = to_handle<EventHandle>(created);
  return code;
}

Code CudaGraphs::elapsed(EventHandle from, EventHandle to, std::chrono::nanoseconds* time) {
  float milliseconds = 0;
  const Code code = to_code(cudaEventElapsedTime(&milliseconds, native(from), native(to)));
  if (!ok(code)) return code;
  const std::chrono::duration<double, std::milli> found(milliseconds);
  *time = std::chrono::duration_cast<std::chrono::nanoseconds>(found);
  return code;
}

Code CudaGraphs::insert_kernel(GraphHandle graph, std::span<const NodeHandle> after,
                               std::span<const NodeHandle> before, const KernelFunction& kernel,
                               const LaunchDims& dims, KernelArguments arguments,
                               NodeHandle* node) {
  if (const Code code = launchable(kernel, arguments); !ok(code)) return code;
  ArgumentAddresses list(arguments);
  const cudaKernelNodeParams params = node_params(kernel, dims, list);
  const std::vector<cudaGraphNode_t> behind = native(after);
  cudaGraphNode_t added = nullptr;
  Code code =
      to_code(cudaGraphAddKernelNode(&added, native(graph), behind.data(), behind.size(), &params));
  if (ok(code) && !before.empty()) {
    const std::vector<cudaGraphNode_t> to = native(before);
    const std::vector<cudaGraphNode_t> from(to.size(), added);
    code = to_code(add_edges(native(graph), from.data(), to.data(), to.size()));
    if (!ok(code)) (void)cudaGraphDestroyNode(added);
  }
  if (ok(code)) *node = to_handle<NodeHandle>(added);
  return code;
}

}  // namespace cgtree::cuda
