// Calls of a FlatCall by other types of the extension.
#pragma once

#include <span>

#include "python/extension/python.h"

namespace cgtree::python {

// Make the call, and return the list of results, or NotImplemented if the inputs are others than
// expected. The first one's inputs live until it returns; the second one clears its list. Require:
// `flat` is a FlatCall. Throw what its `recover` raises.
Reference call_flat(PyObject* flat, std::span<PyObject* const> inputs);
Reference call_flat_with_list(PyObject* flat, PyObject* inputs);

// Throws TypeError for another object than a FlatCall.
void expect_flat(PyObject* object);

}  // namespace cgtree::python
