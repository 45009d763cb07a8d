// Asks the CUDA runtime, one attribute at a time: all properties at once take it milliseconds.
#include "interop/device/cuda/cuda_attributes.h"

#include <cuda_runtime_api.h>

#include <fstream>
#include <optional>
#include <string>

#include "interop/device/cuda/current_device.h"

namespace cgtree::cuda {
namespace {

// What is not there is an answer, and no error of the thread.
bool ask(cudaError_t error) noexcept {
  if (error != cudaSuccess) (void)cudaGetLastError();
  return error == cudaSuccess;
}

AttributeValue number(int id, cudaDeviceAttr attribute) noexcept {
  int value = 0;
  if (!ask(cudaDeviceGetAttribute(&value, attribute, id))) return std::monostate();
  return std::int64_t{value};
}

// The runtime's own attributes that answer one of ours with a number.
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

AttributeValue compute_capability(int id) {
  int major = 0;
  int minor = 0;
  if (!ask(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, id)) ||
      !ask(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, id))) {
    return std::monostate();
  }
  return std::to_string(major) + "." + std::to_string(minor);
}

AttributeValue thread_dimensions(int id) {
  std::string text = "[";
  for (const cudaDeviceAttr dimension :
       {cudaDevAttrMaxBlockDimX, cudaDevAttrMaxBlockDimY, cudaDevAttrMaxBlockDimZ}) {
    int size = 0;
    if (!ask(cudaDeviceGetAttribute(&size, dimension, id))) return std::monostate();
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  }
  return text + "]";
}

AttributeValue free_memory(int id) {
  const CurrentDevice current(id);
  std::size_t free = 0;
  std::size_t total = 0;
  if (!ok(current.code()) || !ask(cudaMemGetInfo(&free, &total))) return std::monostate();
  return static_cast<std::int64_t>(free);
}

AttributeValue property(int id, DeviceAttribute attribute) {
  cudaDeviceProp properties = {};
  if (!ask(cudaGetDeviceProperties(&properties, id))) return std::monostate();
  if (attribute == DeviceAttribute::kName) return std::string(properties.name);
  return static_cast<std::int64_t>(properties.totalGlobalMem);
}

// CUDA tells only which CUDA the driver speaks; the kernel module tells its own release.
AttributeValue driver_release() {
  std::ifstream file("/sys/module/nvidia/version");
  std::string release;
  return file >> release ? AttributeValue(release) : AttributeValue();
}

std::int64_t driver_version() noexcept {
  int version = 0;
  (void)ask(cudaDriverGetVersion(&version));
  return version;
}

AttributeValue attribute_of_existing(int id, DeviceAttribute attribute) {
  if (const auto asked = number_of(attribute)) return number(id, *asked);
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
      return std::int64_t{1};
    case DeviceAttribute::kSupportsConditionalNodes:
      return std::int64_t{driver_version() >= 12040};  // CUDA 12.4 brought them
    default:
      return std::monostate();
  }
}

}  // namespace

AttributeValue attribute(int id, DeviceAttribute attribute) noexcept {
  int count = 0;
  const bool exists = ask(cudaGetDeviceCount(&count)) && id >= 0 && id < count;
  if (attribute == DeviceAttribute::kExists) return std::int64_t{exists};
  if (attribute == DeviceAttribute::kDriverVersion) return driver_version();
  if (attribute == DeviceAttribute::kApiVersion) return std::int64_t{CUDART_VERSION};
  return exists ? attribute_of_existing(id, attribute) : std::monostate();
}

}  // namespace cgtree::cuda
