// DLPack's capsules, both ways.
#pragma once

#include "interop/exchange/dlpack.h"
#include "interop/exchange/dlpack_tensor.h"
#include "python/extension/errors.h"

namespace cgtree::python {

// Whoever takes them renames them to "used_..."; else the destructor deletes what is in them.
// Source: DLPack, Python Specification.
Reference make_capsule(DlpackTensor tensor);
Reference make_capsule(UnversionedDlpackTensor tensor);

// Takes what is in the capsule, which thereby is used. Exactly one of the two is then set. Throws
// BoundaryError for anything but an unused capsule.
struct TakenCapsule {
  dlpack::ManagedVersioned* versioned = nullptr;
  dlpack::Managed* unversioned = nullptr;
};
TakenCapsule take_capsule(PyObject* capsule);

// What tensors' type says as __dlpack_c_exchange_api__.
Reference exchange_capsule();

}  // namespace cgtree::python
