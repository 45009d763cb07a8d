// Compares and exchanges elements on a GPU, distributed over the threads of the grid.
#include "extensions/verify/cuda/compare_kernel.h"

#include "extensions/verify/element_pairs.h"

namespace cgtree::cuda {
namespace {

constexpr std::uint64_t kChunk = 16;  // bytes that a thread compares together, for dense tensors

__device__ std::uint64_t first_of_thread() {
  return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ std::uint64_t threads() {
  return std::uint64_t{gridDim.x} * blockDim.x;
}

__device__ bool is_equal(const uint4& a, const uint4& b) {
  return a.x == b.x && a.y == b.y && a.z == b.z && a.w == b.w;
}

__device__ void add(const ComparedElements& found, ComparedElements* sum) {
  static_assert(sizeof(unsigned long long) == sizeof(std::uint64_t));
  const auto word = [](std::uint64_t* at) { return reinterpret_cast<unsigned long long*>(at); };
  if (found.largest != 0) atomicMax(word(&sum->largest), found.largest);
  if (found.differing == 0) return;
  atomicAdd(word(&sum->differing), found.differing);
  atomicMin(word(&sum->first), found.first);
}

__global__ void compare(const __grid_constant__ ElementPairs pairs, DType dtype, double tolerance,
                        std::uint64_t sum) {
  ComparedElements found;
  std::uint64_t first = 0;  // of the elements that are compared one by one
  if (pairs.is_dense) {
    const std::uint64_t chunks = pairs.count * pairs.element / kChunk;
    const std::uint64_t in_chunk = kChunk / pairs.element;
    for (std::uint64_t c = first_of_thread(); c < chunks; c += threads()) {
      if (is_equal(reinterpret_cast<const uint4*>(pairs.first)[c],
                   reinterpret_cast<const uint4*>(pairs.second)[c])) {
        continue;
      }
      for (std::uint64_t i = c * in_chunk; i < (c + 1) * in_chunk; ++i)
        compare_element(pairs, i, dtype, tolerance, &found);
    }
    first = chunks * in_chunk;
  }
  for (std::uint64_t i = first + first_of_thread(); i < pairs.count; i += threads())
    compare_element(pairs, i, dtype, tolerance, &found);
  add(found, reinterpret_cast<ComparedElements*>(sum));
}

__global__ void exchange(const __grid_constant__ ElementPairs pairs) {
  std::uint64_t first = 0;
  if (pairs.is_dense) {
    const std::uint64_t chunks = pairs.count * pairs.element / kChunk;
    auto* const here = reinterpret_cast<uint4*>(pairs.first);
    auto* const there = reinterpret_cast<uint4*>(pairs.second);
    for (std::uint64_t c = first_of_thread(); c < chunks; c += threads()) {
      const uint4 held = here[c];
      here[c] = there[c];
      there[c] = held;
    }
    first = chunks * (kChunk / pairs.element);
  }
  for (std::uint64_t i = first + first_of_thread(); i < pairs.count; i += threads())
    exchange_element(pairs, i);
}

}  // namespace

const void* compare_function() noexcept {
  return reinterpret_cast<const void*>(&compare);
}

const void* exchange_function() noexcept {
  return reinterpret_cast<const void*>(&exchange);
}

}  // namespace cgtree::cuda
