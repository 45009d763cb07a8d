// The host body of gather, and the choice among its sizes.
#include "interop/gather.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "interop/kernel.h"
#ifdef CGTREE_WITH_CUDA
#include "interop/cuda/gather.h"
#endif

namespace cgtree {
namespace {

void gather_on_host(const LaunchDims&, const void* const* arguments) {
  const auto* sources = static_cast<const std::byte* const*>(arguments[0]);
  const auto* chunks = *static_cast<const GatherChunk* const*>(arguments[1]);
  const std::uint32_t count = *static_cast<const std::uint32_t*>(arguments[2]);
  for (const GatherChunk& chunk : std::span(chunks, count)) {
    const void* const from = chunk.offset == kGatherValues
                                 ? static_cast<const void*>(&sources[chunk.source])
                                 : sources[chunk.source] + chunk.offset;
    // memmove: a source may be the destination itself.
    std::memmove(reinterpret_cast<void*>(chunk.destination), from, chunk.bytes);
  }
}

constexpr std::size_t kCapacities[] = {1, 4, 16, 64, kMaxGatherSources};

}  // namespace

GatherKernel gather_kernel(std::size_t sources) noexcept {
  CGTREE_CHECK(sources >= 1 && sources <= kMaxGatherSources);
  const std::size_t capacity =
      *std::lower_bound(std::begin(kCapacities), std::end(kCapacities), sources);
  const void* cuda = nullptr;
#ifdef CGTREE_WITH_CUDA
  cuda = cuda::gather_function(capacity);
#endif
  return {{"gather", &gather_on_host, cuda}, capacity};
}

void append_chunks(std::vector<GatherChunk>& chunks, std::uint32_t source,
                   std::uintptr_t destination, std::size_t bytes) {
  for (std::size_t offset = 0; offset < bytes; offset += kGatherChunkBytes) {
    const auto part =
        static_cast<std::uint32_t>(std::min<std::size_t>(bytes - offset, kGatherChunkBytes));
    chunks.push_back({destination + offset, offset, source, part});
  }
}

}  // namespace cgtree
