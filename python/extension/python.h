// Python's C API (the limited API of 3.11, so that one file serves 3.11 and later), owned
// references, and the interpreter's lock as scopes.
#pragma once

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <unistd.h>

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
// Belongs to the process, as the interpreter does.
inline std::atomic<bool> g_is_ending{false};
}  // namespace detail

// Returns false once the interpreter has begun to end. From then on objects are leaked, because no
// thread may take the lock.
inline bool interpreter_is_alive() noexcept {
  return !detail::g_is_ending.load(std::memory_order_acquire) && Py_IsInitialized() != 0;
}
// The module registers this function, which Python calls at exit.
inline void interpreter_ends() noexcept {
  detail::g_is_ending.store(true, std::memory_order_release);
}

// Returns the result of run(), which takes the lock. After the end of the interpreter a remaining
// thread, a daemon, cannot take the lock: Python before 3.14 ends the thread with pthread_exit(),
// which unwinds through C++ frames and aborts the process. From 3.14 on this thread hangs, and here
// it hangs in all versions. A destructor notices the unwinding with every C++ library; only one
// library has a type to catch.
template <typename Run>
auto or_hang(Run run) {
  struct Hang {
    bool has_returned = false;
    ~Hang() {
      while (!has_returned)
        pause();
    }
  } hang;
  const auto result = run();
  hang.has_returned = true;
  return result;
}

// While a GilRelease lives, other threads run Python. A thread that waits, even for a context, must
// release the lock, because the other thread may need it. Requires: the GIL.
class GilRelease {
 public:
  GilRelease() noexcept : state_(PyEval_SaveThread()) {}
  ~GilRelease() {
    or_hang([&] {
      PyEval_RestoreThread(state_);
      return true;
    });
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

// A GilAcquire takes the lock on any thread, whether or not the thread has it. Requires:
// interpreter_is_alive().
class GilAcquire {
 public:
  GilAcquire() noexcept : state_(or_hang([] { return PyGILState_Ensure(); })) {}
  ~GilAcquire() { PyGILState_Release(state_); }
  GilAcquire(const GilAcquire&) = delete;
  GilAcquire& operator=(const GilAcquire&) = delete;

 private:
  PyGILState_STATE state_;
};

// Calls run() while other threads run Python, and returns its result. Requires: the GIL.
template <typename Run>
decltype(auto) without_gil(Run run) {
  const GilRelease released;
  return run();
}

// Destroys a value while other threads run Python, because its destructor may wait for the device.
// Once the interpreter has ended, the value is leaked. Requires: the GIL.
template <typename Value>
void end_without_gil(Value value) {
  if (!interpreter_is_alive()) {
    (void)new Value(std::move(value));
    return;
  }
  const GilRelease released;
  const Value last = std::move(value);
}

// While a NoCollection lives, the cycle collector does not run if `is_wanted`. Objects that it
// releases, such as another context, synchronize and free memory: this would invalidate the
// thread's capture, and is not permitted in host functions. Requires: the GIL.
class NoCollection {
 public:
  explicit NoCollection(bool is_wanted = true) : was_enabled_(is_wanted && PyGC_Disable() != 0) {}
  ~NoCollection() {
    if (was_enabled_) PyGC_Enable();
  }
  NoCollection(const NoCollection&) = delete;
  NoCollection& operator=(const NoCollection&) = delete;

 private:
  const bool was_enabled_;
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
