// Reads nodes of graphs by the driver, which also knows kernels that no runtime has launched.
#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "interop/device/cuda/cuda_device.h"
#include "interop/device/cuda/driver.h"
#include "interop/device/cuda/runtime.h"
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

// Returns the name as C++ spells it. To demangle one takes microseconds, and a thread sees few
// different ones: it caches some, by their text, which no unloaded module can change.
const std::string& demangled(const char* mangled) {
  constexpr std::size_t kMostNames = 1024;
  thread_local std::unordered_map<std::string, std::string> t_names;
  if (t_names.size() >= kMostNames) t_names.clear();
  const auto [found, is_new] = t_names.try_emplace(mangled);
  if (is_new) {
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> text(
        abi::__cxa_demangle(mangled, nullptr, nullptr, &status), std::free);
    found->second = text != nullptr ? text.get() : mangled;
  }
  return found->second;
}

// What the driver tells of a kernel.
struct KernelLayout {
  std::string name;
  std::vector<KernelParameter> parameters;
  CUresult result = CUDA_SUCCESS;  // of asking for them
};

// The first index past the end is an invalid value.
KernelLayout read_layout(const NodeDriver& driver, const CUDA_KERNEL_NODE_PARAMS& params) {
  KernelLayout layout;
  const char* name = nullptr;
  const CUresult named = params.func != nullptr ? driver.func_get_name(&name, params.func)
                                                : driver.kernel_get_name(&name, params.kern);
  if (named == CUDA_SUCCESS && name != nullptr) layout.name = demangled(name);
  for (;;) {
    std::size_t offset = 0;
    std::size_t bytes = 0;
    const std::size_t index = layout.parameters.size();
    const CUresult result = params.func != nullptr
                                ? driver.func_get_param_info(params.func, index, &offset, &bytes)
                                : driver.kernel_get_param_info(params.kern, index, &offset, &bytes);
    if (result == CUDA_ERROR_INVALID_VALUE) return layout;
    if (result != CUDA_SUCCESS) {
      layout.parameters.clear();
      layout.result = result;
      return layout;
    }
    layout.parameters.push_back({offset, bytes});
  }
}

// Each question costs the driver a tenth of a microsecond, and a graph has few different kernels. A
// kernel that is unloaded may leave its handle to another one, so that a thread caches those of the
// graph alone whose nodes it has listed last: they exist as long as it does.
std::unordered_map<const void*, KernelLayout>& layouts() {
  thread_local std::unordered_map<const void*, KernelLayout> t_layouts;
  return t_layouts;
}

const KernelLayout& layout_of(const NodeDriver& driver, const CUDA_KERNEL_NODE_PARAMS& params) {
  const void* const kernel = params.func != nullptr ? static_cast<const void*>(params.func)
                                                    : static_cast<const void*>(params.kern);
  const auto [found, is_new] = layouts().try_emplace(kernel);
  if (is_new) found->second = read_layout(driver, params);
  return found->second;
}

void read_kernel(const NodeDriver& driver, CUgraphNode node, NodeContents& contents) {
  CUDA_KERNEL_NODE_PARAMS params = {};
  if (const CUresult result = driver.kernel_node_params(node, &params); result != CUDA_SUCCESS) {
    return refuse(contents, "cuGraphKernelNodeGetParams", result);
  }
  const KernelLayout& layout = layout_of(driver, params);
  contents.name = layout.name;
  if (layout.result != CUDA_SUCCESS) return refuse(contents, "cuFuncGetParamInfo", layout.result);
  contents.parameters = layout.parameters;
  contents.dims = {.grid = {params.gridDimX, params.gridDimY, params.gridDimZ},
                   .block = {params.blockDimX, params.blockDimY, params.blockDimZ},
                   .shared_bytes = params.sharedMemBytes};
  std::size_t end = 0;
  for (const KernelParameter& parameter : contents.parameters)
    end = std::max(end, parameter.offset + parameter.bytes);
  contents.bytes.assign(end, std::byte{0});
  if (end == 0) return;
  if (params.kernelParams != nullptr) {
    for (std::size_t i = 0; i < contents.parameters.size(); ++i) {
      const auto [offset, bytes] = contents.parameters[i];
      if (bytes > 0) std::memcpy(contents.bytes.data() + offset, params.kernelParams[i], bytes);
    }
    return;
  }
  const std::span<const std::byte> given = parameters_of(params.extra);
  if (given.size() < end) {
    contents.bytes.clear();
    contents.parameters.clear();
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

// Adds what the copy touches, from its first to its last byte.
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
}

void read_allocation(const NodeDriver& driver, CUgraphNode node, NodeContents& contents) {
  CUDA_MEM_ALLOC_NODE_PARAMS allocation = {};
  if (const CUresult result = driver.alloc_node_params(node, &allocation); result != CUDA_SUCCESS) {
    return refuse(contents, "cuGraphMemAllocNodeGetParams", result);
  }
  contents.memory.push_back({static_cast<std::uintptr_t>(allocation.dptr), allocation.bytesize,
                             /*is_written=*/false});
}

}  // namespace

void forget_layouts() noexcept {
  layouts().clear();
}

Code CudaGraphs::read_node(NodeHandle node, NodeContents* contents) {
  NodeContents read;
  if (const Code code = node_type(node, &read.type); !ok(code)) return code;
  read.is_decoded = true;
  const NodeDriver* const driver = node_driver();
  const CUgraphNode native_node = native(node);
  if (driver == nullptr) {
    refuse(read, "the driver is older than CUDA 12.4");
  } else {
    switch (read.type) {
      case NodeType::kKernel:
        read_kernel(*driver, native_node, read);
        break;
      case NodeType::kMemcpy:
        read_copy(*driver, native_node, read);
        break;
      case NodeType::kMemset:
        read_memset(*driver, native_node, read);
        break;
      case NodeType::kAllocation:
        read_allocation(*driver, native_node, read);
        break;
      case NodeType::kEmpty:
      case NodeType::kFree:
        break;
      case NodeType::kHost:
        refuse(read, "what a host function uses cannot be seen");
        break;
      case NodeType::kChildGraph:
        refuse(read, "nodes of a child graph are not read");
        break;
      case NodeType::kOther:
        refuse(read, "nodes of this type are not read");
        break;
    }
  }
  *contents = std::move(read);
  return Code::kSuccess;
}

}  // namespace cgtree::cuda
