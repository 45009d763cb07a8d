// CudaVirtualMemory: the virtual memory capability of the cuda device, which calls the driver's
// functions one to one.
#pragma once

#include "interop/device/virtual_memory_api.h"

namespace cgtree::cuda {

class CudaVirtualMemory final : public VirtualMemoryAPI {
 public:
  Code granularity(int id, std::size_t* bytes) override;
  Code reserve(int id, std::size_t bytes, void** address) override;
  Code free_reserved(void* address, std::size_t bytes) override;
  Code create(int id, std::size_t bytes, PhysicalMemory* memory) override;
  Code release(PhysicalMemory memory) override;
  Code map(int id, void* address, std::size_t bytes, PhysicalMemory memory) override;
  Code unmap(void* address, std::size_t bytes) override;
};

}  // namespace cgtree::cuda
