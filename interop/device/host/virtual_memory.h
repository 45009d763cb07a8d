// HostVirtualMemory: the virtual memory capability of the host device.
#pragma once

#include <map>
#include <mutex>

#include "interop/device/host/memory.h"
#include "interop/device/virtual_memory_api.h"

namespace cgtree::host {

// Physical memory is an anonymous file: its contents stay when it is mapped elsewhere, as on a GPU.
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
  std::mutex mutex_;                       // guards all below
  std::map<char*, std::size_t> reserved_;  // bytes by address
  std::map<char*, Mapping> mapped_;        // inside reserved_; disjoint
  std::map<std::uint64_t, Physical> physical_;
  std::uint64_t last_name_ = 0;
};

}  // namespace cgtree::host
