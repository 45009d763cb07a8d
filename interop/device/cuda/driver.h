// The driver's functions that the runtime has no name for, found at run time.
//
// A binary that links libcuda does not start where there is no driver; this one does.
#pragma once

#include <cuda.h>

#include "interop/device/code.h"

namespace cgtree::cuda {

// Null where the driver does not know it.
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

// Looked up once. Null where there is no driver, or one without any of them.
const Driver* driver() noexcept;

// What a replay calls, without the runtime's part of it: its look-up of a kernel at each patch, and
// 0.04 us of each launch (device_bench on an H200).
struct GraphDriver {
  decltype(&cuGraphLaunch) launch = nullptr;
  decltype(&cuGraphExecKernelNodeSetParams) set_kernel_node = nullptr;
};

// As driver().
const GraphDriver* graph_driver() noexcept;

// Whether a stream captures, without the runtime's part of it.
struct CaptureDriver {
  decltype(&cuStreamGetCaptureInfo) get_capture_info = nullptr;
};

// As driver().
const CaptureDriver* capture_driver() noexcept;

// Whose memory an address lies in, all in one question.
struct PointerDriver {
  decltype(&cuPointerGetAttributes) get_attributes = nullptr;
};

// As driver().
const PointerDriver* pointer_driver() noexcept;

// What tells of loaded code.
struct ModuleDriver {
  decltype(&cuKernelGetParamInfo) kernel_get_param_info = nullptr;
};

// As driver().
const ModuleDriver* module_driver() noexcept;

inline Code to_code(CUresult result) noexcept {
  return static_cast<Code>(result);
}

}  // namespace cgtree::cuda
