// copy(): copies between tensors, in order with the work of a stream.
#pragma once

#include <cstdint>
#include <span>

#include "interop/device/stream.h"
#include "interop/tensor/gather_row.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// Enqueues a copy of `source` to `destination` on `stream`, by default the current one. Between any
// two of host memory, pinned host memory and the stream's device.
//
// Inside a step function the copy is recorded, and reads and writes the same addresses again at
// each replay; so the recording keeps both tensors. Memory of a PinnedMemory is not reused before
// the copy is done. Other host memory must stay as it is until then.
//
// Throws InvalidArgument for another shape or element type on one side, for a side that is not
// contiguous, and without a stream; StaleTensor; DeviceError.
void copy(const Tensor& destination, const Tensor& source, StreamRef stream = {});

// Enqueues one launch, or none for a row of no bytes; everything travels by value, so that the
// row and its words may go at once. Requires words.size() == row.words(). Throws DeviceError.
void copy_row(StreamRef stream, const GatherRow& row, std::span<const std::uint64_t> words);

// Enqueues a copy of the elements of `source` to those of `destination`; gaps of either are not
// touched. Requires the same dims and dtype, and both on the stream's device. Throws StaleTensor,
// DeviceError.
void copy_elements(StreamRef stream, const Tensor& destination, const Tensor& source);

}  // namespace cgtree
