// KernelFunction: a kernel that every device can run. It has a host body and, in builds with CUDA,
// a __global__ function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

// CGTREE_HOST_DEVICE marks functions that kernels call, whichever compiler reads them.
#ifdef __CUDACC__
#define CGTREE_HOST_DEVICE __host__ __device__
#else
#define CGTREE_HOST_DEVICE
#endif

namespace cgtree {

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;

  bool operator==(const Dim3&) const = default;
};

// Counts of blocks and of threads per block, and bytes of dynamic shared memory per block.
struct LaunchDims {
  Dim3 grid;
  Dim3 block;
  std::uint32_t shared_bytes = 0;

  bool operator==(const LaunchDims&) const = default;
};

// One argument, by address. Its bytes are copied at launch or capture, as CUDA copies them.
struct KernelArgument {
  const void* data;
  std::size_t bytes;
};
using KernelArguments = std::span<const KernelArgument>;

// CUDA's own limit for sm_70 and later is 32764 bytes of parameters. Our own limit on the number
// only bounds an array on the stack.
inline constexpr std::size_t kMaxKernelArguments = 64;

// A HostBody runs the whole grid in one call; arguments[i] points at a copy of argument i.
using HostBody = void (*)(const LaunchDims& dims, const void* const* arguments);

struct KernelFunction {
  const char* name;  // for messages and dumps; static storage
  HostBody host;     // null: this kernel does not run on the host device
  const void* cuda;  // address of the __global__ function; null: does not run on a GPU
  // The host body waits for other kernels that may be enqueued later, from other threads. Executors
  // then run it in parallel with their other work.
  bool waits = false;

  bool operator==(const KernelFunction&) const = default;
};

}  // namespace cgtree
