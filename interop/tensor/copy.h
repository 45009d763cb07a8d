// Copies between tensors, in order with the work of a stream.
#pragma once

#include <cstdint>
#include <span>

#include "interop/device/stream.h"
#include "interop/tensor/gather_row.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// Enqueues a copy of `source` to `destination` on `stream`, by default the current one. Each side
// is host memory, pinned host memory, or memory of the stream's device.
//
// Inside a step function the copy is recorded, and reads and writes the same addresses again at
// each replay; the recording keeps both tensors. Memory of a PinnedMemory is not reused before the
// copy has ended. The caller must keep other host memory unchanged until then.
//
// Throws InvalidArgument if the shapes or element types differ, if a side is not contiguous, if the
// destination is read-only, and without a stream; StaleTensor; DeviceError.
void copy(const Tensor& destination, const Tensor& source, StreamRef stream = {});

// Enqueues one launch that copies the row; none for a row without bytes. The row and its words are
// passed as kernel arguments, so both may be destroyed at once. Requires: words.size() ==
// row.words(). Throws DeviceError.
void copy_row(StreamRef stream, const GatherRow& row, std::span<const std::uint64_t> words);

// The same for a padded row some of whose sizes are known only on the device, where the copy reads
// them. `sizes`: by axis, the address of an int64 on the stream's device, or 0 for an axis whose
// size is in `words`.
void copy_measured_row(StreamRef stream, const GatherRow& row, std::span<const std::uint64_t> words,
                       std::span<const std::uint64_t> sizes);

// Enqueues a copy of the elements of `source` to those of `destination`, which may have other
// strides; gaps between elements are not written. Requires the same dims and dtype, and both
// tensors on the stream's device. Throws StaleTensor, DeviceError.
void copy_elements(StreamRef stream, const Tensor& destination, const Tensor& source);

}  // namespace cgtree
