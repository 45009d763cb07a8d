// Joins the axes of two tensors, and the host bodies of both kernels.
#include "extensions/verify/compare.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "interop/device/kernel.h"
#ifdef CGTREE_WITH_CUDA
#include "extensions/verify/cuda/compare_kernel.h"
#endif

namespace cgtree {
namespace {

void compare_on_host(const LaunchDims&, ElementPairs pairs, DType dtype, double tolerance,
                     std::uint64_t found) {
  if (pairs.is_dense &&
      std::memcmp(reinterpret_cast<const void*>(pairs.first),
                  reinterpret_cast<const void*>(pairs.second), pairs.count * pairs.element) == 0) {
    return;
  }
  auto* const sum = reinterpret_cast<ComparedElements*>(found);
  for (std::uint64_t i = 0; i < pairs.count; ++i)
    compare_element(pairs, i, dtype, tolerance, sum);
}

void exchange_on_host(const LaunchDims&, ElementPairs pairs) {
  if (pairs.is_dense) {
    auto* const bytes = reinterpret_cast<std::byte*>(pairs.first);
    std::swap_ranges(bytes, bytes + pairs.count * pairs.element,
                     reinterpret_cast<std::byte*>(pairs.second));
    return;
  }
  for (std::uint64_t i = 0; i < pairs.count; ++i)
    exchange_element(pairs, i);
}

// Each thread takes several elements, so that few threads meet at the sum.
LaunchDims dims_of(const ElementPairs& pairs) {
  constexpr std::uint64_t kThreads = 256;
  constexpr std::uint64_t kMostBlocks = 2048;
  const std::uint64_t blocks = (pairs.count + kThreads - 1) / kThreads;
  return {.grid = {static_cast<std::uint32_t>(std::min(blocks, kMostBlocks))}, .block = {kThreads}};
}

}  // namespace

ElementPairs pairs_of(const Tensor& first, const Tensor& second) {
  const std::span<const std::int64_t> dims = first.shape().dims();
  CGTREE_CHECK(first.dtype() == second.dtype() && std::ranges::equal(dims, second.shape().dims()));
  ElementPairs pairs;
  pairs.first = reinterpret_cast<std::uintptr_t>(first.data());
  pairs.second = reinterpret_cast<std::uintptr_t>(second.data());
  pairs.count = static_cast<std::uint64_t>(first.elements());
  pairs.element = static_cast<std::uint32_t>(size_of(first.dtype()));
  std::uint64_t aligned = 16 | pairs.first | pairs.second;
  for (std::size_t a = 0; a < dims.size(); ++a) {
    if (dims[a] == 1) continue;
    const auto bytes = static_cast<std::int64_t>(pairs.element);
    const std::int64_t here = first.shape().strides()[a] * bytes;
    const std::int64_t there = second.shape().strides()[a] * bytes;
    aligned |= static_cast<std::uint64_t>(here | there);
    const std::int32_t last = pairs.rank - 1;
    if (last >= 0 && pairs.first_strides[last] == here * dims[a] &&
        pairs.second_strides[last] == there * dims[a]) {
      pairs.dims[last] *= dims[a];
      pairs.first_strides[last] = here;
      pairs.second_strides[last] = there;
      continue;
    }
    pairs.dims[pairs.rank] = dims[a];
    pairs.first_strides[pairs.rank] = here;
    pairs.second_strides[pairs.rank++] = there;
  }
  aligned |= pairs.element;
  pairs.word = static_cast<std::uint32_t>(std::min<std::uint64_t>(8, aligned & (~aligned + 1)));
  const bool is_line =
      pairs.rank == 0 || (pairs.rank == 1 && pairs.first_strides[0] == pairs.element &&
                          pairs.second_strides[0] == pairs.element);
  pairs.is_dense = is_line && (pairs.first | pairs.second) % 16 == 0;
  return pairs;
}

void compare_elements(StreamRef stream, const Tensor& replayed, const Tensor& eager,
                      double tolerance, std::uintptr_t found) {
  if (replayed.elements() == 0) return;
  const ElementPairs pairs = pairs_of(replayed, eager);
  const void* cuda = nullptr;
#ifdef CGTREE_WITH_CUDA
  cuda = cuda::compare_function();
#endif
  launch(stream, make_kernel<&compare_on_host>("compare_elements", cuda), dims_of(pairs), pairs,
         replayed.dtype(), tolerance, std::uint64_t{found});
}

void exchange_elements(StreamRef stream, const Tensor& first, const Tensor& second) {
  if (first.elements() == 0) return;
  const ElementPairs pairs = pairs_of(first, second);
  const void* cuda = nullptr;
#ifdef CGTREE_WITH_CUDA
  cuda = cuda::exchange_function();
#endif
  launch(stream, make_kernel<&exchange_on_host>("exchange_elements", cuda), dims_of(pairs), pairs);
}

}  // namespace cgtree
