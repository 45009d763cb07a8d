// Checks both sides, enqueues the copy, and tells the owners of the memory.
#include "interop/tensor/copy.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/format.h"
#include "interop/device/stream.h"
#include "interop/tensor/empty.h"
#ifdef CGTREE_WITH_CUDA
#include "interop/tensor/cuda/row_kernel.h"
#endif
#include "interop/device/device_api.h"
#include "interop/device/kernel.h"

namespace cgtree {
namespace {

void expect_same_layout(const Tensor& destination, const Tensor& source) {
  if (!destination.defined() || !source.defined()) {
    throw InvalidArgument(
        str_format("copy() from {} to {}: both must be defined",
                   source.defined() ? describe(source) : "an undefined tensor",
                   destination.defined() ? describe(destination) : "an undefined tensor"));
  }
  if (destination.dtype() != source.dtype() ||
      !std::ranges::equal(destination.shape().dims(), source.shape().dims())) {
    throw InvalidArgument(
        str_format("copy() from {} to {}: shape and element type must be the same",
                   describe(source), describe(destination)));
  }
  if (!destination.is_contiguous() || !source.is_contiguous()) {
    throw InvalidArgument(str_format("copy() from {} to {}: both must be contiguous",
                                     describe(source), describe(destination)));
  }
}

// Streams of the host device do not reach memory of a GPU; streams of a GPU reach host memory.
void expect_within_reach(const Tensor& destination, const Tensor& source, StreamRef stream) {
  for (const Tensor* side : {&source, &destination}) {
    const DeviceType type = side->device().type;
    if (type == DeviceType::kHost || type == stream.device().type) continue;
    throw InvalidArgument(str_format(
        "copy() from {} to {} on a stream of {}: it cannot reach memory of {}; use a stream of {}",
        describe(source), describe(destination), to_string(stream.device()),
        to_string(side->device()), to_string(side->device())));
  }
}

Code enqueue_copy(const Tensor& destination, const Tensor& source, StreamRef stream) {
  const DeviceScope current = stream.make_device_current();
  DeviceAPI& api = stream.api();
  const Device from = source.device();
  const Device to = destination.device();
  void* const data = destination.data();
  if (from.type == to.type && from.type == stream.device().type && from.id != to.id) {
    return api.copy_peer(stream.handle(), data, to.id, source.data(), from.id, source.bytes());
  }
  return api.copy(stream.handle(), data, source.data(), source.bytes());
}

void row_on_host(const LaunchDims&, const void* const* arguments) {
  const auto& row = *static_cast<const GatherRow*>(arguments[0]);
  const auto* words = static_cast<const std::uint64_t*>(arguments[1]);
  copy_packed(row, words, 0, *static_cast<const std::uint64_t*>(arguments[2]));
}

// The kernel that copies one row, without a table in device memory. Its arguments, in order: row
// (GatherRow), words (uint64[kMaxRowWords]) and bytes (uint64, the row's). One block per
// kGatherChunkBytes.
KernelFunction row_kernel() noexcept {
  const void* cuda = nullptr;
#ifdef CGTREE_WITH_CUDA
  cuda = cuda::row_function();
#endif
  return {"copy_row", &row_on_host, cuda};
}

// The kernel of copy_measured_row(), with another argument: sizes (uint64[kMaxGatherRank]).
void measured_row_on_host(const LaunchDims&, const void* const* arguments) {
  const auto& row = *static_cast<const GatherRow*>(arguments[0]);
  const auto* const words = static_cast<const std::uint64_t*>(arguments[1]);
  const auto* const sizes = static_cast<const std::uint64_t*>(arguments[3]);
  std::uint64_t measured[kMaxRowWords];
  std::copy(words, words + row.words(), measured);
  for (std::uint32_t axis = 0; axis < row.rank; ++axis)
    if (sizes[axis] != 0) measured[1 + axis] = *reinterpret_cast<const std::uint64_t*>(sizes[axis]);
  copy_packed(row, measured, 0, *static_cast<const std::uint64_t*>(arguments[2]));
}

KernelFunction measured_row_kernel() noexcept {
  const void* cuda = nullptr;
#ifdef CGTREE_WITH_CUDA
  cuda = cuda::measured_row_function();
#endif
  return {"copy_measured_row", &measured_row_on_host, cuda};
}

// Launches a kernel of one row, with the row, its words and bytes, and `more` as arguments.
void launch_row(StreamRef stream, const KernelFunction& kernel, const GatherRow& row,
                std::span<const std::uint64_t> words, const KernelArgument* more) {
  CGTREE_CHECK(words.size() == row.words());
  const std::uint64_t bytes = row.bytes();
  if (bytes == 0) return;
  std::uint64_t list[kMaxRowWords] = {};
  std::copy(words.begin(), words.end(), list);
  const std::uint64_t blocks = (bytes + kGatherChunkBytes - 1) / kGatherChunkBytes;
  const KernelArgument arguments[] = {{&row, sizeof(row)},
                                      {&list, sizeof(list)},
                                      {&bytes, sizeof(bytes)},
                                      more == nullptr ? KernelArgument{} : *more};
  enqueue_kernel(stream, kernel,
                 {.grid = {static_cast<std::uint32_t>(blocks)}, .block = {kGatherThreads}},
                 std::span(arguments).first(more == nullptr ? 3 : 4));
}

}  // namespace

void copy(const Tensor& destination, const Tensor& source, StreamRef stream) {
  expect_same_layout(destination, source);
  if (!stream) stream = current_stream();
  if (source.bytes() == 0) return;
  if (destination.storage()->is_read_only()) {
    throw InvalidArgument(str_format("copy() from {} to {}: the destination is read-only",
                                     describe(source), describe(destination)));
  }
  expect_within_reach(destination, source, stream);
  for (const Tensor* side : {&source, &destination})
    expect_use(side->storage(), stream);
  check(enqueue_copy(destination, source, stream),
        str_format("copy {} to {}", describe(source), to_string(destination.device())));
  for (const Tensor* side : {&source, &destination}) {
    note_use(side->storage(), stream);
  }
}

void copy_row(StreamRef stream, const GatherRow& row, std::span<const std::uint64_t> words) {
  launch_row(stream, row_kernel(), row, words, nullptr);
}

void copy_measured_row(StreamRef stream, const GatherRow& row, std::span<const std::uint64_t> words,
                       std::span<const std::uint64_t> sizes) {
  CGTREE_CHECK(row.is_padded && sizes.size() == row.rank);
  std::uint64_t list[kMaxGatherRank] = {};
  std::copy(sizes.begin(), sizes.end(), list);
  const KernelArgument more = {&list, sizeof(list)};
  launch_row(stream, measured_row_kernel(), row, words, &more);
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
