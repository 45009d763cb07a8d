// HostMemory: the host device's allocations, each registered with its size and kind; and
// HostVirtualMemory: memory that is mapped into reserved addresses.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "base/mutex.h"
#include "interop/device/code.h"
#include "interop/device/device_api.h"
#include "interop/device/virtual_memory_api.h"
#include "simulator/work.h"

namespace cgtree::host {

// MemoryChecker is what a host device asks about its memory in strict mode. The product runs
// without one; tests link the only implementation, StrictMemory (strict_memory.h).
//
// Thread safety: any thread.
class MemoryChecker {
 public:
  virtual ~MemoryChecker() = default;

  // Returns null where there is no room. `kind` names the memory in findings.
  virtual void* allocate(const char* kind, std::size_t bytes) = 0;
  virtual void free(void* data) = 0;
  // Adds and removes memory that was allocated elsewhere.
  virtual void adopt(void* data, std::size_t bytes, std::string name) = 0;
  virtual void disown(void* data) = 0;

  // Returns why the work may not run; empty if it may.
  virtual std::string objection(const Work& work) const = 0;
  // Returns what has been written without permission, and repairs it; empty if nothing has. Looks
  // at every byte of freed blocks if `is_thorough`, else at the first 4 KiB.
  virtual std::string damage(bool is_thorough) = 0;
  virtual void report(std::string finding) = 0;
};

enum class MemoryKind { kData, kPinned, kMapped };

// Thread safety: any thread.
class HostMemory {
 public:
  static constexpr std::size_t kAlignment = 512;  // bytes; the alignment of cudaMalloc in practice

  // `checker` may be null: then memory comes from the C library.
  explicit HostMemory(MemoryChecker* checker);

  // Zero bytes give null, as in CUDA. Returns kMemoryAllocation if the machine's memory cannot hold
  // it: Linux would promise more than there is.
  Code allocate(MemoryKind kind, int device, std::size_t bytes, void** data);
  // Null is no error. Returns kInvalidValue for a pointer that is not the start of a live
  // allocation of this kind.
  Code release(MemoryKind kind, void* data);

  // Adds and removes addresses at which memory allocated elsewhere is mapped.
  void add_mapping(int device, void* data, std::size_t bytes);
  void remove_mapping(void* data);
  // Returns whether the address lies in memory of the device, or in pinned memory.
  bool owns(const void* address) const;
  PointerAttributes attributes(const void* address) const {
    return allocation_of(address).attributes;
  }
  DeviceAllocation allocation_of(const void* address) const;

  // Counts memory allocated elsewhere. Returns false, with nothing changed, if the machine cannot
  // hold it.
  bool count(std::size_t bytes);
  void discount(std::size_t bytes);

  std::size_t total() const noexcept { return total_; }
  std::size_t free() const;

 private:
  struct Allocation {
    MemoryKind kind;
    int device;
    std::size_t bytes;
  };

  void* take(MemoryKind kind, std::size_t bytes);
  void give_back(void* data);
  using Live = std::map<std::byte*, Allocation>;
  Live::const_iterator find(const void* address) const;  // requires the lock

  MemoryChecker* const checker_;
  const std::size_t total_;  // bytes of physical memory
  mutable Mutex<LockRank::kHostMemory> mutex_;
  Live live_;               // disjoint
  std::size_t in_use_ = 0;  // sum of the bytes of live_ less mappings, and of count(); <= total_
};

// The virtual memory capability of the host device. Physical memory is an anonymous file: its
// contents stay when it is mapped elsewhere, as on a GPU.
class HostVirtualMemory final : public VirtualMemoryAPI {
 public:
  static constexpr std::size_t kGranularity = std::size_t{2} << 20;  // bytes; as on an H200

  // Created memory is counted by `memory`, and mappings are registered there.
  HostVirtualMemory(HostMemory& memory, int devices) : memory_(memory), devices_(devices) {}

  Code granularity(int id, std::size_t* bytes) override;
  Code reserve(int id, std::size_t bytes, void** address) override;
  Code free_reserved(void* address, std::size_t bytes) override;
  Code create(int id, std::size_t bytes, PhysicalMemory* memory) override;
  Code release(PhysicalMemory memory) override;
  Code map(int id, void* address, std::size_t bytes, PhysicalMemory memory) override;
  Code unmap(void* address, std::size_t bytes) override;

 private:
  struct Physical {
    int file;
    std::size_t bytes;
    int mappings = 0;
    bool released = false;
  };
  struct Mapping {
    std::size_t bytes;
    std::uint64_t physical;
  };

  bool exists(int id) const noexcept { return id >= 0 && id < devices_; }
  void drop_if_unused(std::map<std::uint64_t, Physical>::iterator physical);
  // Returns whether [address, address + bytes) is a sequence of whole mappings without a gap.
  bool is_whole_mappings(char* address, std::size_t bytes) const;
  bool is_reserved(const char* address, std::size_t bytes) const;
  bool has_mapping_in(char* address, std::size_t bytes) const;

  HostMemory& memory_;
  const int devices_;
  Mutex<LockRank::kHostMapping> mutex_;    // guards all below
  std::map<char*, std::size_t> reserved_;  // bytes by address
  std::map<char*, Mapping> mapped_;        // inside reserved_; disjoint
  std::map<std::uint64_t, Physical> physical_;
  std::uint64_t last_name_ = 0;
};

}  // namespace cgtree::host
