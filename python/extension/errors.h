// Exceptions in both directions: C++'s become Python's classes of cgtree, Python's travel as
// PythonError.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "python/extension/python.h"

namespace cgtree::python {

// A Python exception on its way through C++; what() is "ValueError: its text".
class PythonError : public std::exception {
 public:
  // Takes the thread's current Python exception. Requires the GIL and that there is one.
  PythonError();

  const char* what() const noexcept override;
  // Makes it the thread's current exception again. Requires the GIL.
  void restore() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Looks up the classes of cgtree._errors. Throws PythonError.
void load_errors();

// Makes the C++ exception in flight the thread's Python exception. Requires the GIL, and a handler.
void set_error_in_flight() noexcept;

// Throws PythonError for null.
Reference checked(PyObject* object);
void check_status(int status);

// What a function of a type or module does: an exception becomes Python's, and null or -1.
template <typename Body>
PyObject* guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (...) {
    set_error_in_flight();
    return nullptr;
  }
}
template <typename Body>
int guarded_status(Body&& body) noexcept {
  try {
    body();
    return 0;
  } catch (...) {
    set_error_in_flight();
    return -1;
  }
}

}  // namespace cgtree::python
