// DeviceAPI: everything that cgtree asks of a kind of device. One object serves all devices of that
// kind.
//
// Functions return CUDA's error numbers on every device (code.h). Out-parameters are written on
// success only. Source of the shape: TVM's DeviceAPI.
//
// Thread safety: any thread; each device says what its streams order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <variant>

#include "interop/device/code.h"
#include "interop/device/graph_api.h"
#include "interop/device/handles.h"

namespace cgtree {

// The numbers up to 15 are TVM's DeviceAttrKind, with its types. The numbers from 1000 on are ours.
enum class DeviceAttribute : int {
  kExists = 0,              // int64: 1 if this program can use a device of this id; never fails
  kMaxThreadsPerBlock = 1,  // int64
  kWarpSize = 2,            // int64, threads
  kMaxSharedMemoryPerBlock = 3,  // int64, bytes
  kComputeCapability = 4,        // string, e.g. "9.0"; TVM: kComputeVersion
  kName = 5,                     // string, e.g. "NVIDIA H200"
  kMaxClockRate = 6,             // int64, kHz
  kMultiProcessors = 7,          // int64
  kMaxThreadDimensions = 8,      // string, e.g. "[1024, 1024, 64]"
  kMaxRegistersPerBlock = 9,     // int64
  kApiVersion = 11,              // int64: the CUDA of the build; 13000 is 13.0
  kDriverVersion = 12,           // int64, in CUDA's format; 0 without a driver
  kL2CacheBytes = 13,            // int64
  kTotalMemory = 14,             // int64, bytes
  kFreeMemory = 15,              // int64, bytes at the time of the call

  kDriverRelease = 1000,             // string, e.g. "580.159.04"
  kSupportsStreamCapture = 1001,     // int64: 1 or 0, as the next five
  kSupportsGraphUpdate = 1002,       // nodes of executable graphs can be changed in place
  kSupportsMemoryPools = 1003,       // allocation in the order of a stream
  kSupportsConditionalNodes = 1004,  // graphs may have conditional nodes
  kSupportsMapping = 1005,           // memory can be mapped into reserved addresses
  kSupportsProgress = 1006,          // events with times, and kernels inserted between nodes
};

// The value is std::monostate if the device does not have the attribute, or the number is not
// listed above.
using AttributeValue = std::variant<std::monostate, std::int64_t, std::string>;

// The minimum alignment of data space in bytes; cudaMalloc guarantees it.
inline constexpr std::size_t kDataSpaceAlignment = 512;

// The kind of memory at an address. Source: cudaMemoryType.
enum class PointerKind {
  kUnknown,  // memory that no device allocated
  kDevice,   // data space
  kPinned,   // host memory that every device reaches
  kManaged,  // memory that moves to its user
};

// The memory that an address lies in.
struct PointerAttributes {
  PointerKind kind = PointerKind::kUnknown;
  int device = 0;  // kDevice and kManaged: the device that allocated it

  bool operator==(const PointerAttributes&) const = default;
};

// A DeviceAllocation is one piece of memory from an allocator of the device: `bytes` from `address`
// on. If no device allocated the memory, nothing is known of it: its kind is kUnknown.
struct DeviceAllocation {
  PointerAttributes attributes;
  std::uintptr_t address = 0;
  std::size_t bytes = 0;
  bool is_static = false;  // a variable of loaded code
};

// PhysicalMemory is memory of a device without an address.
enum class PhysicalMemory : std::uint64_t { kNull = 0 };

// A DeviceAPI serves all devices of one kind.
class DeviceAPI {
 public:
  virtual ~DeviceAPI() = default;

  virtual std::string_view name() const noexcept = 0;  // "host", "cuda"
  // Returns std::monostate for a device that does not exist, except for kExists.
  virtual AttributeValue attribute(int id, DeviceAttribute attribute) noexcept = 0;

  // Returns whether kExists is 1. The answer is cached for a device that exists.
  bool has_device(int id) noexcept {
    const std::uint64_t seen = seen_.load(std::memory_order_relaxed);
    return (id >= 0 && id < kMostSeen && (seen >> id & 1) != 0) || look_for_device(id);
  }

  // Returns whether an attribute that is 1 or 0 is 1.
  bool supports(int id, DeviceAttribute attribute) noexcept;

  // Returns why the device does not exist, for the text of an error. Requires: !has_device(id).
  virtual std::string why_absent(int id);

  // Makes the device current on this thread, for libraries that work on the current device. Returns
  // kInvalidDevice if it does not exist, where the device can tell.
  virtual Code set_device(int id);
  // Writes the id of the current device; 0 on devices that have no current device.
  virtual Code current_device(int* id);

  // Data space is memory of the device, aligned to kDataSpaceAlignment. Requires: bytes > 0.
  virtual Code alloc_data_space(int id, std::size_t bytes, void** data) = 0;
  // Requires: the memory is from alloc_data_space() of this device. May wait for queued work.
  virtual Code free_data_space(int id, void* data) = 0;
  // Workspace is data space for a short time; a device may keep some of it in reserve.
  virtual Code alloc_workspace(int id, std::size_t bytes, void** data) {
    return alloc_data_space(id, bytes, data);
  }
  // Requires: the memory is from alloc_workspace() of this device.
  virtual Code free_workspace(int id, void* data) { return free_data_space(id, data); }
  // Pinned memory is host memory that the device copies from and to without a staging buffer.
  virtual Code alloc_pinned(std::size_t bytes, void** data) = 0;
  // Requires: the memory is from alloc_pinned().
  virtual Code free_pinned(void* data) = 0;

  // Writes the kind of memory of `pointer`. Touches no stream, and may be called while a capture is
  // open. Returns kNotSupported if this kind of device cannot tell.
  virtual Code pointer_attributes(const void* pointer, PointerAttributes* attributes);

  // Writes the allocation that contains `pointer`; for host memory too, if it is pinned or
  // registered. Otherwise as pointer_attributes(), and leaves the calling thread's last error
  // unchanged.
  virtual Code allocation_of(const void* pointer, DeviceAllocation* allocation);

  // The next seven are the driver's (cuMemAddressReserve, cuMemCreate, cuMemMap). They return
  // kNotSupported unless kSupportsMapping is 1. Sizes and addresses are multiples of
  // mapping_granularity(). None of them touches a stream, or is refused while a capture is open.
  virtual Code mapping_granularity(int id, std::size_t* bytes);
  // Reserves addresses without memory.
  virtual Code reserve_addresses(int id, std::size_t bytes, void** address);
  // Requires: the whole reserved range, with nothing mapped in it.
  virtual Code free_addresses(void* address, std::size_t bytes);
  // Makes memory that is mapped nowhere yet.
  virtual Code create_memory(int id, std::size_t bytes, PhysicalMemory* memory);
  // Releases the handle; the memory itself is freed when it is mapped nowhere.
  virtual Code release_memory(PhysicalMemory memory);
  // Maps all of `memory`, which has `bytes` bytes, for reading and writing by device `id` and by
  // devices that reach its memory.
  virtual Code map_memory(int id, void* address, std::size_t bytes, PhysicalMemory memory);
  // Unmaps whole mappings, and leaves a range without mappings unchanged. Does not wait: the work
  // that uses the addresses must have ended.
  virtual Code unmap_memory(void* address, std::size_t bytes);

  // Enqueues a copy between any two of host memory, pinned memory and memory of this kind of
  // device. Pageable host memory may be read only when the stream reaches the copy; a captured copy
  // reads it at each replay.
  virtual Code copy(StreamHandle stream, void* destination, const void* source,
                    std::size_t bytes) = 0;
  // Enqueues a copy from memory of device `source_id` to memory of device `destination_id`, on a
  // stream of either device.
  virtual Code copy_peer(StreamHandle stream, void* destination, int destination_id,
                         const void* source, int source_id, std::size_t bytes);

  // Makes a stream of device `id`, which need not be current.
  virtual Code create_stream(int id, StreamKind kind, StreamHandle* stream) = 0;
  // Does not wait: queued work still runs.
  virtual Code destroy_stream(StreamHandle stream) = 0;
  // Blocks the host until all work enqueued so far is done, and returns the error of that work.
  virtual Code synchronize_stream(StreamHandle stream) = 0;
  virtual Code query_stream(StreamHandle stream) = 0;  // kNotReady while work is pending
  // Writes the number of a stream, of device `id` if it is the per-thread one. No other stream of
  // the process has that number, not even a later one with the same handle. A query of a stream
  // that captures returns 900 and invalidates the capture; a query of the legacy stream while a
  // blocking stream captures returns 906 and does the same. Returns kNotSupported if this kind of
  // device has no numbers. Source: cudaStreamGetId; measured, driver 580.
  virtual Code stream_number(int id, StreamHandle stream, std::uint64_t* number);
  // Writes the device of a stream that was created. Results as for stream_number().
  virtual Code stream_device(StreamHandle stream, int* id);
  // Writes the part of the device's processors that work on a created stream may use: 0 for all of
  // them, otherwise a number that all streams of one part share. Results as for stream_number(). A
  // captured kernel keeps the part of the stream on which it was captured, whichever stream its
  // graph is launched on. Source: CUDA green contexts; measured, driver 580.
  virtual Code stream_partition(StreamHandle stream, std::uint64_t* partition);
  // Blocks the host until all streams of a device are idle.
  virtual Code synchronize_device(int id) = 0;
  // Makes work enqueued on `to` from now on wait for work enqueued on `from`, a stream of device
  // `id`. `to` may belong to another device of this kind. A device without events blocks the host
  // instead.
  virtual Code sync_stream_from_to(int id, StreamHandle from, StreamHandle to);

  // Returns null if this kind of device has no graphs; everything then runs eagerly.
  virtual GraphAPI* graphs() noexcept { return nullptr; }

  // Returns the object that all contexts on devices of this kind share; the first calls make().
  std::shared_ptr<void> shared(std::shared_ptr<void> (*make)()) {
    std::call_once(is_shared_, [&] { shared_ = make(); });
    return shared_;
  }

 private:
  static constexpr int kMostSeen = 64;

  bool look_for_device(int id) noexcept;

  std::atomic<std::uint64_t> seen_{0};  // one bit per device
  std::once_flag is_shared_;
  std::shared_ptr<void> shared_;
};

// A DeviceScope makes a device current on this thread, and restores the previous one at its end.
// For work that a library launches on the current device, whichever device its stream belongs to.
class DeviceScope {
 public:
  // Throws DeviceError.
  DeviceScope(DeviceAPI& api, int id) : api_(api) {
    check(api.current_device(&before_), "get the current device");
    if (before_ == id) return;
    check(api.set_device(id), "set the device");
    is_changed_ = true;
  }
  ~DeviceScope() {
    if (is_changed_) static_cast<void>(api_.set_device(before_));
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  DeviceAPI& api_;
  int before_ = 0;
  bool is_changed_ = false;
};

}  // namespace cgtree
