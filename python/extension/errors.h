// Exceptions in both directions: those of C++ become Python classes of cgtree, and those of Python
// pass through C++ as PythonError.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "python/extension/python.h"

namespace cgtree::python {

// A PythonError is a Python exception that passes through C++; what() is "ValueError: its text".
class PythonError : public std::exception {
 public:
  // Takes the thread's current Python exception. Requires: the GIL, and that there is one.
  PythonError();

  const char* what() const noexcept override;
  // Returns whether it is of a class of cgtree._errors. Requires: the GIL.
  bool is_a(const char* name) const;
  // Adds a note to the Python exception, unless it has this one, and so to what() of those that are
  // made of it later. Requires: the GIL.
  void add_note(const std::string& note) const;
  // Returns the exception with its traceback. Requires: the GIL.
  PyObject* object() const;
  // Makes it the thread's current exception again. Requires: the GIL.
  void restore() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Looks up the classes of cgtree._errors. Throws PythonError.
void load_errors();

// Makes the C++ exception in flight the thread's Python exception. Requires: the GIL, and a handler
// that runs.
void set_error_in_flight() noexcept;

// Return or accept a result of Python's API. Throw PythonError for null and for a negative status.
Reference checked(PyObject* object);
void check_status(int status);

// Calls a Python function. Throws PythonError.
Reference call_python(PyObject* function, PyObject* arguments);

// Run the body of a function that Python calls. An exception becomes Python's, and the result is
// null or -1.
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
