// Python functions as kernels of the host device, so that step functions can be tried without a
// GPU: recorded as a node of the graph, and called at each replay.
#pragma once

#include "python/extension/python.h"

namespace cgtree::python {

// launch(function, *tensors): enqueues function(*tensors) on the current stream. The function gets
// tensors of its own of the same memory.
PyObject* launch(PyObject* module, PyObject* arguments);

// Throws what such a function has raised on this thread since the last call, if it has.
void throw_raised_in_launch();

}  // namespace cgtree::python
