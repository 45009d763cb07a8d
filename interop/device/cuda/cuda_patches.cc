// Changes addresses in nodes of executable graphs, also of kernels that no runtime has launched.
// Setting the parameters of a node does not change its attributes (clusters, cooperative launches).
#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "interop/device/cuda/cuda_device.h"
#include "interop/device/cuda/driver.h"
#include "interop/device/cuda/runtime.h"
#include "interop/device/graph_api.h"
#include "interop/device/node_contents.h"

namespace cgtree::cuda {
namespace {

// The unchanged parts of a node. Its parameters are NodePatch::bytes.
struct PatchedNode {
  NodeType type = NodeType::kOther;
  // For a kernel. A kernel of the driver has either separate parameters or `extra`.
  CUDA_KERNEL_NODE_PARAMS kernel = {};
  std::vector<void*> parameters;
  std::size_t extra_bytes = 0;
  std::array<void*, 5> extra = {};
  // For a copy or a memset.
  std::size_t copy_bytes = 0;
  cudaMemsetParams fill = {};
};

void* address_at(const NodePatch& patch, std::size_t i) noexcept {
  void* address = nullptr;
  std::memcpy(&address, patch.bytes.data() + i * sizeof(address), sizeof(address));
  return address;
}

Code prepare_kernel(const NodeContents& contents, CUgraphNode node, NodePatch& patch,
                    PatchedNode& kept) {
  if (const CUresult result = node_driver()->kernel_node_params(node, &kept.kernel);
      result != CUDA_SUCCESS) {
    return to_code(result);
  }
  if (kept.kernel.kernelParams == nullptr && kept.kernel.extra != nullptr) {
    // All parameters of the launch; `contents` has the first ones.
    const std::span<const std::byte> given = parameters_of(kept.kernel.extra);
    patch.bytes.assign(given.begin(), given.end());
    kept.extra_bytes = patch.bytes.size();
    kept.extra = {CU_LAUNCH_PARAM_BUFFER_POINTER, patch.bytes.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                  &kept.extra_bytes, CU_LAUNCH_PARAM_END};
    kept.kernel.extra = kept.extra.data();
    return Code::kSuccess;
  }
  for (const KernelParameter& parameter : contents.parameters())
    kept.parameters.push_back(patch.bytes.data() + parameter.offset);
  kept.kernel.kernelParams = kept.parameters.data();
  kept.kernel.extra = nullptr;
  return Code::kSuccess;
}

// Source: CUDA patches copies and memsets of one dimension only.
Code prepare_copy(CUgraphNode node, PatchedNode& kept) {
  CUDA_MEMCPY3D copy = {};
  if (const CUresult result = node_driver()->memcpy_node_params(node, &copy);
      result != CUDA_SUCCESS) {
    return to_code(result);
  }
  kept.copy_bytes = copy.WidthInBytes;
  return copy.Height <= 1 && copy.Depth <= 1 ? Code::kSuccess : Code::kNotSupported;
}

Code prepare_memset(cudaGraphNode_t node, PatchedNode& kept) {
  const Code code = to_code(cudaGraphMemsetNodeGetParams(node, &kept.fill));
  if (!ok(code)) (void)cudaGetLastError();
  return ok(code) && kept.fill.height > 1 ? Code::kNotSupported : code;
}

}  // namespace

Code CudaGraphs::prepare_patch(NodeHandle node, NodePatch* patch) {
  if (graph_driver() == nullptr || node_driver() == nullptr) return Code::kNotSupported;
  NodeContents contents;
  if (const Code code = read_node(node, &contents); !ok(code)) return code;
  if (!contents.is_decoded) return Code::kNotSupported;
  NodePatch made;
  auto kept = std::make_shared<PatchedNode>();
  made.node = node;
  kept->type = contents.type;
  Code code = Code::kNotSupported;
  if (contents.type == NodeType::kKernel) {
    made.bytes = contents.bytes;
    made.dims = contents.dims;
    code = prepare_kernel(contents, native(node), made, *kept);
  } else {
    made.bytes.resize(contents.memory.size() * sizeof(void*));
    for (std::size_t i = 0; i < contents.memory.size(); ++i) {
      std::memcpy(made.bytes.data() + i * sizeof(void*), &contents.memory[i].address,
                  sizeof(void*));
    }
    if (contents.type == NodeType::kMemcpy) code = prepare_copy(native(node), *kept);
    if (contents.type == NodeType::kMemset) code = prepare_memset(native(node), *kept);
  }
  if (!ok(code)) return code;
  made.native = std::move(kept);
  *patch = std::move(made);
  return Code::kSuccess;
}

Code CudaGraphs::set_node(ExecHandle exec, const NodePatch& patch) {
  auto& kept = *static_cast<PatchedNode*>(patch.native.get());
  switch (kept.type) {
    case NodeType::kKernel:
      return to_code(
          graph_driver()->set_kernel_node(native(exec), native(patch.node), &kept.kernel));
    case NodeType::kMemcpy:
      return to_code(cudaGraphExecMemcpyNodeSetParams1D(native(exec), native(patch.node),
                                                        address_at(patch, 1), address_at(patch, 0),
                                                        kept.copy_bytes, cudaMemcpyDefault));
    default:
      kept.fill.dst = address_at(patch, 0);
      return to_code(
          cudaGraphExecMemsetNodeSetParams(native(exec), native(patch.node), &kept.fill));
  }
}

// CUDA can disable kernels, copies and memsets. A host function is replaced by one that returns.
Code CudaGraphs::enable_node(ExecHandle exec, NodeHandle node, bool is_enabled) {
  NodeType type = NodeType::kOther;
  Code code = node_type(node, &type);
  if (!ok(code) || type == NodeType::kEmpty) return code;
  if (type != NodeType::kHost)
    return to_code(cudaGraphNodeSetEnabled(native(exec), native(node), is_enabled ? 1 : 0));
  cudaHostNodeParams params = {[](void*) {}, nullptr};
  if (is_enabled) code = to_code(cudaGraphHostNodeGetParams(native(node), &params));
  if (ok(code)) code = to_code(cudaGraphExecHostNodeSetParams(native(exec), native(node), &params));
  return code;
}

}  // namespace cgtree::cuda
