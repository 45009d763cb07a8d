// Python's C API (the limited API of 3.11, so that one file serves 3.11 and later), owned
// references, and the interpreter's lock as scopes.
#pragma once

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <memory>
#include <utility>

namespace cgtree::python {

// A Reference is an owned reference to a Python object. Requires: the GIL, except to move one.
class Reference {
 public:
  Reference() = default;
  static Reference steal(PyObject* object) noexcept { return Reference(object); }
  static Reference borrow(PyObject* object) noexcept {
    Py_XINCREF(object);
    return Reference(object);
  }
  ~Reference() { Py_XDECREF(object_); }
  Reference(Reference&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Reference& operator=(Reference&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }

  explicit operator bool() const noexcept { return object_ != nullptr; }
  PyObject* get() const noexcept { return object_; }
  PyObject* release() noexcept { return std::exchange(object_, nullptr); }

 private:
  explicit Reference(PyObject* object) noexcept : object_(object) {}

  PyObject* object_ = nullptr;
};

// Returns false once the interpreter has begun to end. From then on objects are leaked, because no
// thread may take the lock any more.
bool interpreter_is_alive() noexcept;
// Is called at exit; the module registers it.
void interpreter_ends() noexcept;

// While a GilRelease lives, other threads run Python. Requires: the GIL.
class GilRelease {
 public:
  GilRelease() noexcept : state_(PyEval_SaveThread()) {}
  ~GilRelease() { PyEval_RestoreThread(state_); }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

// A GilAcquire takes the lock on any thread, whether or not the thread has it. Requires:
// interpreter_is_alive().
class GilAcquire {
 public:
  GilAcquire() noexcept : state_(PyGILState_Ensure()) {}
  ~GilAcquire() { PyGILState_Release(state_); }
  GilAcquire(const GilAcquire&) = delete;
  GilAcquire& operator=(const GilAcquire&) = delete;

 private:
  PyGILState_STATE state_;
};

// Keeps `object` until the last copy is released, on any thread, with or without the lock.
// Requires: the GIL.
std::shared_ptr<void> keep_object(PyObject* object);

}  // namespace cgtree::python
