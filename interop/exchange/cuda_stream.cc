// Finds the device of a stream of CUDA.
#include "interop/exchange/cuda_stream.h"

#include <cstdint>

#include "base/error.h"
#include "base/format.h"
#include "interop/device/code.h"
#include "interop/device/device_api.h"

namespace cgtree {

StreamRef stream_of(CUstream_st* stream) {
  const auto handle = static_cast<StreamHandle>(reinterpret_cast<std::uintptr_t>(stream));
  DeviceAPI& api = device_api(Device::cuda());
  const bool is_default = handle <= StreamHandle::kPerThread;
  int id = 0;
  check(is_default ? api.current_device(&id) : api.stream_device(handle, &id),
        "find the device of a stream");
  return {api, Device::cuda(id), handle};
}

CUstream_st* cuda_stream(StreamRef stream) {
  if (!stream || stream.device().type != DeviceType::kCuda) {
    throw InvalidArgument(str_format(
        "cuda_stream() of {}: pass a stream of a GPU, such as current_stream() in a step of a "
        "context on cuda",
        stream ? str_format("a stream of {}", to_string(stream.device())) : "a null stream"));
  }
  return static_cast<CUstream_st*>(stream.native());
}

}  // namespace cgtree
