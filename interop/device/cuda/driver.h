// Functions of the driver that the runtime lacks, looked up at run time.
//
// A binary that links libcuda does not start on a machine without a driver. A binary that looks the
// functions up does.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <span>

#include "interop/device/code.h"

namespace cgtree::cuda {

// Functions for virtual memory.
struct Driver {
  decltype(&cuMemGetAllocationGranularity) mem_get_allocation_granularity = nullptr;
  decltype(&cuMemAddressReserve) mem_address_reserve = nullptr;
  decltype(&cuMemAddressFree) mem_address_free = nullptr;
  decltype(&cuMemCreate) mem_create = nullptr;
  decltype(&cuMemRelease) mem_release = nullptr;
  decltype(&cuMemMap) mem_map = nullptr;
  decltype(&cuMemUnmap) mem_unmap = nullptr;
  decltype(&cuMemSetAccess) mem_set_access = nullptr;
};

// Returns the functions, looked up once; null if there is no driver, or if it lacks one of them.
const Driver* driver() noexcept;

// Functions that a replay calls. They save the runtime's look-up of a kernel at each patch, and
// 0.04 us of each launch (device_bench on an H200).
struct GraphDriver {
  decltype(&cuGraphLaunch) launch = nullptr;
  decltype(&cuGraphExecKernelNodeSetParams) set_kernel_node = nullptr;
};

// As driver().
const GraphDriver* graph_driver() noexcept;

// Functions that the headers of 12.0 lack, or declare with other arguments.
using GetCaptureInfo = CUresult(CUDAAPI*)(CUstream stream, CUstreamCaptureStatus* status,
                                          cuuint64_t* id, CUgraph* graph,
                                          const CUgraphNode** before, const void** edges,
                                          std::size_t* count);
template <typename Kernel>
using GetParamInfo = CUresult(CUDAAPI*)(Kernel kernel, std::size_t index, std::size_t* offset,
                                        std::size_t* bytes);
template <typename Kernel>
using GetName = CUresult(CUDAAPI*)(const char** name, Kernel kernel);

// Reports whether a stream captures, faster than the runtime.
struct CaptureDriver {
  GetCaptureInfo get_capture_info = nullptr;
};

// As driver().
const CaptureDriver* capture_driver() noexcept;

// Reports the memory of an address in one call.
struct PointerDriver {
  decltype(&cuPointerGetAttributes) get_attributes = nullptr;
};

// As driver().
const PointerDriver* pointer_driver() noexcept;

// Reports the device of a stream. For toolkits before 12.8, whose runtime cannot.
struct StreamDriver {
  decltype(&cuStreamGetCtx) get_context = nullptr;
  decltype(&cuCtxPushCurrent) push_context = nullptr;
  decltype(&cuCtxPopCurrent) pop_context = nullptr;
  decltype(&cuCtxGetDevice) get_device = nullptr;
};

// As driver().
const StreamDriver* stream_driver() noexcept;

// Reports the green context of a stream. Not in the headers of 12.0.
struct PartitionDriver {
  CUresult(CUDAAPI* get_green_context)(CUstream stream, void** context) = nullptr;
};

// As driver().
const PartitionDriver* partition_driver() noexcept;

// Describes loaded code.
struct ModuleDriver {
  GetParamInfo<CUkernel> kernel_get_param_info = nullptr;
};

// As driver().
const ModuleDriver* module_driver() noexcept;

// Reads the contents of the nodes of a graph.
struct NodeDriver {
  decltype(&cuGraphKernelNodeGetParams) kernel_node_params = nullptr;
  decltype(&cuGraphMemcpyNodeGetParams) memcpy_node_params = nullptr;
  decltype(&cuGraphMemsetNodeGetParams) memset_node_params = nullptr;
  decltype(&cuGraphMemAllocNodeGetParams) alloc_node_params = nullptr;
  decltype(&cuGraphMemFreeNodeGetParams) free_node_params = nullptr;
  GetParamInfo<CUfunction> func_get_param_info = nullptr;
  GetParamInfo<CUkernel> kernel_get_param_info = nullptr;
  GetName<CUfunction> func_get_name = nullptr;
  GetName<CUkernel> kernel_get_name = nullptr;
};

// As driver().
const NodeDriver* node_driver() noexcept;

// Returns the parameters of a launch with `extra`; empty if there are none.
std::span<const std::byte> parameters_of(void* const* extra) noexcept;

inline Code to_code(CUresult result) noexcept {
  return static_cast<Code>(result);
}

}  // namespace cgtree::cuda
