// Defines functions of the CUDA runtime, which the program's own definitions come before, as those
// that count and call the runtime's.
#include "integrations/ggml/cuda_calls.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <atomic>

namespace {

std::atomic<std::int64_t> captures, instantiations, updates, launches;

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  static const auto call = next<decltype(cudaStreamBeginCapture)>("cudaStreamBeginCapture");
  ++captures;
  return call(stream, mode);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                 unsigned long long flags) {
  static const auto call =
      next<cudaError_t(cudaGraphExec_t*, cudaGraph_t, unsigned long long)>("cudaGraphInstantiate");
  ++instantiations;
  return call(made, graph, flags);
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t updated, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* result) {
  static const auto call = next<decltype(cudaGraphExecUpdate)>("cudaGraphExecUpdate");
  ++updates;
  return call(updated, graph, result);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t launched, cudaStream_t stream) {
  static const auto call = next<decltype(cudaGraphLaunch)>("cudaGraphLaunch");
  ++launches;
  return call(launched, stream);
}

}  // extern "C"

decode::CudaCalls decode::cuda_calls() {
  return {captures, instantiations, updates, launches};
}
