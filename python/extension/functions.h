// The functions of the module that make tensors, and those that ask.
#pragma once

#include "python/extension/python.h"

namespace cgtree::python {

extern PyMethodDef module_functions[];  // ends with null

}  // namespace cgtree::python
