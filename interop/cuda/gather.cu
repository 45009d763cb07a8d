// gather on a GPU: one block per chunk, 16 bytes per thread where both sides are aligned.
#include "interop/cuda/gather.h"

#include "interop/gather.h"

namespace cgtree::cuda {
namespace {

template <std::size_t Capacity>
struct Sources {
  const std::byte* addresses[Capacity];
};

template <typename Word>
__device__ void copy_words(std::byte* destination, const std::byte* source, std::uint32_t bytes) {
  const std::uint32_t words = bytes / sizeof(Word);
  for (std::uint32_t i = threadIdx.x; i < words; i += blockDim.x) {
    reinterpret_cast<Word*>(destination)[i] = reinterpret_cast<const Word*>(source)[i];
  }
  for (std::uint32_t i = words * sizeof(Word) + threadIdx.x; i < bytes; i += blockDim.x) {
    destination[i] = source[i];
  }
}

template <std::size_t Capacity>
__global__ void gather(const __grid_constant__ Sources<Capacity> sources,
                       const GatherChunk* __restrict__ chunks, std::uint32_t count) {
  if (blockIdx.x >= count) return;
  const GatherChunk chunk = chunks[blockIdx.x];
  auto* destination = reinterpret_cast<std::byte*>(chunk.destination);
  if (chunk.offset == kGatherValues) {
    for (std::uint32_t i = threadIdx.x; i < chunk.bytes / sizeof(std::uint64_t); i += blockDim.x) {
      reinterpret_cast<std::uint64_t*>(destination)[i] =
          reinterpret_cast<std::uint64_t>(sources.addresses[chunk.source + i]);
    }
    return;
  }
  const std::byte* source = sources.addresses[chunk.source] + chunk.offset;
  const auto alignment =
      reinterpret_cast<std::uintptr_t>(destination) | reinterpret_cast<std::uintptr_t>(source);
  if (alignment % sizeof(uint4) == 0) {
    copy_words<uint4>(destination, source, chunk.bytes);
  } else if (alignment % sizeof(std::uint32_t) == 0) {
    copy_words<std::uint32_t>(destination, source, chunk.bytes);
  } else {
    copy_words<std::byte>(destination, source, chunk.bytes);
  }
}

}  // namespace

const void* gather_function(std::size_t capacity) noexcept {
  switch (capacity) {
    case 1:
      return reinterpret_cast<const void*>(&gather<1>);
    case 4:
      return reinterpret_cast<const void*>(&gather<4>);
    case 16:
      return reinterpret_cast<const void*>(&gather<16>);
    case 64:
      return reinterpret_cast<const void*>(&gather<64>);
    default:
      return reinterpret_cast<const void*>(&gather<kMaxGatherSources>);
  }
}

}  // namespace cgtree::cuda
