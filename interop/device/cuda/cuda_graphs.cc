// Events, capture, graphs and launches over the CUDA runtime.
#include "interop/device/cuda/cuda_device.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/frame.h"
#include "interop/device/cuda/driver.h"
#include "interop/device/cuda/node_params.h"
#include "interop/device/cuda/runtime.h"
#include "interop/device/cuda/versions.h"
#include "interop/device/graph_api.h"

namespace cgtree::cuda {
namespace {

// The driver's handles of kernels that a thread has patched. They are constant while the program
// runs.
struct KnownKernel {
  const void* symbol = nullptr;
  CUkernel kernel = nullptr;
};

// Returns the driver's handle of a kernel; null if there is none. The runtime's look-up takes
// longer than the driver's patch of a node, and a thread patches few different kernels: each thread
// caches some.
CUkernel driver_kernel(const void* symbol) noexcept {
  auto& kernels = of_thread<std::array<KnownKernel, 8>>();
  KnownKernel& known = kernels[(reinterpret_cast<std::uintptr_t>(symbol) >> 4) % kernels.size()];
  if (known.symbol == symbol) return known.kernel;
  const CUkernel found = kernel_of(symbol);
  if (found == nullptr) {
    (void)cudaGetLastError();  // the runtime patches the node instead, and reports the error
    return nullptr;
  }
  known = {symbol, found};
  return found;
}

// Returns false if the runtime has to patch the node.
bool set_directly(cudaGraphExec_t exec, cudaGraphNode_t node, const KernelFunction& kernel,
                  const LaunchDims& dims, ArgumentAddresses& list) noexcept {
  const GraphDriver* const direct = graph_driver();
  if (direct == nullptr) return false;
  CUDA_KERNEL_NODE_PARAMS params = {};
  params.kern = driver_kernel(kernel.cuda);
  if (params.kern == nullptr) return false;
  params.gridDimX = dims.grid.x;
  params.gridDimY = dims.grid.y;
  params.gridDimZ = dims.grid.z;
  params.blockDimX = dims.block.x;
  params.blockDimY = dims.block.y;
  params.blockDimZ = dims.block.z;
  params.sharedMemBytes = dims.shared_bytes;
  params.kernelParams = list.addresses.data();
  return direct->set_kernel_node(exec, node, &params) == CUDA_SUCCESS;
}

// Writes the nodes that no other node depends on.
Code find_leaves(cudaGraph_t graph, std::vector<cudaGraphNode_t>* leaves) {
  std::size_t nodes = 0;
  std::size_t edges = 0;
  Code code = to_code(cudaGraphGetNodes(graph, nullptr, &nodes));
  if (ok(code)) code = to_code(graph_edges(graph, nullptr, nullptr, &edges));
  if (!ok(code)) return code;
  leaves->resize(nodes);
  std::vector<cudaGraphNode_t> from(edges);
  std::vector<cudaGraphNode_t> to(edges);
  if (nodes > 0) code = to_code(cudaGraphGetNodes(graph, leaves->data(), &nodes));
  if (ok(code) && edges > 0) {
    code = to_code(graph_edges(graph, from.data(), to.data(), &edges));
  }
  std::sort(from.begin(), from.end());
  std::erase_if(*leaves, [&](cudaGraphNode_t node) {
    return std::binary_search(from.begin(), from.end(), node);
  });
  return code;
}

}  // namespace

Code CudaGraphs::create_event(EventHandle* event) {
  cudaEvent_t created = nullptr;
  const Code code = to_code(cudaEventCreateWithFlags(&created, cudaEventDisableTiming));
  if (ok(code)) *event = to_handle<EventHandle>(created);
  return code;
}

Code CudaGraphs::destroy_event(EventHandle event) {
  return to_code(cudaEventDestroy(native(event)));
}

Code CudaGraphs::record_event(EventHandle event, StreamHandle stream) {
  return to_code(cudaEventRecord(native(event), native(stream)));
}

Code CudaGraphs::query_event(EventHandle event) {
  return to_code(cudaEventQuery(native(event)));
}

Code CudaGraphs::synchronize_event(EventHandle event) {
  return to_code(cudaEventSynchronize(native(event)));
}

Code CudaGraphs::wait_event(StreamHandle stream, EventHandle event) {
  return to_code(cudaStreamWaitEvent(native(stream), native(event), 0));
}

Code CudaGraphs::launch_kernel(StreamHandle stream, const KernelFunction& kernel,
                               const LaunchDims& dims, KernelArguments arguments) {
  const Code code = launchable(kernel, arguments);
  if (!ok(code)) return code;
  ArgumentAddresses list(arguments);
  return to_code(cudaLaunchKernel(kernel.cuda, to_dim3(dims.grid), to_dim3(dims.block),
                                  list.addresses.data(), dims.shared_bytes, native(stream)));
}

Code CudaGraphs::memset(StreamHandle stream, void* destination, std::uint8_t value,
                        std::size_t bytes) {
  return to_code(cudaMemsetAsync(destination, value, bytes, native(stream)));
}

Code CudaGraphs::launch_host_function(StreamHandle stream, void (*function)(void*), void* data) {
  return to_code(cudaLaunchHostFunc(native(stream), function, data));
}

Code CudaGraphs::allocate_in_order(StreamHandle stream, std::size_t bytes, void** data) {
  return to_code(cudaMallocAsync(data, bytes, native(stream)));
}

Code CudaGraphs::free_in_order(StreamHandle stream, void* data) {
  return to_code(cudaFreeAsync(data, native(stream)));
}

Code CudaGraphs::begin_capture(StreamHandle stream, CaptureMode mode) {
  return to_code(cudaStreamBeginCapture(native(stream), static_cast<cudaStreamCaptureMode>(mode)));
}

Code CudaGraphs::end_capture(StreamHandle stream, GraphHandle* graph) {
  cudaGraph_t captured = nullptr;
  const Code code = to_code(cudaStreamEndCapture(native(stream), &captured));
  if (ok(code)) *graph = to_handle<GraphHandle>(captured);
  return code;
}

Code CudaGraphs::capture_info(StreamHandle stream, CaptureInfo* info) {
  // Nearly always the stream does not capture, so the driver is queried first. Only the runtime
  // makes a missing context, and sets the last error.
  CUstreamCaptureStatus brief = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  const CaptureDriver* const driver = capture_driver();
  if (driver != nullptr &&
      driver->get_capture_info(native(stream), &brief, nullptr, nullptr, nullptr, nullptr,
                               nullptr) == CUDA_SUCCESS &&
      brief == CU_STREAM_CAPTURE_STATUS_NONE) {
    *info = CaptureInfo{};
    return Code::kSuccess;
  }
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t* dependencies = nullptr;
  std::size_t count = 0;
  const Code code =
      to_code(stream_capture_info(native(stream), &status, &id, &graph, &dependencies, &count));
  if (!ok(code)) return code;
  *info = CaptureInfo{static_cast<CaptureStatus>(status), id, {}, GraphHandle::kNull};
  // Without an active capture, CUDA does not write id, dependencies and count.
  if (info->status == CaptureStatus::kNone) info->id = 0;
  if (info->status != CaptureStatus::kActive) return code;
  info->graph = to_handle<GraphHandle>(graph);
  for (std::size_t i = 0; i < count; ++i) {
    info->dependencies.push_back(to_handle<NodeHandle>(dependencies[i]));
  }
  return code;
}

Code CudaGraphs::exchange_capture_mode(CaptureMode* mode) {
  auto exchanged = static_cast<cudaStreamCaptureMode>(*mode);
  const Code code = to_code(cudaThreadExchangeStreamCaptureMode(&exchanged));
  if (ok(code)) *mode = static_cast<CaptureMode>(exchanged);
  return code;
}

Code CudaGraphs::destroy_graph(GraphHandle graph) {
  return to_code(cudaGraphDestroy(native(graph)));
}

Code CudaGraphs::graph_nodes(GraphHandle graph, std::vector<NodeHandle>* nodes) {
  std::size_t count = 0;
  Code code = to_code(cudaGraphGetNodes(native(graph), nullptr, &count));
  std::vector<cudaGraphNode_t> found(count);
  if (ok(code) && count > 0) {
    code = to_code(cudaGraphGetNodes(native(graph), found.data(), &count));
  }
  if (!ok(code)) return code;
  nodes->clear();
  for (cudaGraphNode_t node : found)
    nodes->push_back(to_handle<NodeHandle>(node));
  return code;
}

Code CudaGraphs::node_type(NodeHandle node, NodeType* type) {
  cudaGraphNodeType found = cudaGraphNodeTypeEmpty;
  const Code code = to_code(cudaGraphNodeGetType(native(node), &found));
  if (!ok(code)) return code;
  switch (found) {
    case cudaGraphNodeTypeKernel:
      *type = NodeType::kKernel;
      break;
    case cudaGraphNodeTypeMemcpy:
      *type = NodeType::kMemcpy;
      break;
    case cudaGraphNodeTypeMemset:
      *type = NodeType::kMemset;
      break;
    case cudaGraphNodeTypeHost:
      *type = NodeType::kHost;
      break;
    case cudaGraphNodeTypeEmpty:
      *type = NodeType::kEmpty;
      break;
    case cudaGraphNodeTypeMemAlloc:
      *type = NodeType::kAllocation;
      break;
    case cudaGraphNodeTypeMemFree:
      *type = NodeType::kFree;
      break;
    case cudaGraphNodeTypeGraph:
      *type = NodeType::kChildGraph;
      break;
    default:
      *type = NodeType::kOther;
  }
  return code;
}

Code CudaGraphs::node_dependencies(NodeHandle node, std::vector<NodeHandle>* dependencies) {
  std::size_t count = 0;
  Code code = to_code(cuda::node_dependencies(native(node), nullptr, &count));
  std::vector<cudaGraphNode_t> found(count);
  if (ok(code) && count > 0) {
    code = to_code(cuda::node_dependencies(native(node), found.data(), &count));
  }
  if (!ok(code)) return code;
  dependencies->clear();
  for (cudaGraphNode_t dependency : found) {
    dependencies->push_back(to_handle<NodeHandle>(dependency));
  }
  return code;
}

Code CudaGraphs::add_root_kernel(GraphHandle graph, const KernelFunction& kernel,
                                 const LaunchDims& dims, KernelArguments arguments,
                                 NodeHandle* node) {
  if (const Code code = launchable(kernel, arguments); !ok(code)) return code;
  std::size_t count = 0;
  Code code = to_code(cudaGraphGetRootNodes(native(graph), nullptr, &count));
  std::vector<cudaGraphNode_t> roots(count);
  if (ok(code) && count > 0) {
    code = to_code(cudaGraphGetRootNodes(native(graph), roots.data(), &count));
  }
  if (!ok(code)) return code;
  ArgumentAddresses list(arguments);
  const cudaKernelNodeParams params = node_params(kernel, dims, list);
  cudaGraphNode_t added = nullptr;
  code = to_code(cudaGraphAddKernelNode(&added, native(graph), nullptr, 0, &params));
  if (!ok(code)) return code;
  const std::vector<cudaGraphNode_t> from(roots.size(), added);
  if (!roots.empty()) {
    code = to_code(add_edges(native(graph), from.data(), roots.data(), roots.size()));
  }
  if (!ok(code)) {
    (void)cudaGraphDestroyNode(added);
    return code;
  }
  *node = to_handle<NodeHandle>(added);
  return code;
}

Code CudaGraphs::add_leaf_kernel(GraphHandle graph, const KernelFunction& kernel,
                                 const LaunchDims& dims, KernelArguments arguments,
                                 NodeHandle* node) {
  if (const Code code = launchable(kernel, arguments); !ok(code)) return code;
  std::vector<cudaGraphNode_t> leaves;
  if (const Code code = find_leaves(native(graph), &leaves); !ok(code)) return code;
  ArgumentAddresses list(arguments);
  const cudaKernelNodeParams params = node_params(kernel, dims, list);
  cudaGraphNode_t added = nullptr;
  const Code code =
      to_code(cudaGraphAddKernelNode(&added, native(graph), leaves.data(), leaves.size(), &params));
  if (ok(code)) *node = to_handle<NodeHandle>(added);
  return code;
}

namespace {

Code instantiate_with(unsigned long long flags, GraphHandle graph, ExecHandle* exec) {
  cudaGraphExec_t created = nullptr;
  const Code code = to_code(cudaGraphInstantiate(&created, native(graph), flags));
  if (ok(code)) *exec = to_handle<ExecHandle>(created);
  return code;
}

}  // namespace

Code CudaGraphs::instantiate(GraphHandle graph, ExecHandle* exec) {
  return instantiate_with(0, graph, exec);
}

Code CudaGraphs::instantiate_freeing(GraphHandle graph, ExecHandle* exec) {
  return instantiate_with(cudaGraphInstantiateFlagAutoFreeOnLaunch, graph, exec);
}

Code CudaGraphs::destroy_exec(ExecHandle exec) {
  return to_code(cudaGraphExecDestroy(native(exec)));
}

// The runtime repeats a launch that fails in the driver, so that the result and the thread's last
// error are the runtime's. It also launches for a thread without a context, which it makes current.
Code CudaGraphs::launch(ExecHandle exec, StreamHandle stream) {
  const GraphDriver* const direct = graph_driver();
  if (direct != nullptr && direct->launch(native(exec), native(stream)) == CUDA_SUCCESS) {
    return Code::kSuccess;
  }
  return to_code(cudaGraphLaunch(native(exec), native(stream)));
}

Code CudaGraphs::set_kernel_node(ExecHandle exec, NodeHandle node, const KernelFunction& kernel,
                                 const LaunchDims& dims, KernelArguments arguments) {
  const Code code = launchable(kernel, arguments);
  if (!ok(code)) return code;
  ArgumentAddresses list(arguments);
  if (set_directly(native(exec), native(node), kernel, dims, list)) return code;
  const cudaKernelNodeParams params = node_params(kernel, dims, list);
  return to_code(cudaGraphExecKernelNodeSetParams(native(exec), native(node), &params));
}

Code CudaGraphs::peek_last_error() noexcept {
  return to_code(cudaPeekAtLastError());
}

Code CudaGraphs::take_last_error() noexcept {
  return to_code(cudaGetLastError());
}

Code CudaGraphs::graph_edges(GraphHandle graph, std::vector<GraphEdge>* edges) {
  std::size_t count = 0;
  Code code = to_code(cuda::graph_edges(native(graph), nullptr, nullptr, &count));
  std::vector<cudaGraphNode_t> from(count);
  std::vector<cudaGraphNode_t> to(count);
  if (ok(code) && count > 0) {
    code = to_code(cuda::graph_edges(native(graph), from.data(), to.data(), &count));
  }
  if (!ok(code)) return code;
  edges->clear();
  for (std::size_t i = 0; i < count; ++i)
    edges->push_back({to_handle<NodeHandle>(from[i]), to_handle<NodeHandle>(to[i])});
  return code;
}

Code CudaGraphs::write_dot(GraphHandle graph, const char* path) {
  return to_code(cudaGraphDebugDotPrint(native(graph), path, cudaGraphDebugDotFlagsVerbose));
}

}  // namespace cgtree::cuda
