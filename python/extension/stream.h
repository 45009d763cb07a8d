// The Python type cgtree.Stream: a stream of ours, or the name of somebody else's.
#pragma once

#include <memory>
#include <optional>

#include "interop/device/stream.h"
#include "python/extension/errors.h"

namespace cgtree::python {

// What counts as a stream: cgtree.Stream, an integer (a cudaStream_t, 1, 2), and what other
// libraries call one: __cuda_stream__(), cuda_stream, ptr. Throws InvalidArgument for a stream that
// was closed or is another device's.
StreamRef to_stream(PyObject* object, Device device);
// None, or null, names none.
StreamRef to_optional_stream(PyObject* object, Device device);
// Of a cgtree.Stream; none for others, which do not say.
std::optional<Device> device_of_stream(PyObject* object);
// What keeps the stream of a cgtree.Stream alive; null for others.
std::shared_ptr<const void> owner_of_stream(PyObject* object);

// Throws InvalidArgument for a stream that was closed or that cgtree does not own.
std::shared_ptr<const Stream> expect_own_stream(PyObject* object);

// Borrows the stream from `keeper`, which may be null.
Reference make_stream(StreamRef stream, std::shared_ptr<const void> keeper);

}  // namespace cgtree::python
