// Sizes of dynamic axes: histograms, suggested buckets and precapture.
#pragma once

#include "cgtree/compile.h"
#include "python/extension/errors.h"

namespace cgtree::python {

// Returns the histogram of an axis as {size: count}.
Reference size_counts(const CompiledCore& core, PyObject* axis);

// suggest_buckets(axis, max_buckets, cost=None) of a compiled function.
Reference suggest_for(const CompiledCore& core, PyObject* arguments, PyObject* keywords);
// The module's suggest_buckets(histogram, max_buckets, cost=None).
PyObject* suggest_buckets_of(PyObject* module, PyObject* arguments, PyObject* keywords);

// precapture(make_inputs, *, sizes=None, max_time=None, max_bytes=None, progress=None).
Reference precapture(const CompiledCore& core, const Context& context, PyObject* arguments,
                     PyObject* keywords);

}  // namespace cgtree::python
