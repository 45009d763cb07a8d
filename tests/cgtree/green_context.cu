// Makes green contexts with driver functions that are looked up at run time.
#include "tests/cgtree/green_context.h"

#include <cuda.h>
#include <cuda_runtime.h>

namespace cgtree::testing {
namespace {

__global__ void clear(std::uint32_t* words) {
  words[threadIdx.x] = 0;
}

// Each block waits for a while, so that every SM of the stream gets blocks.
__global__ void note(std::uint32_t* words) {
  unsigned sm = 0;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  if (threadIdx.x == 0) atomicOr(&words[sm / 32], 1u << (sm % 32));
  constexpr long long kCycles = 20000;
  const long long begin = clock64();
  while (clock64() - begin < kCycles) {
  }
}

template <typename Function>
Function entry(const char* name) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  if (cudaGetDriverEntryPointByVersion(name, &address, CUDART_VERSION, cudaEnableDefault, &found) !=
      cudaSuccess)
    return nullptr;
#endif
  return found == cudaDriverEntryPointSuccess ? reinterpret_cast<Function>(address) : nullptr;
}

}  // namespace

#if CUDART_VERSION >= 12050

std::unique_ptr<GreenContext> GreenContext::make(unsigned sms) {
  if (cudaFree(nullptr) != cudaSuccess) return nullptr;
  const auto get = entry<decltype(&cuDeviceGetDevResource)>("cuDeviceGetDevResource");
  const auto split = entry<decltype(&cuDevSmResourceSplitByCount)>("cuDevSmResourceSplitByCount");
  const auto describe = entry<decltype(&cuDevResourceGenerateDesc)>("cuDevResourceGenerateDesc");
  const auto create = entry<decltype(&cuGreenCtxCreate)>("cuGreenCtxCreate");
  const auto create_stream = entry<decltype(&cuGreenCtxStreamCreate)>("cuGreenCtxStreamCreate");
  if (get == nullptr || split == nullptr || describe == nullptr || create == nullptr ||
      create_stream == nullptr)
    return nullptr;
  CUdevResource all{}, part{}, rest{};
  CUdevResourceDesc description{};
  CUgreenCtx context{};
  CUstream stream{};
  unsigned parts = 1;
  if (get(0, &all, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS ||
      split(&part, &parts, &all, &rest, 0, sms) != CUDA_SUCCESS ||
      describe(&description, &part, 1) != CUDA_SUCCESS ||
      create(&context, description, 0, CU_GREEN_CTX_DEFAULT_STREAM) != CUDA_SUCCESS)
    return nullptr;
  std::unique_ptr<GreenContext> made(new GreenContext);
  made->context_ = context;
  made->sms_ = part.sm.smCount;
  if (create_stream(&stream, context, CU_STREAM_NON_BLOCKING, 0) != CUDA_SUCCESS) return nullptr;
  made->stream_ = stream;
  return made;
}

GreenContext::~GreenContext() {
  if (stream_ != nullptr) (void)cudaStreamDestroy(static_cast<cudaStream_t>(stream_));
  const auto destroy = entry<decltype(&cuGreenCtxDestroy)>("cuGreenCtxDestroy");
  if (destroy != nullptr) (void)destroy(static_cast<CUgreenCtx>(context_));
}

#else

std::unique_ptr<GreenContext> GreenContext::make(unsigned) {
  return nullptr;
}

GreenContext::~GreenContext() = default;

#endif

void note_sms(std::uint32_t* words, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  clear<<<1, kSmWords, 0, on>>>(words);
  note<<<4096, 64, 0, on>>>(words);
}

}  // namespace cgtree::testing
