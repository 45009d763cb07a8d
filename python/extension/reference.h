// Reference: an owned reference to a Python object.
#pragma once

#include <utility>

#include "python/extension/python.h"

namespace cgtree::python {

// All but moving requires the GIL.
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

}  // namespace cgtree::python
