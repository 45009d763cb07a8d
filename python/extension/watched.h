// The Python type cgtree.Watched: what a function of PyTorch uses beside its arguments.
#pragma once

#include "python/extension/errors.h"

namespace cgtree::python {

// Throws TypeError for another type.
void expect_watched(PyObject* object);
// Returns whether everything is as it was when the Watched was made. Throws PythonError.
// Requires: expect_watched().
bool holds(PyObject* watched);

// Returns the attribute of a torch.Tensor. Throws PythonError.
bool requires_grad(PyObject* tensor);

}  // namespace cgtree::python
