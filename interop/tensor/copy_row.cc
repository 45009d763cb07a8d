// Launches the kernel that takes a row by value.
#include "interop/tensor/copy_row.h"

#include <algorithm>

#include "base/check.h"
#include "interop/tensor/gather.h"

namespace cgtree {

void copy_row(StreamRef stream, const GatherRow& row, std::span<const std::uint64_t> words) {
  CGTREE_CHECK(words.size() == row.words());
  const std::uint64_t bytes = row.bytes();
  if (bytes == 0) return;
  std::uint64_t list[kMaxRowWords] = {};
  std::copy(words.begin(), words.end(), list);
  const std::uint64_t blocks = (bytes + kGatherChunkBytes - 1) / kGatherChunkBytes;
  const KernelFunction kernel = row_kernel();
  const KernelArgument arguments[] = {
      {&row, sizeof(row)}, {&list, sizeof(list)}, {&bytes, sizeof(bytes)}};
  check(stream.graphs().launch_kernel(
            stream.handle(), kernel,
            {.grid = {static_cast<std::uint32_t>(blocks)}, .block = {kGatherThreads}}, arguments),
        kernel.name);
}

void copy_elements(StreamRef stream, const Tensor& destination, const Tensor& source) {
  CGTREE_CHECK(destination.dtype() == source.dtype() &&
               std::ranges::equal(destination.shape().dims(), source.shape().dims()));
  const GatherRow row =
      strided_row(GatherDirection::kIn, reinterpret_cast<std::uintptr_t>(destination.data()),
                  source.shape().dims(), destination.shape().strides(), source.shape().strides(),
                  size_of(source.dtype()));
  const std::uint64_t from = reinterpret_cast<std::uintptr_t>(source.data());
  copy_row(stream, row, std::span(&from, 1));
}

}  // namespace cgtree
