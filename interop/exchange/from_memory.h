// from_memory(): a tensor of memory that the caller has allocated, such as an arena of an engine.
#pragma once

#include <memory>

#include "interop/device/device.h"
#include "interop/device/stream.h"
#include "interop/tensor/dtype.h"
#include "interop/tensor/shape.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// Returns a tensor of the memory at `data`, which lies on `device` and is not copied. The shape may
// have strides. The tensor keeps `owner` until its last reference is released; without one the
// caller keeps the memory for as long as the tensor and work that uses it.
//
//   Tensor logits = from_memory(device, buffer, {batch, vocabulary}, DType::kFloat32);
//
// `stream` orders the contents, by default the thread's current stream, else the legacy stream: the
// tensor is used first on it, and host copies wait for it. Inside a step function, memory of a
// tensor that was lent to the returning library becomes that tensor again.
//
// Throws BoundaryError for a null address, memory of another device, and memory that is not aligned
// for the type.
Tensor from_memory(Device device, void* data, const Shape& shape, DType dtype,
                   std::shared_ptr<void> owner = nullptr, StreamRef stream = {});

}  // namespace cgtree
