// The Python type cgtree.Generator: a handle of a C++ generator of random numbers.
#pragma once

#include "python/extension/python.h"

namespace cgtree::python {

void add_generator_type(PyObject* module);

}  // namespace cgtree::python
