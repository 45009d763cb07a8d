// Reserves, creates and maps through the driver.
#include "interop/device/cuda/cuda_virtual_memory.h"

#include <cuda_runtime_api.h>

#include "interop/device/cuda/driver.h"
#include "interop/device/cuda/runtime.h"

namespace cgtree::cuda {
namespace {

CUmemAllocationProp memory_of(int id) noexcept {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = id};
  return properties;
}

CUdeviceptr to_native(void* address) noexcept {
  return reinterpret_cast<CUdeviceptr>(address);
}

// A Prepared makes the device's context current, which every driver function requires.
class Prepared {
 public:
  explicit Prepared(int id) noexcept : current_(id) {}
  Code code() const noexcept {
    return driver() == nullptr ? Code::kInsufficientDriver : current_.code();
  }

 private:
  CurrentDevice current_;
};

}  // namespace

Code CudaVirtualMemory::granularity(int id, std::size_t* bytes) {
  const Prepared prepared(id);
  if (!ok(prepared.code())) return prepared.code();
  const CUmemAllocationProp properties = memory_of(id);
  // The recommended granularity: large mappings with the minimal one cost more than they need to.
  return to_code(driver()->mem_get_allocation_granularity(bytes, &properties,
                                                          CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
}

Code CudaVirtualMemory::reserve(int id, std::size_t bytes, void** address) {
  const Prepared prepared(id);
  if (!ok(prepared.code())) return prepared.code();
  CUdeviceptr reserved = 0;
  const Code code = to_code(driver()->mem_address_reserve(&reserved, bytes, 0, 0, 0));
  if (ok(code)) *address = reinterpret_cast<void*>(reserved);
  return code;
}

Code CudaVirtualMemory::free_reserved(void* address, std::size_t bytes) {
  if (driver() == nullptr) return Code::kInsufficientDriver;
  return to_code(driver()->mem_address_free(to_native(address), bytes));
}

Code CudaVirtualMemory::create(int id, std::size_t bytes, PhysicalMemory* memory) {
  const Prepared prepared(id);
  if (!ok(prepared.code())) return prepared.code();
  const CUmemAllocationProp properties = memory_of(id);
  CUmemGenericAllocationHandle created = 0;
  const Code code = to_code(driver()->mem_create(&created, bytes, &properties, 0));
  if (ok(code)) *memory = static_cast<PhysicalMemory>(created);
  return code;
}

Code CudaVirtualMemory::release(PhysicalMemory memory) {
  if (driver() == nullptr) return Code::kInsufficientDriver;
  return to_code(driver()->mem_release(static_cast<CUmemGenericAllocationHandle>(memory)));
}

Code CudaVirtualMemory::map(int id, void* address, std::size_t bytes, PhysicalMemory memory) {
  const Prepared prepared(id);
  if (!ok(prepared.code())) return prepared.code();
  const CUdeviceptr begin = to_native(address);
  const auto handle = static_cast<CUmemGenericAllocationHandle>(memory);
  const Code mapped = to_code(driver()->mem_map(begin, bytes, /*offset=*/0, handle, 0));
  if (!ok(mapped)) return mapped;
  const CUmemAccessDesc access = {
      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = id},
      .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  };
  const Code allowed = to_code(driver()->mem_set_access(begin, bytes, &access, 1));
  if (!ok(allowed)) (void)driver()->mem_unmap(begin, bytes);
  return allowed;
}

Code CudaVirtualMemory::unmap(void* address, std::size_t bytes) {
  if (driver() == nullptr) return Code::kInsufficientDriver;
  return to_code(driver()->mem_unmap(to_native(address), bytes));
}

}  // namespace cgtree::cuda
