// Conditional nodes over the CUDA runtime, from 12.8 on.
#include <vector>

#include "interop/device/code.h"
#include "interop/device/cuda/cuda_device.h"
#include "interop/device/cuda/runtime.h"
#include "interop/device/cuda/versions.h"

namespace cgtree::cuda {

#if CUDART_VERSION >= 12080

static_assert(static_cast<int>(ConditionalKind::kIf) == cudaGraphCondTypeIf &&
              static_cast<int>(ConditionalKind::kWhile) == cudaGraphCondTypeWhile &&
              static_cast<int>(ConditionalKind::kSwitch) == cudaGraphCondTypeSwitch);

Code CudaGraphs::create_condition(GraphHandle graph, ConditionHandle* condition) {
  cudaGraphConditionalHandle created = 0;
  const Code code =
      to_code(cudaGraphConditionalHandleCreate(&created, native(graph), 0, /*flags=*/0));
  if (ok(code)) *condition = static_cast<ConditionHandle>(created);
  return code;
}

Code CudaGraphs::add_conditional(GraphHandle graph, std::span<const NodeHandle> dependencies,
                                 ConditionHandle condition, ConditionalKind kind, std::size_t size,
                                 NodeHandle* node, std::vector<GraphHandle>* bodies) {
  const std::vector<cudaGraphNode_t> before = native(dependencies);
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = static_cast<cudaGraphConditionalHandle>(condition);
  params.conditional.type = static_cast<cudaGraphConditionalNodeType>(kind);
  params.conditional.size = static_cast<unsigned>(size);
  cudaGraphNode_t added = nullptr;
  const Code code = to_code(add_node(&added, native(graph), before, &params));
  if (!ok(code)) return code;
  *node = to_handle<NodeHandle>(added);
  bodies->clear();
  for (std::size_t i = 0; i < size; ++i)
    bodies->push_back(to_handle<GraphHandle>(params.conditional.phGraph_out[i]));
  return code;
}

Code CudaGraphs::begin_capture_to(StreamHandle stream, GraphHandle graph, CaptureMode mode) {
  return to_code(cudaStreamBeginCaptureToGraph(native(stream), native(graph), nullptr, nullptr, 0,
                                               static_cast<cudaStreamCaptureMode>(mode)));
}

Code CudaGraphs::set_capture_dependencies(StreamHandle stream,
                                          std::span<const NodeHandle> dependencies) {
  return to_code(cuda::set_capture_dependencies(native(stream), native(dependencies)));
}

#else

Code CudaGraphs::create_condition(GraphHandle, ConditionHandle*) {
  return Code::kNotSupported;
}
Code CudaGraphs::add_conditional(GraphHandle, std::span<const NodeHandle>, ConditionHandle,
                                 ConditionalKind, std::size_t, NodeHandle*,
                                 std::vector<GraphHandle>*) {
  return Code::kNotSupported;
}
Code CudaGraphs::begin_capture_to(StreamHandle, GraphHandle, CaptureMode) {
  return Code::kNotSupported;
}
Code CudaGraphs::set_capture_dependencies(StreamHandle, std::span<const NodeHandle>) {
  return Code::kNotSupported;
}

#endif

}  // namespace cgtree::cuda
