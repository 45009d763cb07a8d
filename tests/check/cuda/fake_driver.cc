// A libcuda.so.1 whose calls succeed and do nothing, but a copy of a batch: it returns the size of
// the batch.
#define __CUDA_API_VERSION_INTERNAL  // declares all versions of functions
#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace {

template <typename Handle>
Handle handle(std::uintptr_t value) {
  return reinterpret_cast<Handle>(value);
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned int) {
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode) {
  return CUDA_SUCCESS;
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr*, CUdeviceptr*, std::size_t*, std::size_t count,
                               CUmemcpyAttributes*, std::size_t*, std::size_t, CUstream) {
  return static_cast<CUresult>(count);
}

CUresult cuStreamEndCapture(CUstream, CUgraph* graph) {
  *graph = handle<CUgraph>(0x100);
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph, unsigned long long) {
  *exec = handle<CUgraphExec>(0x300);
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec, CUstream) {
  return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** address, int, cuuint64_t,
                             CUdriverProcAddressQueryResult*) {
  const std::pair<const char*, void*> functions[] = {
      {"cuInit", reinterpret_cast<void*>(&cuInit)},
      {"cuStreamBeginCapture", reinterpret_cast<void*>(&cuStreamBeginCapture_v2)},
      {"cuMemcpyBatchAsync", reinterpret_cast<void*>(&cuMemcpyBatchAsync_v2)},
      {"cuStreamEndCapture", reinterpret_cast<void*>(&cuStreamEndCapture)},
      {"cuGraphInstantiateWithFlags", reinterpret_cast<void*>(&cuGraphInstantiateWithFlags)},
      {"cuGraphLaunch", reinterpret_cast<void*>(&cuGraphLaunch)},
  };
  for (const auto& [name, function] : functions) {
    if (std::strcmp(name, symbol) != 0) continue;
    *address = function;
    return CUDA_SUCCESS;
  }
  *address = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}
}
