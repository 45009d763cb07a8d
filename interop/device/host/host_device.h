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
  // Work that touches memory it may not is found: see HostDevice::take_findings().
  bool strict = false;
  // Whether freeing memory waits for all queued work. Source: CUDA C++ Programming Guide, Stream
  // Ordered Memory Allocator: cudaMalloc and cudaFree synchronize all streams. Without, strict mode
  // finds work that is queued when its memory is freed, as cudaFreeAsync on another stream would.
  bool free_waits = true;
};

class HostDevice : public DeviceAPI {
 public:
  // What strict mode has found since the last call, a sentence each: the work (the node, where a
  // graph was launched), the range and whose memory it was. Found are
  //   a copy or memset of memory that is freed, or not all in one allocation; it does not run
  //   a kernel with an argument that points into freed memory; it does not run
  //   a write beyond an allocation, or into the first 4 KiB of a freed one, after the work that did
  //   it; one into the rest of a freed one when the device is synchronized
  //   a copy from or to a host buffer whose life has ended (see end_host_buffer()); it does not run
  // Such work answers kIllegalAddress.
  virtual std::vector<std::string> take_findings() = 0;

  // Tells strict mode of memory that is not the device's: whose it is, for findings.
  virtual void watch_host_buffer(const void* data, std::size_t bytes, std::string owner) = 0;
  // From now on nobody may touch the watched buffer at `data`.
  virtual void end_host_buffer(const void* data) = 0;
};

// The process's host device: kInline; it lives as long as the process.
DeviceAPI& host_device_api() noexcept;

// One with streams, memory and errors of its own. Its destructor waits for kThreads' work and drops
// kRandom's. Throws InvalidArgument for less than one device.
std::unique_ptr<HostDevice> make_host_device(const HostDeviceOptions& options);

}  // namespace cgtree
