// What other libraries' memory has to be before it becomes a tensor: in reach, and aligned.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "interop/device/device_api.h"
#include "interop/device/dtype.h"
#include "interop/tensor/shape.h"
#include "interop/device/stream.h"

namespace cgtree {

// The stream on which an imported tensor is to be used: the one given, else the thread's current
// one; may name none.
StreamRef consumer_or_current(StreamRef given);

// The device of the type of `first` that `data` lies on; `api` serves that type. Memory that every
// device of the type reaches (pinned, managed) lies on `first`; so does all memory where the type
// cannot tell. Throws BoundaryError for memory that its devices cannot reach and, if `first` is
// wanted, for memory of another one. May be called while a capture is open.
Device locate(DeviceAPI& api, Device first, const void* data, bool is_wanted);

// Throws BoundaryError unless elements of this type may lie there.
void check_alignment(std::uintptr_t address, DType dtype);

// How the strides of a layout are given.
enum class StrideUnit { kBytes, kElements };

// Without strides, row-major: as are, whatever is given, the strides of axes with less than two
// indices and of tensors without elements. Throws BoundaryError for a negative dimension, for more
// bytes than an int64 counts, and for what a Shape cannot say: negative strides, strides that are
// no multiple of an element, too many dimensions.
Shape shape_of_layout(std::span<const std::int64_t> dims,
                      std::optional<std::span<const std::int64_t>> strides, StrideUnit unit,
                      DType dtype);

}  // namespace cgtree
