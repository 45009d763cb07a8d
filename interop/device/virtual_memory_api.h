// VirtualMemoryAPI: the optional capability of a device to map memory into reserved addresses.
//
// The verbs are the driver's (cuMemAddressReserve, cuMemCreate, cuMemMap), one to one, and answer
// with CUDA's numbers (code.h). Out-parameters are written on success only. Sizes and addresses
// are multiples of granularity().
//
// None of them touches a stream, and none is refused while a capture is open; but unmap() waits
// for nobody: work that uses the addresses must have ended.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>

#include "interop/device/code.h"

namespace cgtree {

// Memory of a device that has no address of its own.
enum class PhysicalMemory : std::uint64_t { kNull = 0 };

class VirtualMemoryAPI {
 public:
  virtual ~VirtualMemoryAPI() = default;

  virtual Code granularity(int id, std::size_t* bytes) = 0;

  // Addresses without memory.
  virtual Code reserve(int id, std::size_t bytes, void** address) = 0;
  // What reserve() gave, whole and with nothing mapped.
  virtual Code free_reserved(void* address, std::size_t bytes) = 0;

  virtual Code create(int id, std::size_t bytes, PhysicalMemory* memory) = 0;
  // Takes the name away; the memory itself goes when it is mapped nowhere.
  virtual Code release(PhysicalMemory memory) = 0;

  // All of `memory`, `bytes` large, for reading and writing by device `id`.
  virtual Code map(int id, void* address, std::size_t bytes, PhysicalMemory memory) = 0;
  // One or more whole mappings; where nothing is mapped, nothing happens.
  virtual Code unmap(void* address, std::size_t bytes) = 0;
};

}  // namespace cgtree
