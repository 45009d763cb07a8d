// The embedded host device: streams, events, capture and graphs with CUDA's rules and numbers,
// without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "interop/device/device_api.h"

namespace cgtree {
namespace host {
class StrictMemory;
}

// The time at which work runs. CUDA promises an order only along streams, events and the rules of
// the legacy stream.
enum class HostExecutor {
  kInline,   // before the call returns, on the caller's thread: the same order in each run
  kThreads,  // on one thread per stream, when its dependencies have ended
  kRandom,   // queued, and run in a random order that keeps all promises, when a thread waits
};

// The options of make_host_device().
struct HostDeviceOptions {
  HostExecutor executor = HostExecutor::kInline;
  std::uint64_t seed = 0;  // for kRandom; one thread and one seed give one order
  int devices = 8;         // ids 0 to devices - 1; they share the machine's memory
  // If true, freeing memory waits for all queued work. Source: CUDA C++ Programming Guide, Stream
  // Ordered Memory Allocator: cudaMalloc and cudaFree synchronize all streams. If false, strict
  // mode finds work that is still queued when its memory is freed, as with cudaFreeAsync on another
  // stream.
  bool free_waits = true;
  // Checks memory and the work that uses it; null: no checks. See strict_memory.h.
  std::shared_ptr<host::StrictMemory> checker = nullptr;
};

// Returns the process's host device, which is kInline and lives as long as the process.
DeviceAPI& host_device_api() noexcept;

// Makes a host device with its own streams, memory and errors. Its destructor waits for the work of
// kThreads and drops the work of kRandom. Throws InvalidArgument for less than one device.
std::unique_ptr<DeviceAPI> make_host_device(const HostDeviceOptions& options);

}  // namespace cgtree
