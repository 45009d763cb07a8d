// Options of contexts and of compiled functions, from Python's keywords.
#pragma once

#include "cgtree/options.h"
#include "python/extension/python.h"

namespace cgtree::python {

// Keywords of Context(), but for the device and the stream.
ContextOptions to_context_options(PyObject* keywords);

// The dict that cgtree/_compile.py makes; may be null. Throws InvalidArgument for a key it does not
// know, and PythonError.
CompileOptions to_compile_options(PyObject* dict);

}  // namespace cgtree::python
