// StrictMemory: the strict mode of the host device. It tracks the existing memory, puts red zones
// around it, and finds work that accesses other memory.
//
// Findings are sentences that name the work (the node, if a graph was launched), the range and the
// memory. Such work returns kIllegalAddress. Strict mode finds
//   a copy or memset of memory that is freed, or not all in one allocation; it does not run
//   a kernel with an argument that points into freed memory; it does not run
//   a write beyond an allocation, or into the first 4 KiB of a freed one, after the work that did
//   it; a write into the rest of a freed one, when the device is synchronized
//   a copy from or to a host buffer whose life has ended (see end()); it does not run
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "interop/device/device_api.h"
#include "simulator/host_device.h"
#include "simulator/work.h"

namespace cgtree::host {

// Freed blocks wait in quarantine, filled with a pattern, so that no address is reused soon.
//
// Thread safety: any thread.
class StrictMemory {
 public:
  static constexpr std::size_t kZone = 512;                          // bytes before and after
  static constexpr std::size_t kQuarantine = std::size_t{16} << 20;  // bytes; the oldest go first

  StrictMemory() = default;
  ~StrictMemory();
  StrictMemory(const StrictMemory&) = delete;
  StrictMemory& operator=(const StrictMemory&) = delete;

  // Returns memory filled with a pattern that is neither zero nor small; null if there is no room.
  // `kind` names it in findings.
  void* allocate(const char* kind, std::size_t bytes);
  void free(void* data);
  // The next two add and remove memory that was allocated elsewhere, without red zones.
  void adopt(void* data, std::size_t bytes, std::string name);
  void disown(void* data);

  // Registers a host buffer; `owner` names it in findings.
  void watch(const void* data, std::size_t bytes, std::string owner);
  // Ends the life of the watched buffer at `data`: no work may use it from now on.
  void end(const void* data);

  // Returns why the work may not run; empty if it may.
  std::string objection(const Work& work) const;
  // Describes bytes that were written without permission, and repairs them; empty if none were.
  // Checks every byte of freed blocks if `is_thorough`, else the first 4 KiB.
  std::string damage(bool is_thorough);
  void report(std::string finding);

  // Returns the findings since the last call, one sentence each.
  std::vector<std::string> take_findings();

 private:
  struct Block {
    std::byte* begin;
    std::size_t bytes;
    std::string name;
    std::byte* base = nullptr;  // null: adopted memory, or a host buffer
    std::size_t room = 0;       // bytes from base on
    bool is_device = true;
    bool is_dead = false;
  };

  const Block* find(const void* address) const;  // the block whose bytes or zones contain it
  std::string objection(const void* address, std::size_t bytes, bool must_be_device) const;
  std::string dangling(const void* address, std::size_t argument) const;
  void check(Block& block, std::size_t limit, std::string& text);
  void insert(Block block);
  void shrink_quarantine();

  mutable Mutex<LockRank::kLeaf> mutex_;
  std::map<const std::byte*, Block> blocks_;  // by the end of their room; disjoint
  std::deque<const std::byte*> quarantine_;   // keys of blocks_; the oldest first
  std::size_t quarantined_ = 0;               // bytes
  std::uint64_t allocations_ = 0;
  std::vector<std::string> findings_;
  std::string found_late_;  // damage to blocks that left quarantine
};

}  // namespace cgtree::host

namespace cgtree {

// A host device in strict mode, and the memory with its findings.
struct StrictHostDevice {
  std::shared_ptr<host::StrictMemory> memory;
  std::unique_ptr<DeviceAPI> device;
};

// As make_host_device(), in strict mode.
StrictHostDevice make_strict_host_device(HostDeviceOptions options = {});

}  // namespace cgtree
