// What branches and loops are given beside their bodies.
#pragma once

#include <vector>

#include "extensions/flow/loop_stream.h"
#include "interop/random/generator.h"
#include "python/extension/python.h"

namespace cgtree::python {

// Returns the generators of a sequence of cgtree.Generator; none for null. Throws TypeError for
// other items.
std::vector<Generator> generators_of(PyObject* sequence);
// Returns the rows of a cgtree.LoopStream, which the object keeps. Throws TypeError for another
// type.
LoopStream& loop_stream_of(PyObject* object);

}  // namespace cgtree::python
