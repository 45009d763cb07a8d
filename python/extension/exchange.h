// The exchange API of DLPack between Python's types: which have one, and ours.
#pragma once

#include "interop/exchange/dlpack_exchange.h"
#include "python/extension/import.h"

namespace cgtree::python {

// The table that objects of this type can be converted with; null where there is none. Remembers
// the answer for the types asked last.
const dlpack::Exchange* exchange_of(PyTypeObject* type);

Tensor import_exchange(const dlpack::Exchange& exchange, PyObject* object,
                       const ObjectImport& options);

}  // namespace cgtree::python
