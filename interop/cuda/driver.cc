// Asks the runtime for the driver's functions.
#include "interop/cuda/driver.h"

#include <cuda_runtime_api.h>

namespace cgtree::cuda {
namespace {

// All of them are as they were in CUDA 11.2.
constexpr unsigned kVersion = 11020;

template <typename Function>
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
    bool complete = find("cuMemGetAllocationGranularity", &driver.mem_get_allocation_granularity) &&
                    find("cuMemAddressReserve", &driver.mem_address_reserve) &&
                    find("cuMemAddressFree", &driver.mem_address_free) &&
                    find("cuMemCreate", &driver.mem_create) &&
                    find("cuMemRelease", &driver.mem_release) &&
                    find("cuMemMap", &driver.mem_map) && find("cuMemUnmap", &driver.mem_unmap) &&
                    find("cuMemSetAccess", &driver.mem_set_access);
  };
  static const Lookup lookup;
  return lookup.complete ? &lookup.driver : nullptr;
}

}  // namespace cgtree::cuda
