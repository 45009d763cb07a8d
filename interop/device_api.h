// DeviceAPI: everything cgtree asks of a kind of device; one object serves all devices of that
// kind.
//
// Verbs answer with CUDA's numbers on every device (code.h); out-parameters are written on success
// only. Source of the shape: TVM's DeviceAPI.
//
// Threads: any; see each device for what a stream orders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "interop/code.h"
#include "interop/graph_api.h"
#include "interop/handles.h"
#include "interop/virtual_memory_api.h"

namespace cgtree {

enum class DeviceAttribute {
  kExists,             // int64: 1 if there is a device of this id; never fails
  kName,               // string, e.g. "NVIDIA H200"
  kTotalMemory,        // int64, bytes
  kFreeMemory,         // int64, bytes now
  kMultiProcessors,    // int64
  kComputeCapability,  // string, e.g. "9.0"
  kDriverVersion,      // int64, as CUDA counts: 13000 is 13.0; 0 where there is none
  kDriverRelease,      // string, e.g. "580.159.04"
};

// std::monostate: this device has no such attribute.
using AttributeValue = std::variant<std::monostate, std::int64_t, std::string>;

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

  // Makes the device current on this thread, for libraries that ask for the current device.
  virtual Code set_device(int id) {
    static_cast<void>(id);
    return Code::kSuccess;
  }

  // Data space: memory of the device, aligned to 512 bytes at least (cudaMalloc gives that).
  // `bytes` is positive.
  virtual Code alloc_data_space(int id, std::size_t bytes, void** data) = 0;
  virtual Code free_data_space(int id, void* data) = 0;
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

  // Enqueues a copy between any two of host, pinned and this device's memory.
  virtual Code copy(StreamHandle stream, void* destination, const void* source,
                    std::size_t bytes) = 0;

  virtual Code create_stream(int id, StreamKind kind, StreamHandle* stream) = 0;
  virtual Code destroy_stream(StreamHandle stream) = 0;
  virtual Code synchronize_stream(StreamHandle stream) = 0;
  virtual Code query_stream(StreamHandle stream) = 0;  // kNotReady while work is pending
  virtual Code synchronize_device(int id) = 0;

  // Null: this kind of device knows no graphs, and everything runs eagerly.
  virtual GraphAPI* graphs() noexcept { return nullptr; }

  // Null: memory of this kind of device cannot be mapped.
  virtual VirtualMemoryAPI* virtual_memory() noexcept { return nullptr; }
};

}  // namespace cgtree
