// VirtualMemoryAPI: the optional capability of a device to map memory into reserved addresses.
//
// The functions are the driver's (cuMemAddressReserve, cuMemCreate, cuMemMap), one to one, and
// return CUDA's numbers (code.h). Out-parameters are written on success only. Sizes and addresses
// are multiples of granularity().
//
// None of them touches a stream, and none is refused while a capture is open. unmap() does not wait
// for work: the work that uses the addresses must have ended.
//
// Thread safety: any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "interop/device/code.h"

namespace cgtree {

// PhysicalMemory is memory of a device that has no address of its own.
enum class PhysicalMemory : std::uint64_t { kNull = 0 };

// Implemented by a device that can map memory.
class VirtualMemoryAPI {
 public:
  virtual ~VirtualMemoryAPI() = default;

  // The bytes of which sizes and addresses are multiples.
  virtual Code granularity(int id, std::size_t* bytes) = 0;

  // Reserves addresses without memory.
  virtual Code reserve(int id, std::size_t bytes, void** address) = 0;
  // Requires the whole range that reserve() returned, with nothing mapped in it.
  virtual Code free_reserved(void* address, std::size_t bytes) = 0;

  // Makes memory that is mapped nowhere yet.
  virtual Code create(int id, std::size_t bytes, PhysicalMemory* memory) = 0;
  // Releases the handle; the memory itself is freed when it is mapped nowhere.
  virtual Code release(PhysicalMemory memory) = 0;

  // Maps all of `memory`, which has `bytes` bytes, for reading and writing by device `id` and by
  // devices that reach its memory.
  virtual Code map(int id, void* address, std::size_t bytes, PhysicalMemory memory) = 0;
  // Unmaps one or more whole mappings. A range without a mapping is left as it is.
  virtual Code unmap(void* address, std::size_t bytes) = 0;
};

}  // namespace cgtree
