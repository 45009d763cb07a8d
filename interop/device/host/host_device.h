// The embedded host device: streams, events, capture and graphs with CUDA's rules and numbers, no
// GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "interop/device/device_api.h"

namespace cgtree {
namespace host {
class MemoryChecker;
}

// When work runs. CUDA promises an order only along streams, events and the legacy stream's rules.
enum class HostExecutor {
  kInline,   // before the verb returns, on the caller's thread: the same in each run
  kThreads,  // on a thread per stream, when what it waits for is done
  kRandom,   // queued, and run in a random order that respects all promises, when somebody waits
};

struct HostDeviceOptions {
  HostExecutor executor = HostExecutor::kInline;
  std::uint64_t seed = 0;  // of kRandom; one thread and one seed give one order
  int devices = 4;         // ids 0 to devices - 1; they share the machine's memory
  // Whether freeing memory waits for all queued work. Source: CUDA C++ Programming Guide, Stream
  // Ordered Memory Allocator: cudaMalloc and cudaFree synchronize all streams. Without, strict mode
  // finds work that is queued when its memory is freed, as cudaFreeAsync on another stream would.
  bool free_waits = true;
  // Checks memory and the work that touches it; null: nothing is checked. See strict_memory.h.
  std::shared_ptr<host::MemoryChecker> checker = nullptr;
};

// The process's host device: kInline; it lives as long as the process.
DeviceAPI& host_device_api() noexcept;

// One with streams, memory and errors of its own. Its destructor waits for kThreads' work and drops
// kRandom's. Throws InvalidArgument for less than one device.
std::unique_ptr<DeviceAPI> make_host_device(const HostDeviceOptions& options);

}  // namespace cgtree
