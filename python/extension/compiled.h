// The Python type cgtree.CompiledFunction: a step function written in Python, and its recordings.
#pragma once

#include "python/extension/python.h"

namespace cgtree::python {

void add_compiled_type(PyObject* module);

// compile(context, name, function, options) -> CompiledFunction
PyObject* compile_function(PyObject* module, PyObject* arguments);

}  // namespace cgtree::python
