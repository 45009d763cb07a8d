// DeviceAPI: everything cgtree asks of a kind of device; one object serves all devices of that
// kind.
//
// Verbs answer with CUDA's numbers on every device (code.h); out-parameters are written on success
// only. Source of the shape: TVM's DeviceAPI.
//
// Threads: any; see each device for what a stream orders.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "interop/device/code.h"
#include "interop/device/dtype.h"
#include "interop/device/graph_api.h"
#include "interop/device/handles.h"
#include "interop/device/virtual_memory_api.h"

namespace cgtree {

// The numbers up to 16 are TVM's DeviceAttrKind, with its types. From 1000 on they are ours.
enum class DeviceAttribute : int {
  kExists = 0,                   // int64: 1 if there is a device of this id; never fails
  kMaxThreadsPerBlock = 1,       // int64
  kWarpSize = 2,                 // int64, threads
  kMaxSharedMemoryPerBlock = 3,  // int64, bytes
  kComputeCapability = 4,        // string, e.g. "9.0"; TVM: kComputeVersion
  kName = 5,                     // string, e.g. "NVIDIA H200"
  kMaxClockRate = 6,             // int64, kHz
  kMultiProcessors = 7,          // int64
  kMaxThreadDimensions = 8,      // string, e.g. "[1024, 1024, 64]"
  kMaxRegistersPerBlock = 9,     // int64
  kGcnArch = 10,                 // string; of AMD's devices, so none here has it
  kApiVersion = 11,              // int64: the CUDA this was built with, 13000 is 13.0
  kDriverVersion = 12,           // int64, as CUDA counts; 0 where there is none
  kL2CacheBytes = 13,            // int64
  kTotalMemory = 14,             // int64, bytes
  kFreeMemory = 15,              // int64, bytes now
  kImagePitchAlignment = 16,     // int64; of OpenCL's devices, so none here has it

  kDriverRelease = 1000,             // string, e.g. "580.159.04"
  kSupportsStreamCapture = 1001,     // int64: 1 or 0, as those below
  kSupportsGraphUpdate = 1002,       // of executable graphs, in place
  kSupportsMemoryPools = 1003,       // allocation in the order of a stream
  kSupportsConditionalNodes = 1004,  // of graphs
};

// std::monostate: this device has no such attribute; so for a number that is not listed above.
using AttributeValue = std::variant<std::monostate, std::int64_t, std::string>;

// What data space is aligned to at least, in bytes. cudaMalloc gives that.
inline constexpr std::size_t kDataSpaceAlignment = 512;

// Whose memory an address lies in. Source: cudaMemoryType.
enum class PointerKind {
  kUnknown,  // nothing that a device gave out
  kDevice,   // data space
  kPinned,   // of the host; every device reaches it
  kManaged,  // moves to where it is used
};

struct PointerAttributes {
  PointerKind kind = PointerKind::kUnknown;
  int device = 0;  // of kDevice and kManaged: the device it was taken from

  bool operator==(const PointerAttributes&) const = default;
};

// A blocking stream orders itself with the legacy stream; a non-blocking one does not.
enum class StreamKind { kBlocking, kNonBlocking };

class DeviceAPI {
 public:
  virtual ~DeviceAPI() = default;

  virtual std::string_view name() const noexcept = 0;  // "host", "cuda"
  virtual AttributeValue attribute(int id, DeviceAttribute attribute) noexcept = 0;

  // kExists; asked no more of a device that was there.
  bool has_device(int id) noexcept {
    const std::uint64_t seen = seen_.load(std::memory_order_relaxed);
    return (id >= 0 && id < kMostSeen && (seen >> id & 1) != 0) || look_for_device(id);
  }

  // Makes the device current on this thread, for libraries that ask for the current device.
  // kInvalidDevice if it does not exist, where devices can be told apart.
  virtual Code set_device(int id) {
    static_cast<void>(id);
    return Code::kSuccess;
  }
  // Which one is. 0 where no library asks.
  virtual Code current_device(int* id) {
    *id = 0;
    return Code::kSuccess;
  }

  // Data space: memory of the device, aligned to kDataSpaceAlignment. `bytes` is positive.
  virtual Code alloc_data_space(int id, std::size_t bytes, void** data) = 0;
  virtual Code free_data_space(int id, void* data) = 0;
  // As above, for memory that is to be aligned to `alignment` bytes and to hold elements of type
  // `hint`, which a device may use to choose a place. kInvalidValue for zero bytes, and for an
  // alignment that is no power of two or more than the device gives.
  virtual Code alloc_typed_data_space(int id, std::size_t bytes, std::size_t alignment, DType hint,
                                      void** data);
  // Workspace: data space that is needed for a moment only; a device may keep some at hand.
  virtual Code alloc_workspace(int id, std::size_t bytes, void** data) {
    return alloc_data_space(id, bytes, data);
  }
  virtual Code free_workspace(int id, void* data) { return free_data_space(id, data); }
  // Host memory that the device copies from and to without a staging buffer.
  virtual Code alloc_pinned(std::size_t bytes, void** data) = 0;
  virtual Code free_pinned(void* data) = 0;

  // Asks without touching a stream, also while a capture is open. kNotSupported: this kind of
  // device cannot tell.
  virtual Code pointer_attributes(const void* pointer, PointerAttributes* attributes) {
    static_cast<void>(pointer);
    static_cast<void>(attributes);
    return Code::kNotSupported;
  }

  // Enqueues a copy between any two of host, pinned and this kind of device's memory. Host memory
  // that is not pinned may be read until the stream gets there: at each replay, if it is captured.
  virtual Code copy(StreamHandle stream, void* destination, const void* source,
                    std::size_t bytes) = 0;
  // The same from memory of device `source_id` to memory of `destination_id`, on a stream of
  // either.
  virtual Code copy_peer(StreamHandle stream, void* destination, int destination_id,
                         const void* source, int source_id, std::size_t bytes) {
    static_cast<void>(destination_id);
    static_cast<void>(source_id);
    return copy(stream, destination, source, bytes);
  }

  virtual Code create_stream(int id, StreamKind kind, StreamHandle* stream) = 0;
  virtual Code destroy_stream(StreamHandle stream) = 0;
  virtual Code synchronize_stream(StreamHandle stream) = 0;
  virtual Code query_stream(StreamHandle stream) = 0;  // kNotReady while work is pending
  virtual Code synchronize_device(int id) = 0;
  // Work enqueued on `to` from now on waits for what is enqueued on `from`, a stream of device
  // `id`, so far; `to` may be another device's of this kind. Without events the host waits.
  virtual Code sync_stream_from_to(int id, StreamHandle from, StreamHandle to);

  // Null: this kind of device knows no graphs, and everything runs eagerly.
  virtual GraphAPI* graphs() noexcept { return nullptr; }

  // Null: memory of this kind of device cannot be mapped.
  virtual VirtualMemoryAPI* virtual_memory() noexcept { return nullptr; }

 private:
  static constexpr int kMostSeen = 64;

  bool look_for_device(int id) noexcept;

  std::atomic<std::uint64_t> seen_{0};  // a bit per device
};

}  // namespace cgtree
