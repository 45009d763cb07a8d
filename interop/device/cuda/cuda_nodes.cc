// Reads nodes of graphs through the driver, which also knows kernels that no runtime has launched.
#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "interop/device/cuda/cuda_device.h"
#include "interop/device/cuda/driver.h"
#include "interop/device/cuda/runtime.h"
#include "interop/device/graph_api.h"
#include "interop/device/node_contents.h"

namespace cgtree::cuda {
namespace {

void refuse(NodeContents& contents, std::string why) {
  contents.is_decoded = false;
  if (contents.why.empty()) contents.why = std::move(why);
}

void refuse(NodeContents& contents, const char* function, CUresult result) {
  refuse(contents, std::string(function) + " returned " + std::to_string(result));
}

// The layouts of the kernels of one graph, by kernel: each query takes the driver a tenth of a
// microsecond, and a graph has few different kernels. The handle of an unloaded kernel may be
// reused, but not while a graph has nodes of it.
using Layouts = std::unordered_map<const void*, std::shared_ptr<const KernelLayout>>;

// Writes the driver's description of a kernel. On failure the layout has no parameters.
CUresult read_layout(const NodeDriver& driver, const CUDA_KERNEL_NODE_PARAMS& params,
                     KernelLayout& layout) {
  const char* name = nullptr;
  const CUresult named = params.func != nullptr ? driver.func_get_name(&name, params.func)
                                                : driver.kernel_get_name(&name, params.kern);
  if (named == CUDA_SUCCESS && name != nullptr) layout.name = name;
  for (;;) {
    std::size_t offset = 0;
    std::size_t bytes = 0;
    const std::size_t index = layout.parameters.size();
    const CUresult result = params.func != nullptr
                                ? driver.func_get_param_info(params.func, index, &offset, &bytes)
                                : driver.kernel_get_param_info(params.kern, index, &offset, &bytes);
    // The first index past the end is an invalid value.
    if (result == CUDA_ERROR_INVALID_VALUE) return CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) {
      layout.parameters.clear();
      return result;
    }
    layout.parameters.push_back({offset, bytes});
  }
}

void read_kernel(const NodeDriver& driver, CUgraphNode node, Layouts& layouts,
                 NodeContents& contents) {
  CUDA_KERNEL_NODE_PARAMS params = {};
  if (const CUresult result = driver.kernel_node_params(node, &params); result != CUDA_SUCCESS) {
    return refuse(contents, "cuGraphKernelNodeGetParams", result);
  }
  const void* const kernel = params.func != nullptr ? static_cast<const void*>(params.func)
                                                    : static_cast<const void*>(params.kern);
  std::shared_ptr<const KernelLayout>& layout = layouts[kernel];
  if (layout == nullptr) {
    auto read = std::make_shared<KernelLayout>();
    const CUresult result = read_layout(driver, params, *read);
    if (result != CUDA_SUCCESS) {
      contents.kernel = std::move(read);
      return refuse(contents, "cuFuncGetParamInfo", result);
    }
    layout = std::move(read);
  }
  contents.kernel = layout;
  contents.function = kernel;
  contents.dims = {.grid = {params.gridDimX, params.gridDimY, params.gridDimZ},
                   .block = {params.blockDimX, params.blockDimY, params.blockDimZ},
                   .shared_bytes = params.sharedMemBytes};
  std::size_t end = 0;
  for (const KernelParameter& parameter : layout->parameters)
    end = std::max(end, parameter.offset + parameter.bytes);
  contents.bytes.assign(end, std::byte{0});
  if (end == 0) return;
  if (params.kernelParams != nullptr) {
    for (std::size_t i = 0; i < layout->parameters.size(); ++i) {
      const auto [offset, bytes] = layout->parameters[i];
      if (bytes > 0) std::memcpy(contents.bytes.data() + offset, params.kernelParams[i], bytes);
    }
    return;
  }
  const std::span<const std::byte> given = parameters_of(params.extra);
  if (given.size() < end) {
    contents.bytes.clear();
    contents.kernel = std::make_shared<KernelLayout>(KernelLayout{layout->name, {}});
    return refuse(contents, "the driver gave no parameters of it");
  }
  std::memcpy(contents.bytes.data(), given.data(), end);
}

// One side of a copy. Rows of a pitched one are `pitch` bytes apart, layers `height` rows.
struct CopySide {
  CUmemorytype kind;
  const void* host;
  CUdeviceptr device;
  std::size_t x, y, z;
  std::size_t pitch, height;
};

// Adds the memory of the copy, from its first to its last byte.
void add_side(const CopySide& side, const CUDA_MEMCPY3D& copy, bool is_written,
              NodeContents& contents) {
  if (side.kind == CU_MEMORYTYPE_ARRAY) return refuse(contents, "a CUDA array has no address");
  const std::size_t rows = std::max<std::size_t>(copy.Height, 1);
  const std::size_t layers = std::max<std::size_t>(copy.Depth, 1);
  const std::size_t layer = side.pitch * std::max<std::size_t>(side.height, 1);
  const std::uintptr_t base = side.kind == CU_MEMORYTYPE_HOST
                                  ? reinterpret_cast<std::uintptr_t>(side.host)
                                  : static_cast<std::uintptr_t>(side.device);
  contents.memory.push_back({base + side.x + side.y * side.pitch + side.z * layer,
                             (layers - 1) * layer + (rows - 1) * side.pitch + copy.WidthInBytes,
                             is_written});
}

void read_copy(const NodeDriver& driver, CUgraphNode node, NodeContents& contents) {
  CUDA_MEMCPY3D copy = {};
  if (const CUresult result = driver.memcpy_node_params(node, &copy); result != CUDA_SUCCESS) {
    return refuse(contents, "cuGraphMemcpyNodeGetParams", result);
  }
  add_side({copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcXInBytes, copy.srcY,
            copy.srcZ, copy.srcPitch, copy.srcHeight},
           copy, /*is_written=*/false, contents);
  add_side({copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstXInBytes, copy.dstY,
            copy.dstZ, copy.dstPitch, copy.dstHeight},
           copy, /*is_written=*/true, contents);
}

void read_memset(const NodeDriver& driver, CUgraphNode node, NodeContents& contents) {
  CUDA_MEMSET_NODE_PARAMS fill = {};
  if (const CUresult result = driver.memset_node_params(node, &fill); result != CUDA_SUCCESS) {
    return refuse(contents, "cuGraphMemsetNodeGetParams", result);
  }
  const std::size_t rows = std::max<std::size_t>(fill.height, 1);
  contents.memory.push_back({static_cast<std::uintptr_t>(fill.dst),
                             (rows - 1) * fill.pitch + fill.width * fill.elementSize,
                             /*is_written=*/true});
  const auto value = std::as_bytes(std::span(&fill.value, 1));
  contents.bytes.assign(value.begin(), value.end());
}

void read_allocation(const NodeDriver& driver, CUgraphNode node, NodeContents& contents) {
  CUDA_MEM_ALLOC_NODE_PARAMS allocation = {};
  if (const CUresult result = driver.alloc_node_params(node, &allocation); result != CUDA_SUCCESS) {
    return refuse(contents, "cuGraphMemAllocNodeGetParams", result);
  }
  contents.memory.push_back({static_cast<std::uintptr_t>(allocation.dptr), allocation.bytesize,
                             /*is_written=*/false});
}

void read_free(const NodeDriver& driver, CUgraphNode node, NodeContents& contents) {
  CUdeviceptr address = 0;
  if (const CUresult result = driver.free_node_params(node, &address); result != CUDA_SUCCESS) {
    return refuse(contents, "cuGraphMemFreeNodeGetParams", result);
  }
  contents.memory.push_back({static_cast<std::uintptr_t>(address), 0, /*is_written=*/false});
}

void read_node(CUgraphNode node, Layouts& layouts, NodeContents& contents) {
  contents.is_decoded = true;
  const NodeDriver* const driver = node_driver();
  if (driver == nullptr) return refuse(contents, "the driver is older than CUDA 12.4");
  switch (contents.type) {
    case NodeType::kKernel:
      return read_kernel(*driver, node, layouts, contents);
    case NodeType::kMemcpy:
      return read_copy(*driver, node, contents);
    case NodeType::kMemset:
      return read_memset(*driver, node, contents);
    case NodeType::kAllocation:
      return read_allocation(*driver, node, contents);
    case NodeType::kFree:
      return read_free(*driver, node, contents);
    case NodeType::kEmpty:
      return;
    case NodeType::kHost:
      return refuse(contents, "what a host function uses cannot be seen");
    case NodeType::kChildGraph:
      return refuse(contents, "nodes of a child graph are not read");
    case NodeType::kOther:
      return refuse(contents, "nodes of this type are not read");
  }
}

}  // namespace

Code CudaGraphs::read_nodes(GraphHandle graph, std::vector<NodeContents>* contents) {
  std::vector<NodeHandle> nodes;
  if (const Code code = graph_nodes(graph, &nodes); !ok(code)) return code;
  Layouts layouts;
  std::vector<NodeContents> read(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    read[i].node = nodes[i];
    if (const Code code = node_type(nodes[i], &read[i].type); !ok(code)) return code;
    cuda::read_node(native(nodes[i]), layouts, read[i]);
  }
  *contents = std::move(read);
  return Code::kSuccess;
}

Code CudaGraphs::read_node(NodeHandle node, NodeContents* contents) {
  Layouts layouts;
  NodeContents read;
  read.node = node;
  if (const Code code = node_type(node, &read.type); !ok(code)) return code;
  cuda::read_node(native(node), layouts, read);
  *contents = std::move(read);
  return Code::kSuccess;
}

}  // namespace cgtree::cuda
