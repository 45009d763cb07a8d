// Names are static: a capsule keeps the pointer alone.
#include "python/extension/capsules.h"

#include "base/error.h"
#include "python/extension/gil.h"

namespace cgtree::python {
namespace {

constexpr const char* kVersioned = "dltensor_versioned";
constexpr const char* kUsedVersioned = "used_dltensor_versioned";
constexpr const char* kUnversioned = "dltensor";
constexpr const char* kUsedUnversioned = "used_dltensor";

// Destructors run with the lock and perhaps an exception under way.
template <typename T>
void drop(PyObject* capsule, const char* name) noexcept {
  if (PyCapsule_IsValid(capsule, name) == 0) return;
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  auto* const tensor = static_cast<T*>(PyCapsule_GetPointer(capsule, name));
  if (tensor != nullptr && tensor->deleter != nullptr) tensor->deleter(tensor);
  PyErr_Restore(type, value, traceback);
}

void drop_versioned(PyObject* capsule) {
  drop<dlpack::ManagedVersioned>(capsule, kVersioned);
}
void drop_unversioned(PyObject* capsule) {
  drop<dlpack::Managed>(capsule, kUnversioned);
}

void mark_used(PyObject* capsule, const char* name) {
  check_status(PyCapsule_SetName(capsule, name));
}

}  // namespace

Reference make_capsule(DlpackTensor tensor) {
  Reference capsule = checked(PyCapsule_New(tensor.get(), kVersioned, drop_versioned));
  (void)tensor.release();
  return capsule;
}

Reference make_capsule(UnversionedDlpackTensor tensor) {
  Reference capsule = checked(PyCapsule_New(tensor.get(), kUnversioned, drop_unversioned));
  (void)tensor.release();
  return capsule;
}

TakenCapsule take_capsule(PyObject* capsule) {
  TakenCapsule taken;
  if (PyCapsule_IsValid(capsule, kVersioned) != 0) {
    taken.versioned =
        static_cast<dlpack::ManagedVersioned*>(PyCapsule_GetPointer(capsule, kVersioned));
    mark_used(capsule, kUsedVersioned);
    return taken;
  }
  if (PyCapsule_IsValid(capsule, kUnversioned) != 0) {
    taken.unversioned = static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule, kUnversioned));
    mark_used(capsule, kUsedUnversioned);
    return taken;
  }
  if (PyCapsule_IsValid(capsule, kUsedVersioned) != 0 ||
      PyCapsule_IsValid(capsule, kUsedUnversioned) != 0) {
    throw BoundaryError(BoundaryFault::kWrongValue,
                        "this DLPack capsule was consumed before: ask the producer for another");
  }
  throw BoundaryError(BoundaryFault::kWrongType,
                      "expected a capsule named 'dltensor_versioned' or 'dltensor', or an object "
                      "with __dlpack__");
}

}  // namespace cgtree::python
