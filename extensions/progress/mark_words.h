// Words of pinned memory that a device writes during its work, and the host reads meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "interop/device/graph_api.h"
#include "interop/device/stream.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// A page has elements of 8 bytes. Returns the current value of a word.
std::uint64_t read_word(const Tensor& page, std::size_t word) noexcept;
// Clears a word. Requires: no work that writes it is enqueued.
void clear_word(const Tensor& page, std::size_t word) noexcept;
// Enqueues clearing all words of a page. Throws DeviceError.
void clear_words(const Tensor& page, StreamRef stream);
// Makes the device of the stream load the kernel of insert_clock(), which may wait for all its
// work. Throws DeviceError.
void load_clock(StreamRef stream);
// Inserts a kernel into a graph, as GraphAPI::insert_kernel(): it sets the first `cleared` words to
// 0, then the word to the device's clock, in nanoseconds, which is not 0. Throws DeviceError.
NodeHandle insert_clock(GraphAPI& graphs, GraphHandle graph, std::span<const NodeHandle> after,
                        std::span<const NodeHandle> before, const Tensor& page, std::size_t word,
                        std::size_t cleared = 0);
// Notes that work on `stream` may use the memory of the page, and releases it.
void release_page(Tensor page, StreamRef stream) noexcept;

}  // namespace cgtree
