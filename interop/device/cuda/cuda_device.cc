// Attributes, memory, copies and streams over the CUDA runtime; virtual memory over the driver.
//
// Attributes are queried one at a time: all properties at once take the runtime milliseconds.
#include "interop/device/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "interop/device/cuda/architectures.h"
#include "interop/device/cuda/driver.h"
#include "interop/device/cuda/runtime.h"
#include "interop/device/cuda/versions.h"
#include "interop/device/device_api.h"

namespace cgtree {
namespace cuda {
namespace {

// The architectures that the build compiles the library's kernels for. Empty if an engine's own
// build chose them: CUDA then refuses the first launch of a kernel without code for the GPU.
constexpr const char* kArchitectures = CGTREE_CUDA_ARCHS;

// Returns whether a query succeeded. A failed query is not an error of the thread.
bool succeeded(cudaError_t error) noexcept {
  if (error != cudaSuccess) (void)cudaGetLastError();
  return error == cudaSuccess;
}

AttributeValue number(int id, cudaDeviceAttr attribute) noexcept {
  int value = 0;
  if (!succeeded(cudaDeviceGetAttribute(&value, attribute, id))) return std::monostate();
  return std::int64_t{value};
}

// Returns the runtime's attribute that has the same value as ours, if there is one.
std::optional<cudaDeviceAttr> number_of(DeviceAttribute attribute) noexcept {
  switch (attribute) {
    case DeviceAttribute::kMaxThreadsPerBlock:
      return cudaDevAttrMaxThreadsPerBlock;
    case DeviceAttribute::kWarpSize:
      return cudaDevAttrWarpSize;
    case DeviceAttribute::kMaxSharedMemoryPerBlock:
      return cudaDevAttrMaxSharedMemoryPerBlock;
    case DeviceAttribute::kMaxClockRate:
      return cudaDevAttrClockRate;
    case DeviceAttribute::kMultiProcessors:
      return cudaDevAttrMultiProcessorCount;
    case DeviceAttribute::kMaxRegistersPerBlock:
      return cudaDevAttrMaxRegistersPerBlock;
    case DeviceAttribute::kL2CacheBytes:
      return cudaDevAttrL2CacheSize;
    case DeviceAttribute::kSupportsMemoryPools:
      return cudaDevAttrMemoryPoolsSupported;
    default:
      return std::nullopt;
  }
}

// Returns nothing if a GPU does not report it.
std::optional<ComputeCapability> capability_of(int id) noexcept {
  ComputeCapability found;
  if (!succeeded(cudaDeviceGetAttribute(&found.major, cudaDevAttrComputeCapabilityMajor, id)) ||
      !succeeded(cudaDeviceGetAttribute(&found.minor, cudaDevAttrComputeCapabilityMinor, id))) {
    return std::nullopt;
  }
  return found;
}

AttributeValue compute_capability(int id) {
  const std::optional<ComputeCapability> gpu = capability_of(id);
  return gpu ? AttributeValue(to_string(*gpu)) : AttributeValue();
}

AttributeValue thread_dimensions(int id) {
  std::string text = "[";
  for (const cudaDeviceAttr dimension :
       {cudaDevAttrMaxBlockDimX, cudaDevAttrMaxBlockDimY, cudaDevAttrMaxBlockDimZ}) {
    int size = 0;
    if (!succeeded(cudaDeviceGetAttribute(&size, dimension, id))) return std::monostate();
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  }
  return text + "]";
}

AttributeValue free_memory(int id) {
  const CurrentDevice current(id);
  std::size_t free = 0;
  std::size_t total = 0;
  if (!ok(current.code()) || !succeeded(cudaMemGetInfo(&free, &total))) return std::monostate();
  return static_cast<std::int64_t>(free);
}

AttributeValue property(int id, DeviceAttribute attribute) {
  cudaDeviceProp properties = {};
  if (!succeeded(cudaGetDeviceProperties(&properties, id))) return std::monostate();
  if (attribute == DeviceAttribute::kName) return std::string(properties.name);
  return static_cast<std::int64_t>(properties.totalGlobalMem);
}

// CUDA reports only which version of CUDA the driver supports; the kernel module reports its
// release.
AttributeValue driver_release() {
  std::ifstream file("/sys/module/nvidia/version");
  std::string release;
  return file >> release ? AttributeValue(release) : AttributeValue();
}

std::int64_t driver_version() noexcept {
  int version = 0;
  (void)succeeded(cudaDriverGetVersion(&version));
  return version;
}

AttributeValue attribute_of_existing(int id, DeviceAttribute attribute) {
  if (const auto found = number_of(attribute)) return number(id, *found);
  switch (attribute) {
    case DeviceAttribute::kComputeCapability:
      return compute_capability(id);
    case DeviceAttribute::kMaxThreadDimensions:
      return thread_dimensions(id);
    case DeviceAttribute::kName:
    case DeviceAttribute::kTotalMemory:
      return property(id, attribute);
    case DeviceAttribute::kFreeMemory:
      return free_memory(id);
    case DeviceAttribute::kDriverRelease:
      return driver_release();
    case DeviceAttribute::kSupportsStreamCapture:
    case DeviceAttribute::kSupportsGraphUpdate:
    case DeviceAttribute::kSupportsMapping:
    case DeviceAttribute::kSupportsProgress:
      return std::int64_t{1};
    case DeviceAttribute::kSupportsConditionalNodes:
      // CUDA 12.4 introduced them, 12.8 a second body and kSwitch.
      return std::int64_t{CUDART_VERSION >= 12080 && driver_version() >= 12080};
    default:
      return std::monostate();
  }
}

// A driver accepts PTX of toolkits that are not newer. Source: CUDA Compatibility, "PTX".
bool runs_kernels(int id) noexcept {
  const std::optional<ComputeCapability> gpu = capability_of(id);
  if (*kArchitectures == '\0') return gpu.has_value();
  const KernelCode code = gpu ? kernel_code(kArchitectures, *gpu) : KernelCode::kNone;
  return code == KernelCode::kMachine ||
         (code == KernelCode::kPtx && driver_version() >= CUDART_VERSION);
}

std::string version_text(std::int64_t version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string why_absent(int id) {
  const std::string driver =
      driver_version() == 0 ? "no NVIDIA driver is there"
                            : "the driver supports CUDA up to " + version_text(driver_version());
  const std::string built = "this program was built with CUDA " + version_text(CUDART_VERSION);
  int count = 0;
  switch (const cudaError_t error = cudaGetDeviceCount(&count); error) {
    case cudaSuccess:
      break;
    case cudaErrorInsufficientDriver:
      (void)cudaGetLastError();
      return driver + ", and " + built + (driver_version() == 0 ? "" : ": update the driver");
    case cudaErrorNoDevice:
      (void)cudaGetLastError();
      return "the driver shows no GPU: see CUDA_VISIBLE_DEVICES";
    default:
      (void)cudaGetLastError();
      return std::string("CUDA cannot be used: ") + cudaGetErrorString(error);
  }
  if (id < 0 || id >= count) return "GPUs have the numbers below " + std::to_string(count);
  return why_no_kernels(kArchitectures, capability_of(id), driver + ", and " + built);
}

AttributeValue attribute(int id, DeviceAttribute attribute) noexcept {
  int count = 0;
  const bool exists =
      succeeded(cudaGetDeviceCount(&count)) && id >= 0 && id < count && runs_kernels(id);
  if (attribute == DeviceAttribute::kExists) return std::int64_t{exists};
  if (attribute == DeviceAttribute::kDriverVersion) return driver_version();
  if (attribute == DeviceAttribute::kApiVersion) return std::int64_t{CUDART_VERSION};
  return exists ? attribute_of_existing(id, attribute) : std::monostate();
}

// The driver's description of an address.
struct PointerAnswers {
  int type = 0;
  int device = 0;
  int is_managed = 0;
  CUdeviceptr address = 0;
  std::size_t bytes = 0;

  PointerAttributes attributes() const noexcept {
    PointerAttributes attributes = {PointerKind::kUnknown, std::max(device, 0)};
    if (type == CU_MEMORYTYPE_HOST) attributes.kind = PointerKind::kPinned;
    if (type == CU_MEMORYTYPE_DEVICE) attributes.kind = PointerKind::kDevice;
    if (is_managed != 0) attributes.kind = PointerKind::kManaged;
    return attributes;
  }
};

// Makes the first `count` queries. Returns false if the driver fails: a thread may lack a context.
bool query_driver(const void* pointer, unsigned count, PointerAnswers* answers) noexcept {
  const PointerDriver* const driver = pointer_driver();
  if (driver == nullptr) return false;
  CUpointer_attribute queries[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
      CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
      CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* results[] = {&answers->type, &answers->device, &answers->is_managed, &answers->address,
                     &answers->bytes};
  return driver->get_attributes(count, queries, results, reinterpret_cast<CUdeviceptr>(pointer)) ==
         CUDA_SUCCESS;
}

// Source: measured, driver 580. Variables of modules belong to a context, as memory from cuMemAlloc
// does, and cannot be shared with other processes or devices in any way.
bool is_module_variable(const void* pointer) noexcept {
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr;
  unsigned is_shared_by_ipc = 0;
  unsigned is_shared_by_rdma = 0;
  CUpointer_attribute queries[] = {CU_POINTER_ATTRIBUTE_CONTEXT,
                                   CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
                                   CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                   CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE};
  void* results[] = {&context, &pool, &is_shared_by_ipc, &is_shared_by_rdma};
  const CUresult result = pointer_driver()->get_attributes(std::size(queries), queries, results,
                                                           reinterpret_cast<CUdeviceptr>(pointer));
  return result == CUDA_SUCCESS && context != nullptr && pool == nullptr && is_shared_by_ipc == 0 &&
         is_shared_by_rdma == 0;
}

PointerKind kind_of(cudaMemoryType type) noexcept {
  switch (type) {
    case cudaMemoryTypeHost:
      return PointerKind::kPinned;
    case cudaMemoryTypeDevice:
      return PointerKind::kDevice;
    case cudaMemoryTypeManaged:
      return PointerKind::kManaged;
    default:
      return PointerKind::kUnknown;
  }
}

CUmemAllocationProp memory_of(int id) noexcept {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = id};
  return properties;
}

CUdeviceptr to_native(void* address) noexcept {
  return reinterpret_cast<CUdeviceptr>(address);
}

// A Prepared makes the device's context current, which every driver function requires.
class Prepared {
 public:
  explicit Prepared(int id) noexcept : current_(id) {}
  Code code() const noexcept {
    return driver() == nullptr ? Code::kInsufficientDriver : current_.code();
  }

 private:
  CurrentDevice current_;
};

// The device itself, and devices that reach its memory, as for memory from cudaMalloc: kernels of
// NCCL write to the memory of another rank of this process.
std::vector<CUmemAccessDesc> access_to(int id) {
  const auto access_by = [](int device) {
    return CUmemAccessDesc{.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                           .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  };
  std::vector<CUmemAccessDesc> access = {access_by(id)};
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) devices = 0;
  for (int other = 0; other < devices; ++other) {
    int reaches = 0;
    if (other == id || cudaDeviceCanAccessPeer(&reaches, other, id) != cudaSuccess) continue;
    if (reaches != 0) access.push_back(access_by(other));
  }
  return access;
}

class CudaDevice final : public DeviceAPI {
 public:
  std::string_view name() const noexcept override { return "cuda"; }

  AttributeValue attribute(int id, DeviceAttribute attribute) noexcept override {
    return cuda::attribute(id, attribute);
  }
  std::string why_absent(int id) override { return cuda::why_absent(id); }

  Code set_device(int id) override { return to_code(cudaSetDevice(id)); }
  // Each patch of a graph calls this, so it must be cheap on a machine with one GPU.
  Code current_device(int* id) override {
    static const bool is_alone = [] {
      int count = 0;
      return cudaGetDeviceCount(&count) == cudaSuccess && count == 1;
    }();
    *id = 0;
    return is_alone ? Code::kSuccess : to_code(cudaGetDevice(id));
  }

  Code alloc_data_space(int id, std::size_t bytes, void** data) override {
    const CurrentDevice current(id);
    return ok(current.code()) ? to_code(cudaMalloc(data, bytes)) : current.code();
  }

  Code free_data_space(int id, void* data) override {
    const CurrentDevice current(id);
    const Code code = current.code();
    if (!ok(code)) return code == cuda::to_code(cudaErrorCudartUnloading) ? Code::kSuccess : code;
    const cudaError_t error = cudaFree(data);
    // At process exit the runtime is unloaded first and frees the memory.
    return error == cudaErrorCudartUnloading ? Code::kSuccess : to_code(error);
  }

  Code mapping_granularity(int id, std::size_t* bytes) override {
    const Prepared prepared(id);
    if (!ok(prepared.code())) return prepared.code();
    const CUmemAllocationProp properties = memory_of(id);
    // The recommended granularity: large mappings with the minimal one cost more than they need to.
    return to_code(driver()->mem_get_allocation_granularity(bytes, &properties,
                                                            CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  }
  Code reserve_addresses(int id, std::size_t bytes, void** address) override {
    const Prepared prepared(id);
    if (!ok(prepared.code())) return prepared.code();
    CUdeviceptr reserved = 0;
    const Code code = to_code(driver()->mem_address_reserve(&reserved, bytes, 0, 0, 0));
    if (ok(code)) *address = reinterpret_cast<void*>(reserved);
    return code;
  }
  Code free_addresses(void* address, std::size_t bytes) override {
    if (driver() == nullptr) return Code::kInsufficientDriver;
    return to_code(driver()->mem_address_free(to_native(address), bytes));
  }
  Code create_memory(int id, std::size_t bytes, PhysicalMemory* memory) override {
    const Prepared prepared(id);
    if (!ok(prepared.code())) return prepared.code();
    const CUmemAllocationProp properties = memory_of(id);
    CUmemGenericAllocationHandle created = 0;
    const Code code = to_code(driver()->mem_create(&created, bytes, &properties, 0));
    if (ok(code)) *memory = static_cast<PhysicalMemory>(created);
    return code;
  }
  Code release_memory(PhysicalMemory memory) override {
    if (driver() == nullptr) return Code::kInsufficientDriver;
    return to_code(driver()->mem_release(static_cast<CUmemGenericAllocationHandle>(memory)));
  }
  Code map_memory(int id, void* address, std::size_t bytes, PhysicalMemory memory) override {
    const Prepared prepared(id);
    if (!ok(prepared.code())) return prepared.code();
    const CUdeviceptr begin = to_native(address);
    const auto handle = static_cast<CUmemGenericAllocationHandle>(memory);
    const Code mapped = to_code(driver()->mem_map(begin, bytes, /*offset=*/0, handle, 0));
    if (!ok(mapped)) return mapped;
    const std::vector<CUmemAccessDesc> access = access_to(id);
    const Code allowed =
        to_code(driver()->mem_set_access(begin, bytes, access.data(), access.size()));
    if (!ok(allowed)) (void)driver()->mem_unmap(begin, bytes);
    return allowed;
  }
  Code unmap_memory(void* address, std::size_t bytes) override {
    if (driver() == nullptr) return Code::kInsufficientDriver;
    return to_code(driver()->mem_unmap(to_native(address), bytes));
  }

  Code alloc_pinned(std::size_t bytes, void** data) override {
    return to_code(cudaHostAlloc(data, bytes, cudaHostAllocPortable));
  }
  Code free_pinned(void* data) override { return to_code(cudaFreeHost(data)); }

  Code pointer_attributes(const void* pointer, PointerAttributes* attributes) override {
    PointerAnswers answers;
    if (query_driver(pointer, /*count=*/3, &answers)) {
      *attributes = answers.attributes();
      return Code::kSuccess;
    }
    cudaPointerAttributes found = {};
    const Code code = to_code(cudaPointerGetAttributes(&found, pointer));
    if (!ok(code)) return code;
    *attributes = {kind_of(found.type), found.device};
    return code;
  }

  // Only the runtime makes a context if the thread has none yet.
  Code allocation_of(const void* pointer, DeviceAllocation* allocation) override {
    PointerAnswers answers;
    if (!query_driver(pointer, /*count=*/5, &answers)) {
      if (pointer_driver() == nullptr) return Code::kInsufficientDriver;
      int current = 0;
      cudaError_t made = cudaGetDevice(&current);
      if (made == cudaSuccess) made = cudaSetDevice(current);
      if (made != cudaSuccess) return to_code(made);
      answers = {};
      if (!query_driver(pointer, /*count=*/5, &answers)) return Code::kInvalidValue;
    }
    *allocation = {answers.attributes(), static_cast<std::uintptr_t>(answers.address),
                   answers.bytes};
    if (allocation->attributes.kind == PointerKind::kUnknown) *allocation = {};
    allocation->is_static =
        allocation->attributes.kind == PointerKind::kDevice && is_module_variable(pointer);
    return Code::kSuccess;
  }

  Code copy(StreamHandle stream, void* destination, const void* source,
            std::size_t bytes) override {
    return to_code(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, native(stream)));
  }

  Code copy_peer(StreamHandle stream, void* destination, int destination_id, const void* source,
                 int source_id, std::size_t bytes) override {
    return to_code(
        cudaMemcpyPeerAsync(destination, destination_id, source, source_id, bytes, native(stream)));
  }

  Code create_stream(int id, StreamKind kind, StreamHandle* stream) override {
    const CurrentDevice current(id);
    if (!ok(current.code())) return current.code();
    cudaStream_t created = nullptr;
    const unsigned flags =
        kind == StreamKind::kBlocking ? cudaStreamDefault : cudaStreamNonBlocking;
    const Code result = to_code(cudaStreamCreateWithFlags(&created, flags));
    if (ok(result)) *stream = to_handle<StreamHandle>(created);
    return result;
  }
  Code destroy_stream(StreamHandle stream) override {
    const cudaError_t error = cudaStreamDestroy(native(stream));
    return error == cudaErrorCudartUnloading ? Code::kSuccess : to_code(error);
  }
  Code synchronize_stream(StreamHandle stream) override {
    return to_code(cudaStreamSynchronize(native(stream)));
  }
  Code query_stream(StreamHandle stream) override {
    return to_code(cudaStreamQuery(native(stream)));
  }
  Code stream_number(int id, StreamHandle stream, std::uint64_t* number) override {
    const CurrentDevice current(id);
    if (!ok(current.code())) return current.code();
    unsigned long long found = 0;
    const Code code = to_code(cudaStreamGetId(native(stream), &found));
    if (ok(code)) *number = found;
    return code;
  }
  Code stream_device(StreamHandle stream, int* id) override {
    return to_code(cuda::stream_device(native(stream), id));
  }
  // Drivers before 12.4 have no green contexts.
  Code stream_partition(StreamHandle stream, std::uint64_t* partition) override {
    void* context = nullptr;
    if (const cuda::PartitionDriver* const driver = cuda::partition_driver()) {
      const Code code = cuda::to_code(driver->get_green_context(native(stream), &context));
      if (!ok(code)) return code;
    }
    *partition = reinterpret_cast<std::uintptr_t>(context);
    return Code::kSuccess;
  }
  Code synchronize_device(int id) override {
    const CurrentDevice current(id);
    return ok(current.code()) ? to_code(cudaDeviceSynchronize()) : current.code();
  }

  // An event belongs to the device that is current when it is made, which must be its stream's; and
  // the default streams are those of the current device. Events are reused, because making and
  // destroying one costs as much as recording it and waiting. An event from before a reset of the
  // device is invalid: a new one is then made.
  Code sync_stream_from_to(int id, StreamHandle from, StreamHandle to) override {
    const CurrentDevice current(id);
    if (!ok(current.code())) return current.code();
    if (const EventHandle idle = take_idle(id); idle != EventHandle::kNull) {
      const Code code = sync(id, from, to, idle);
      if (code != Code::kInvalidResourceHandle) return code;
      (void)cudaGetLastError();  // not an error of the thread
    }
    EventHandle event = EventHandle::kNull;
    const Code code = graphs_.create_event(&event);
    return ok(code) ? sync(id, from, to, event) : code;
  }

  GraphAPI* graphs() noexcept override { return &graphs_; }

 private:
  struct IdleEvent {
    int device;
    EventHandle event;
  };
  static constexpr std::size_t kMostIdle = 64;

  // Returns an event of the device, or kNull.
  EventHandle take_idle(int id) noexcept {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = idle_.size(); i-- > 0;) {
      if (idle_[i].device != id) continue;
      const EventHandle event = idle_[i].event;
      idle_[i] = idle_.back();
      idle_.pop_back();
      return event;
    }
    return EventHandle::kNull;
  }
  // The wait keeps its own state of the event, which is idle from then on.
  Code sync(int id, StreamHandle from, StreamHandle to, EventHandle event) {
    Code code = graphs_.record_event(event, from);
    if (ok(code)) code = graphs_.wait_event(to, event);
    if (ok(code)) {
      const std::lock_guard lock(mutex_);
      if (idle_.size() < kMostIdle) {
        idle_.push_back({id, event});
        return code;
      }
    }
    const Code destroyed = graphs_.destroy_event(event);
    return ok(code) ? destroyed : code;
  }

  CudaGraphs graphs_;
  Mutex<LockRank::kLeaf> mutex_;
  std::vector<IdleEvent> idle_;  // guarded by mutex_
};

}  // namespace
}  // namespace cuda

DeviceAPI& cuda_device_api() noexcept {
  static DeviceAPI* const device = new cuda::CudaDevice;  // outlives every static that uses it
  return *device;
}

}  // namespace cgtree
