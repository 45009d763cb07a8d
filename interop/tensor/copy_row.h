// copy_row(), copy_elements(): what gather does, launched on a stream without a graph.
#pragma once

#include <cstdint>
#include <span>

#include "interop/tensor/gather_row.h"
#include "interop/device/stream.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// Enqueues one launch, or none for a row of no bytes; everything travels by value, so that the
// row and its words may go at once. Requires words.size() == row.words(). Throws DeviceError.
void copy_row(StreamRef stream, const GatherRow& row, std::span<const std::uint64_t> words);

// Enqueues a copy of the elements of `source` to those of `destination`; gaps of either are not
// touched. Requires the same dims and dtype, and both on the stream's device. Throws StaleTensor,
// DeviceError.
void copy_elements(StreamRef stream, const Tensor& destination, const Tensor& source);

}  // namespace cgtree
