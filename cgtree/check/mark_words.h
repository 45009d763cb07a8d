// Words of pinned memory that a device writes on its way, and the host reads meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "interop/device/graph_api.h"
#include "interop/device/progress_api.h"
#include "interop/device/stream.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// Words [first, first + count) of a page.
struct MarkWords {
  const Tensor& page;
  std::size_t first = 0;
  std::size_t count = 1;
};

// Returns what a device has written to a word, now.
std::uint32_t read_word(const Tensor& page, std::size_t word) noexcept;
// Clears it. Requires: no work that writes it is enqueued.
void clear_word(const Tensor& page, std::size_t word) noexcept;
// Enqueues a kernel by which each of the words becomes `value`. Throws DeviceError.
void write_words(StreamRef stream, const MarkWords& words, std::uint32_t value);
// Inserts it into a graph, as ProgressAPI::insert_kernel(). Throws DeviceError.
NodeHandle insert_write(ProgressAPI& progress, GraphHandle graph, std::span<const NodeHandle> after,
                        std::span<const NodeHandle> before, const MarkWords& words,
                        std::uint32_t value);
// Notes that work on `stream` may use the memory of the page, and releases it.
void release_page(Tensor page, StreamRef stream) noexcept;

}  // namespace cgtree
