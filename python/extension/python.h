// Python's C API (the limited API of 3.11, so that one file serves 3.11 and later), owned
// references, and the interpreter's lock as scopes.
#pragma once

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <atomic>
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

namespace detail {
// It belongs to the process, as the interpreter does.
inline std::atomic<bool> g_is_ending{false};
}  // namespace detail

// Returns false once the interpreter has begun to end. From then on objects are leaked, because no
// thread may take the lock any more.
inline bool interpreter_is_alive() noexcept {
  return !detail::g_is_ending.load(std::memory_order_acquire) && Py_IsInitialized() != 0;
}
// The module registers this function, which Python calls at exit.
inline void interpreter_ends() noexcept {
  detail::g_is_ending.store(true, std::memory_order_release);
}

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
inline std::shared_ptr<void> keep_object(PyObject* object) {
  Py_INCREF(object);
  return std::shared_ptr<void>(object, [](void* kept) {
    if (!interpreter_is_alive()) return;
    const GilAcquire gil;
    Py_DECREF(static_cast<PyObject*>(kept));
  });
}

}  // namespace cgtree::python
