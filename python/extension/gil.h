// The interpreter's lock, as scopes; and objects that may be dropped without it.
#pragma once

#include <memory>

#include "python/extension/python.h"

namespace cgtree::python {

// False once the interpreter has begun to end: then objects are leaked, since no thread may take
// the lock any more.
bool interpreter_is_alive() noexcept;
// Registered with atexit by the module.
void interpreter_ends() noexcept;

// While it lives, other threads run Python. Requires the GIL.
class GilRelease {
 public:
  GilRelease() noexcept : state_(PyEval_SaveThread()) {}
  ~GilRelease() { PyEval_RestoreThread(state_); }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

// Takes the lock on any thread, whether it has it or not. Requires interpreter_is_alive().
class GilAcquire {
 public:
  GilAcquire() noexcept : state_(PyGILState_Ensure()) {}
  ~GilAcquire() { PyGILState_Release(state_); }
  GilAcquire(const GilAcquire&) = delete;
  GilAcquire& operator=(const GilAcquire&) = delete;

 private:
  PyGILState_STATE state_;
};

// Keeps `object` until the last copy goes, on any thread, with the lock or without. Requires the
// GIL.
std::shared_ptr<void> keep_object(PyObject* object);

}  // namespace cgtree::python
