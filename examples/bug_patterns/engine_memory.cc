// The blocks are consecutive in one allocation of the device.
#include "examples/bug_patterns/engine_memory.h"

#include "base/error.h"
#include "interop/device/code.h"
#include "interop/device/stream.h"

namespace cgtree::bug_patterns {

EngineMemory::EngineMemory(Device device, Kind kind, std::size_t block_bytes)
    : device_(device), kind_(kind), block_bytes_(block_bytes), api_(device_api(device)) {
  const std::size_t bytes = kBlocks * block_bytes;
  check(kind == Kind::kPinned ? api_.alloc_pinned(bytes, &all_)
                              : api_.alloc_data_space(device.id, bytes, &all_),
        "allocate the engine's memory");
  for (std::size_t i = kBlocks; i-- > 0;)
    free_.push_back(static_cast<std::byte*>(all_) + i * block_bytes);
}

EngineMemory::~EngineMemory() {
  static_cast<void>(kind_ == Kind::kPinned ? api_.free_pinned(all_)
                                           : api_.free_data_space(device_.id, all_));
}

void* EngineMemory::allocate() {
  if (free_.empty()) throw OutOfMemory("the engine has no block left");
  void* const block = free_.back();
  free_.pop_back();
  return block;
}

void EngineMemory::write(void* block, const void* values, std::size_t bytes) {
  const Stream stream(device_);
  check(api_.copy(stream.ref().handle(), block, values, bytes), "write a block");
  stream.synchronize();
}

void EngineMemory::read(const void* block, void* values, std::size_t bytes) {
  const Stream stream(device_);
  check(api_.copy(stream.ref().handle(), values, block, bytes), "read a block");
  stream.synchronize();
}

}  // namespace cgtree::bug_patterns
