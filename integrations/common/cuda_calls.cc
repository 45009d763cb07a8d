// Defines functions of the CUDA runtime that count and then call the runtime's: linked into a
// program, or as a shared library that is preloaded (LD_PRELOAD). Then the counters lie in the file
// that CUDA_CALLS_FILE names, in the order of CudaCalls, and may be read while the program runs.
#include "integrations/common/cuda_calls.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

namespace {

struct Counters {
  std::atomic<std::int64_t> captures, instantiations, updates, launches;
};
static_assert(sizeof(Counters) == sizeof(cgtree_ggml::CudaCalls));

// Returns the counters in the file, which are all zero, or null without one.
Counters* in_file() {
  const char* const name = std::getenv("CUDA_CALLS_FILE");
  if (name == nullptr) return nullptr;
  const int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
  if (file < 0) return nullptr;
  void* mapped = MAP_FAILED;
  if (ftruncate(file, sizeof(Counters)) == 0)
    mapped = mmap(nullptr, sizeof(Counters), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return mapped == MAP_FAILED ? nullptr : static_cast<Counters*>(mapped);
}

Counters& counters() {
  static Counters own;
  static Counters* const used = in_file();
  return used == nullptr ? own : *used;
}

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  static const auto call = next<decltype(cudaStreamBeginCapture)>("cudaStreamBeginCapture");
  ++counters().captures;
  return call(stream, mode);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                 unsigned long long flags) {
  static const auto call =
      next<cudaError_t(cudaGraphExec_t*, cudaGraph_t, unsigned long long)>("cudaGraphInstantiate");
  ++counters().instantiations;
  return call(made, graph, flags);
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t updated, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* result) {
  static const auto call = next<decltype(cudaGraphExecUpdate)>("cudaGraphExecUpdate");
  ++counters().updates;
  return call(updated, graph, result);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t launched, cudaStream_t stream) {
  static const auto call = next<decltype(cudaGraphLaunch)>("cudaGraphLaunch");
  ++counters().launches;
  return call(launched, stream);
}

}  // extern "C"

cgtree_ggml::CudaCalls cgtree_ggml::cuda_calls() {
  const Counters& now = counters();
  return {now.captures, now.instantiations, now.updates, now.launches};
}
