// HostMemory: the host device's allocations, each registered with its size and kind; and memory
// that is mapped at reserved addresses. OrderedMemory: an allocation in the order of a stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "base/mutex.h"
#include "interop/device/code.h"
#include "interop/device/device_api.h"

namespace cgtree::host {

class StrictMemory;

enum class MemoryKind { kData, kPinned, kMapped, kOrdered };

// Physical memory is an anonymous file: its contents stay when it is mapped elsewhere, as on a GPU.
//
// Thread safety: any thread.
class HostMemory {
 public:
  static constexpr std::size_t kGranularity = std::size_t{2} << 20;  // bytes; as on an H200

  // `checker` may be null: memory is then from the C library.
  HostMemory(StrictMemory* checker, int devices);

  // Zero bytes give null, as in CUDA. Returns kMemoryAllocation if the machine's memory cannot hold
  // it, although Linux would promise more than it has.
  Code allocate(MemoryKind kind, int device, std::size_t bytes, void** data);
  // Null is allowed. Returns kInvalidValue for a pointer that is not the start of a live allocation
  // of this kind.
  Code release(MemoryKind kind, void* data);
  // Returns whether the address lies in memory of the device, or in pinned memory.
  bool owns(const void* address) const;
  DeviceAllocation allocation_of(const void* address) const;

  std::size_t total() const noexcept { return total_; }
  std::size_t free() const;

  // The next seven correspond to the functions of DeviceAPI that map memory.
  Code granularity(int id, std::size_t* bytes);
  Code reserve(int id, std::size_t bytes, void** address);
  Code free_reserved(void* address, std::size_t bytes);
  Code create(int id, std::size_t bytes, PhysicalMemory* memory);
  Code release(PhysicalMemory memory);
  Code map(int id, void* address, std::size_t bytes, PhysicalMemory memory);
  Code unmap(void* address, std::size_t bytes);

 private:
  struct Allocation {
    MemoryKind kind;
    int device;
    std::size_t bytes;
    PhysicalMemory physical = {};  // of kMapped
  };
  struct Physical {
    int file;
    std::size_t bytes;
    int mappings = 0;
    bool released = false;
  };
  using Live = std::map<std::byte*, Allocation>;

  void* take(MemoryKind kind, std::size_t bytes);
  void give_back(void* data);
  bool exists(int id) const noexcept { return id >= 0 && id < devices_; }
  // The functions below require the lock.
  Live::const_iterator find(const void* address) const;
  void drop_if_unused(std::map<PhysicalMemory, Physical>::iterator physical);
  // Returns whether [address, address + bytes) is a sequence of whole mappings without a gap.
  bool is_whole_mappings(std::byte* address, std::size_t bytes) const;
  bool is_reserved(const std::byte* address, std::size_t bytes) const;
  bool has_memory_in(std::byte* address, std::size_t bytes) const;

  StrictMemory* const checker_;
  const int devices_;
  const std::size_t total_;                     // bytes of physical memory
  mutable Mutex<LockRank::kHostMemory> mutex_;  // guards all below
  Live live_;                                   // disjoint
  std::map<std::byte*, std::size_t> reserved_;  // bytes by address
  std::map<PhysicalMemory, Physical> physical_;
  std::uint64_t last_name_ = 0;
  std::size_t in_use_ = 0;  // bytes of physical_, and of live_ without mappings; <= total_
};

// An OrderedMemory is allocated in the order of a stream, or by a node of a graph. The runtime
// shares it until it is freed, and a graph while nodes use it.
class OrderedMemory {
 public:
  // Returns null if there is no room.
  static std::shared_ptr<OrderedMemory> make(HostMemory& memory, int device, std::size_t bytes,
                                             bool is_of_graph);
  ~OrderedMemory() { (void)memory_.release(MemoryKind::kOrdered, data); }
  OrderedMemory(const OrderedMemory&) = delete;
  OrderedMemory& operator=(const OrderedMemory&) = delete;

  void* const data;
  const std::size_t bytes;
  const bool is_of_graph;

 private:
  OrderedMemory(HostMemory& memory, void* place, std::size_t size, bool belongs_to_graph) noexcept
      : data(place), bytes(size), is_of_graph(belongs_to_graph), memory_(memory) {}

  HostMemory& memory_;
};

}  // namespace cgtree::host
