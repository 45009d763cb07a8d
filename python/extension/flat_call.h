// Calls of a FlatCall by other types of the extension.
#pragma once

#include "python/extension/object.h"

namespace cgtree::python {

// Makes the call with the inputs, which live until it returns, or with the items of `list` if it is
// not null; then the call clears the list. Returns the list of results, or NotImplemented if the
// inputs differ from the expected ones. Requires: `flat` is a FlatCall. Throws errors of its
// `recover`.
Reference call_flat(PyObject* flat, Rest inputs, PyObject* list);

// Throws TypeError for another object than a FlatCall.
void expect_flat(PyObject* object);

}  // namespace cgtree::python
