// Calls of a FlatCall by other types of the extension.
#pragma once

#include "python/extension/object.h"

namespace cgtree::python {

// Makes the call with the inputs, which live until it returns, or with those in the list if that is
// not null, which the call clears. Returns the list of results, or NotImplemented if the inputs are
// others than expected. Requires: `flat` is a FlatCall. Throws what its `recover` raises.
Reference call_flat(PyObject* flat, Rest inputs, PyObject* list);

// Throws TypeError for another object than a FlatCall.
void expect_flat(PyObject* object);

}  // namespace cgtree::python
