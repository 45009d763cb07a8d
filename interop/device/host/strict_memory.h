// StrictMemory: what belongs to whom, red zones around it, and what work does to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "interop/device/host/host_device.h"
#include "interop/device/host/memory.h"
#include "interop/device/host/work.h"

namespace cgtree::host {

// Blocks keep their place while it knows them: freed ones wait in quarantine, filled with a
// pattern, so that no address is used again soon.
//
// Threads: any.
class StrictMemory final : public MemoryChecker {
 public:
  static constexpr std::size_t kZone = 512;                          // bytes before and after
  static constexpr std::size_t kQuarantine = std::size_t{16} << 20;  // bytes; the oldest go first

  StrictMemory() = default;
  ~StrictMemory() override;
  StrictMemory(const StrictMemory&) = delete;
  StrictMemory& operator=(const StrictMemory&) = delete;

  // Null where there is no room. Filled with a pattern that is neither zero nor small.
  void* allocate(const char* kind, std::size_t bytes) override;
  void free(void* data) override;
  // Memory taken elsewhere, without zones.
  void adopt(void* data, std::size_t bytes, std::string name) override;
  void disown(void* data) override;

  void watch(const void* data, std::size_t bytes, std::string owner);
  void end(const void* data);

  // Why the work may not run; empty if it may.
  std::string objection(const Work& work) const override;
  // What has been written that nobody may write, and is put right; empty if nothing has. Of freed
  // blocks `is_thorough` looks at every byte, else at the first few thousand.
  std::string damage(bool is_thorough) override;
  void report(std::string finding) override;

  // Returns what was found since the last call, one sentence per finding.
  std::vector<std::string> take_findings();

 private:
  struct Block {
    std::byte* begin;
    std::size_t bytes;
    std::string name;
    std::byte* base = nullptr;  // null: adopted, or a host buffer
    std::size_t room = 0;       // bytes from base on
    bool is_device = true;
    bool is_dead = false;
  };

  const Block* find(const void* address) const;  // the one whose bytes or zones it is in
  std::string objection(const void* address, std::size_t bytes, bool must_be_device) const;
  std::string dangling(const void* address, std::size_t argument) const;
  void check(Block& block, std::size_t limit, std::string& text);
  void insert(Block block);
  void let_go();

  mutable std::mutex mutex_;
  std::map<const std::byte*, Block> blocks_;  // by the end of their room; disjoint
  std::deque<const std::byte*> quarantine_;   // keys of blocks_; the oldest first
  std::size_t quarantined_ = 0;               // bytes
  std::uint64_t allocations_ = 0;
  std::vector<std::string> findings_;
  std::string found_late_;  // damage to blocks that have left quarantine
};

}  // namespace cgtree::host

namespace cgtree {

// A host device in strict mode, and the memory that tells what was found.
struct StrictHostDevice {
  std::shared_ptr<host::StrictMemory> memory;
  std::unique_ptr<DeviceAPI> device;
};

// As make_host_device(), in strict mode.
StrictHostDevice make_strict_host_device(HostDeviceOptions options = {});

}  // namespace cgtree
