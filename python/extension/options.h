// Options of contexts and of compiled functions, from Python's keywords.
#pragma once

#include <vector>

#include "cgtree/options.h"
#include "python/extension/python.h"

namespace cgtree::python {

// Keywords of Context(), but for the device and the stream.
ContextOptions to_context_options(PyObject* keywords);

// A dict {axis: sizes}.
std::vector<Buckets> to_buckets(PyObject* dict);

// The dict that cgtree/_context.py makes; may be null. Throws InvalidArgument for a key it does not
// know, and PythonError.
CompileOptions to_compile_options(PyObject* dict);

}  // namespace cgtree::python
