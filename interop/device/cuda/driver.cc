// Looks up the driver's functions through the runtime.
#include "interop/device/cuda/driver.h"

#include <cuda_runtime_api.h>

#include <optional>

namespace cgtree::cuda {
namespace {

// The versions in which the functions got their present signatures.
constexpr unsigned kVirtualMemoryVersion = 11020;
constexpr unsigned kPointerVersion = 7000;
constexpr unsigned kCopyNodeVersion = 10000;
constexpr unsigned kAllocNodeVersion = 11040;
constexpr unsigned kGraphVersion = 12000;
constexpr unsigned kStreamVersion = 9020;
constexpr unsigned kContextVersion = 4000;
constexpr unsigned kCaptureVersion = 12030;
constexpr unsigned kNameVersion = 12030;
constexpr unsigned kParameterVersion = 12040;
constexpr unsigned kGreenVersion = 12040;

// Returns null if the function does not exist, which is not an error.
void* find_driver_function(const char* name, unsigned version) noexcept {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &found);
  if (error != cudaSuccess) (void)cudaGetLastError();
  return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? address : nullptr;
#else
  // The runtime returns functions of exactly its version; this function returns any.
  const cudaError_t error =
      cudaGetDriverEntryPoint("cuGetProcAddress", &address, cudaEnableDefault, &found);
  if (error != cudaSuccess) (void)cudaGetLastError();
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) return nullptr;
  const auto get = reinterpret_cast<decltype(&cuGetProcAddress)>(address);
  CUdriverProcAddressQueryResult why = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  address = nullptr;
  const CUresult result =
      get(name, &address, static_cast<int>(version), CU_GET_PROC_ADDRESS_DEFAULT, &why);
  return result == CUDA_SUCCESS && why == CU_GET_PROC_ADDRESS_SUCCESS ? address : nullptr;
#endif
}

template <unsigned kVersion, typename Function>
bool find(const char* name, Function* function) noexcept {
  *function = reinterpret_cast<Function>(find_driver_function(name, kVersion));
  return *function != nullptr;
}

// Returns nothing unless find_all() finds every function.
template <typename Functions, typename FindAll>
std::optional<Functions> look_up(const FindAll& find_all) noexcept {
  Functions functions;
  return find_all(functions) ? std::optional(functions) : std::nullopt;
}

}  // namespace

const Driver* driver() noexcept {
  static const auto lookup = look_up<Driver>([](Driver& found) {
    return find<kVirtualMemoryVersion>("cuMemGetAllocationGranularity",
                                       &found.mem_get_allocation_granularity) &&
           find<kVirtualMemoryVersion>("cuMemAddressReserve", &found.mem_address_reserve) &&
           find<kVirtualMemoryVersion>("cuMemAddressFree", &found.mem_address_free) &&
           find<kVirtualMemoryVersion>("cuMemCreate", &found.mem_create) &&
           find<kVirtualMemoryVersion>("cuMemRelease", &found.mem_release) &&
           find<kVirtualMemoryVersion>("cuMemMap", &found.mem_map) &&
           find<kVirtualMemoryVersion>("cuMemUnmap", &found.mem_unmap) &&
           find<kVirtualMemoryVersion>("cuMemSetAccess", &found.mem_set_access);
  });
  return lookup ? &*lookup : nullptr;
}

const GraphDriver* graph_driver() noexcept {
  static const auto lookup = look_up<GraphDriver>([](GraphDriver& found) {
    return find<kGraphVersion>("cuGraphLaunch", &found.launch) &&
           find<kGraphVersion>("cuGraphExecKernelNodeSetParams", &found.set_kernel_node);
  });
  return lookup ? &*lookup : nullptr;
}

const CaptureDriver* capture_driver() noexcept {
  static const auto lookup = look_up<CaptureDriver>([](CaptureDriver& found) {
    return find<kCaptureVersion>("cuStreamGetCaptureInfo", &found.get_capture_info);
  });
  return lookup ? &*lookup : nullptr;
}

const PointerDriver* pointer_driver() noexcept {
  static const auto lookup = look_up<PointerDriver>([](PointerDriver& found) {
    return find<kPointerVersion>("cuPointerGetAttributes", &found.get_attributes);
  });
  return lookup ? &*lookup : nullptr;
}

const StreamDriver* stream_driver() noexcept {
  static const auto lookup = look_up<StreamDriver>([](StreamDriver& found) {
    return find<kStreamVersion>("cuStreamGetCtx", &found.get_context) &&
           find<kContextVersion>("cuCtxPushCurrent", &found.push_context) &&
           find<kContextVersion>("cuCtxPopCurrent", &found.pop_context) &&
           find<kContextVersion>("cuCtxGetDevice", &found.get_device);
  });
  return lookup ? &*lookup : nullptr;
}

const PartitionDriver* partition_driver() noexcept {
  static const auto lookup = look_up<PartitionDriver>([](PartitionDriver& found) {
    return find<kGreenVersion>("cuStreamGetGreenCtx", &found.get_green_context);
  });
  return lookup ? &*lookup : nullptr;
}

const ModuleDriver* module_driver() noexcept {
  static const auto lookup = look_up<ModuleDriver>([](ModuleDriver& found) {
    return find<kParameterVersion>("cuKernelGetParamInfo", &found.kernel_get_param_info);
  });
  return lookup ? &*lookup : nullptr;
}

const NodeDriver* node_driver() noexcept {
  static const auto lookup = look_up<NodeDriver>([](NodeDriver& found) {
    return find<kGraphVersion>("cuGraphKernelNodeGetParams", &found.kernel_node_params) &&
           find<kCopyNodeVersion>("cuGraphMemcpyNodeGetParams", &found.memcpy_node_params) &&
           find<kCopyNodeVersion>("cuGraphMemsetNodeGetParams", &found.memset_node_params) &&
           find<kAllocNodeVersion>("cuGraphMemAllocNodeGetParams", &found.alloc_node_params) &&
           find<kAllocNodeVersion>("cuGraphMemFreeNodeGetParams", &found.free_node_params) &&
           find<kParameterVersion>("cuFuncGetParamInfo", &found.func_get_param_info) &&
           find<kParameterVersion>("cuKernelGetParamInfo", &found.kernel_get_param_info) &&
           find<kNameVersion>("cuFuncGetName", &found.func_get_name) &&
           find<kNameVersion>("cuKernelGetName", &found.kernel_get_name);
  });
  return lookup ? &*lookup : nullptr;
}

std::span<const std::byte> parameters_of(void* const* extra) noexcept {
  const std::byte* buffer = nullptr;
  std::size_t bytes = 0;
  for (; extra != nullptr && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = static_cast<std::byte*>(extra[1]);
    if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<std::size_t*>(extra[1]);
  }
  return {buffer, buffer != nullptr ? bytes : 0};
}

}  // namespace cgtree::cuda
