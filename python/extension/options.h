// Options of contexts and compiled functions, from the keywords of Python.
#pragma once

#include <vector>

#include "cgtree/options.h"
#include "python/extension/python.h"

namespace cgtree::python {

// Reads the keywords of Context(), except for `device` and `stream`; `keywords` may be null. Throws
// InvalidArgument for an unknown key, and PythonError.
ContextOptions to_context_options(PyObject* keywords);

// Reads a dict {axis: sizes}. Throws InvalidArgument and PythonError.
std::vector<Buckets> to_buckets(PyObject* dict);

// Reads the dict that cgtree/_context.py makes; it may be null. Throws InvalidArgument for an
// unknown key, and PythonError.
CompileOptions to_compile_options(PyObject* dict);

}  // namespace cgtree::python
