// Asks the runtime for the driver's functions.
#include "interop/cuda/driver.h"

#include <cuda_runtime_api.h>

namespace cgtree::cuda {
namespace {

// The versions in which the functions got the signatures they have.
constexpr unsigned kVirtualMemoryVersion = 11020;
constexpr unsigned kPointerVersion = 7000;
constexpr unsigned kGraphVersion = 12000;
constexpr unsigned kCaptureVersion = 12030;
constexpr unsigned kParameterVersion = 12040;

template <unsigned kVersion, typename Function>
bool find(const char* name, Function* function) noexcept {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &address, kVersion, cudaEnableDefault, &found);
  if (error != cudaSuccess) (void)cudaGetLastError();  // not there is an answer, not an error
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) return false;
  *function = reinterpret_cast<Function>(address);
  return true;
}

}  // namespace

const Driver* driver() noexcept {
  struct Lookup {
    Driver driver;
    bool complete =
        find<kVirtualMemoryVersion>("cuMemGetAllocationGranularity",
                                    &driver.mem_get_allocation_granularity) &&
        find<kVirtualMemoryVersion>("cuMemAddressReserve", &driver.mem_address_reserve) &&
        find<kVirtualMemoryVersion>("cuMemAddressFree", &driver.mem_address_free) &&
        find<kVirtualMemoryVersion>("cuMemCreate", &driver.mem_create) &&
        find<kVirtualMemoryVersion>("cuMemRelease", &driver.mem_release) &&
        find<kVirtualMemoryVersion>("cuMemMap", &driver.mem_map) &&
        find<kVirtualMemoryVersion>("cuMemUnmap", &driver.mem_unmap) &&
        find<kVirtualMemoryVersion>("cuMemSetAccess", &driver.mem_set_access);
  };
  static const Lookup lookup;
  return lookup.complete ? &lookup.driver : nullptr;
}

const GraphDriver* graph_driver() noexcept {
  struct Lookup {
    GraphDriver driver;
    bool complete = find<kGraphVersion>("cuGraphLaunch", &driver.launch) &&
                    find<kGraphVersion>("cuGraphExecKernelNodeSetParams", &driver.set_kernel_node);
  };
  static const Lookup lookup;
  return lookup.complete ? &lookup.driver : nullptr;
}

const CaptureDriver* capture_driver() noexcept {
  struct Lookup {
    CaptureDriver driver;
    bool complete = find<kCaptureVersion>("cuStreamGetCaptureInfo", &driver.get_capture_info);
  };
  static const Lookup lookup;
  return lookup.complete ? &lookup.driver : nullptr;
}

const PointerDriver* pointer_driver() noexcept {
  struct Lookup {
    PointerDriver driver;
    bool complete = find<kPointerVersion>("cuPointerGetAttributes", &driver.get_attributes);
  };
  static const Lookup lookup;
  return lookup.complete ? &lookup.driver : nullptr;
}

const ModuleDriver* module_driver() noexcept {
  struct Lookup {
    ModuleDriver driver;
    bool complete = find<kParameterVersion>("cuKernelGetParamInfo", &driver.kernel_get_param_info);
  };
  static const Lookup lookup;
  return lookup.complete ? &lookup.driver : nullptr;
}

}  // namespace cgtree::cuda
