// EngineMemory: the allocator of a small engine, of which cgtree knows nothing.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "interop/device/device.h"
#include "interop/device/device_api.h"

namespace cgtree::bug_patterns {

// An EngineMemory hands out blocks of one size. As in the caching allocators of frameworks, a freed
// block is the next to be handed out, and the device is not told: work that still has its address
// does not fault, and reads or writes the block's new contents.
//
// Thread safety: used by one thread at a time.
class EngineMemory {
 public:
  enum class Kind { kDevice, kPinned };

  // Throws DeviceError.
  EngineMemory(Device device, Kind kind, std::size_t block_bytes);
  ~EngineMemory();
  EngineMemory(const EngineMemory&) = delete;
  EngineMemory& operator=(const EngineMemory&) = delete;

  // Throws OutOfMemory if all blocks are in use.
  void* allocate();
  void free(void* block) { free_.push_back(static_cast<std::byte*>(block)); }

  // Allocates a block and writes `values` into it, which must fit. Waits for the device.
  template <typename T>
  T* allocate_with(std::span<const T> values) {
    void* const block = allocate();
    write(block, values.data(), values.size_bytes());
    return static_cast<T*>(block);
  }
  void write(void* block, const void* values, std::size_t bytes);
  void read(const void* block, void* values, std::size_t bytes);

 private:
  static constexpr std::size_t kBlocks = 8;

  const Device device_;
  const Kind kind_;
  const std::size_t block_bytes_;
  DeviceAPI& api_;
  void* all_ = nullptr;
  std::vector<std::byte*> free_;  // the last block is handed out next
};

}  // namespace cgtree::bug_patterns
