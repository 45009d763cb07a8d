// Devices, memory, copies and streams over the CUDA runtime.
#include "interop/device/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <iterator>

#include "interop/device/cuda/cuda_attributes.h"
#include "interop/device/cuda/cuda_graphs.h"
#include "interop/device/cuda/cuda_virtual_memory.h"
#include "interop/device/cuda/current_device.h"
#include "interop/device/cuda/driver.h"
#include "interop/device/cuda/runtime.h"

namespace cgtree {
namespace cuda {
namespace {

// False where the driver does not answer: a thread may have no context yet.
bool ask_driver(const void* pointer, PointerAttributes* attributes) noexcept {
  const PointerDriver* const driver = pointer_driver();
  if (driver == nullptr) return false;
  int type = 0;
  int device = 0;
  int is_managed = 0;
  CUpointer_attribute questions[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                     CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                     CU_POINTER_ATTRIBUTE_IS_MANAGED};
  void* answers[] = {&type, &device, &is_managed};
  if (driver->get_attributes(std::size(questions), questions, answers,
                             reinterpret_cast<CUdeviceptr>(pointer)) != CUDA_SUCCESS) {
    return false;
  }
  *attributes = {PointerKind::kUnknown, std::max(device, 0)};
  if (type == CU_MEMORYTYPE_HOST) attributes->kind = PointerKind::kPinned;
  if (type == CU_MEMORYTYPE_DEVICE) attributes->kind = PointerKind::kDevice;
  if (is_managed != 0) attributes->kind = PointerKind::kManaged;
  return true;
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

class CudaDevice final : public DeviceAPI {
 public:
  std::string_view name() const noexcept override { return "cuda"; }

  AttributeValue attribute(int id, DeviceAttribute attribute) noexcept override {
    return cuda::attribute(id, attribute);
  }

  Code set_device(int id) override { return to_code(cudaSetDevice(id)); }
  // Asked at each patch of a graph: for nothing where there is one GPU.
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
    // At process exit the runtime goes first and takes the memory with it.
    return error == cudaErrorCudartUnloading ? Code::kSuccess : to_code(error);
  }

  Code alloc_pinned(std::size_t bytes, void** data) override {
    return to_code(cudaHostAlloc(data, bytes, cudaHostAllocPortable));
  }
  Code free_pinned(void* data) override { return to_code(cudaFreeHost(data)); }

  Code pointer_attributes(const void* pointer, PointerAttributes* attributes) override {
    if (ask_driver(pointer, attributes)) return Code::kSuccess;
    cudaPointerAttributes found = {};
    const Code code = to_code(cudaPointerGetAttributes(&found, pointer));
    if (!ok(code)) return code;
    *attributes = {kind_of(found.type), found.device};
    return code;
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
  Code synchronize_device(int id) override {
    const CurrentDevice current(id);
    return ok(current.code()) ? to_code(cudaDeviceSynchronize()) : current.code();
  }

  // An event is of the device that is current when it is made, and must be of its stream's.
  Code sync_stream_from_to(int id, StreamHandle from, StreamHandle to) override {
    const CurrentDevice current(id);
    return ok(current.code()) ? DeviceAPI::sync_stream_from_to(id, from, to) : current.code();
  }

  GraphAPI* graphs() noexcept override { return &graphs_; }
  VirtualMemoryAPI* virtual_memory() noexcept override { return &virtual_memory_; }

 private:
  CudaGraphs graphs_;
  CudaVirtualMemory virtual_memory_;
};

}  // namespace
}  // namespace cuda

DeviceAPI& cuda_device_api() noexcept {
  static DeviceAPI* const device = new cuda::CudaDevice;  // outlives every static that uses it
  return *device;
}

}  // namespace cgtree
