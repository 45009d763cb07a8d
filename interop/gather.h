// gather: one kernel that copies many sources to fixed places; the root node of every recording.
//
// What moves from replay to replay, the source addresses, are its first argument, by value; what
// does not, destinations and sizes, lie in a table in device memory. So patching one node re-binds
// all inputs, and costs little: a parameter block of 8 bytes per input. Small values that change
// from replay to replay (seeds, offsets) ride in place of sources.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "interop/kernel_function.h"

namespace cgtree {

// As a chunk's offset: the 8-byte words to copy are not at the source, but are themselves the
// sources from number `source` on.
inline constexpr std::uint64_t kGatherValues = ~std::uint64_t{0};

// One block's work: `bytes` bytes from source number `source`, `offset` bytes in, to `destination`.
struct GatherChunk {
  std::uint64_t destination;
  std::uint64_t offset;
  std::uint32_t source;
  std::uint32_t bytes;
};

// A block of 256 threads moves this in 8 rounds of 16 bytes each.
inline constexpr std::uint32_t kGatherChunkBytes = 32 * 1024;

// Sources one node can take. More inputs chain a second node.
inline constexpr std::size_t kMaxGatherSources = 256;

// The kernel's arguments, in order: sources (const void*[capacity] by value), chunks (device
// address of the table), count of chunks (uint32). One block per chunk.
struct GatherKernel {
  KernelFunction function;
  std::size_t capacity;  // sources in the argument; at least as many as asked for
};

// The smallest kernel for this many sources. Requires 1 <= sources <= kMaxGatherSources.
GatherKernel gather_kernel(std::size_t sources) noexcept;

inline constexpr std::uint32_t kGatherThreads = 256;

// Cuts one copy of `bytes` bytes into chunks and appends them.
void append_chunks(std::vector<GatherChunk>& chunks, std::uint32_t source,
                   std::uintptr_t destination, std::size_t bytes);

}  // namespace cgtree
