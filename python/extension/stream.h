// The Python type cgtree.Stream, which owns a stream or borrows one.
#pragma once

#include <memory>
#include <optional>

#include "interop/device/stream.h"
#include "python/extension/errors.h"

namespace cgtree::python {

// Converts a cgtree.Stream, an integer (a cudaStream_t, 1 or 2), or a stream object of another
// library with __cuda_stream__(), cuda_stream or ptr; null gives a null stream. Without a device,
// any other object than a cgtree.Stream is taken as a stream of the best device. Throws
// InvalidArgument for a stream that was closed or is on another device.
StreamRef to_stream(PyObject* object, std::optional<Device> device);
// Returns a reference that keeps the stream alive.
std::shared_ptr<const void> keep_stream(PyObject* object);

// Returns the stream that a cgtree.Stream owns. Throws InvalidArgument if it was closed or is
// borrowed.
std::shared_ptr<const Stream> expect_own_stream(PyObject* object);

// Makes a cgtree.Stream that borrows a stream and keeps `keeper`, which may be null.
Reference make_stream(StreamRef stream, std::shared_ptr<const void> keeper);

}  // namespace cgtree::python
