// Exceptions in both directions: those of C++ become Python classes of cgtree, and those of Python
// pass through C++ as PythonError.
#pragma once

#include <exception>
#include <memory>
#include <string>

#include "python/extension/python.h"

namespace cgtree::python {

// A PythonError is a Python exception that passes through C++; what() is "ValueError: its text".
class PythonError : public std::exception {
 public:
  // Takes the thread's current Python exception. Requires: the GIL, and a current exception.
  PythonError();

  const char* what() const noexcept override { return text_->c_str(); }
  // The exception, with its traceback. The next four require the GIL.
  PyObject* object() const noexcept { return static_cast<PyObject*>(object_.get()); }
  // Returns whether its class is this class of cgtree._errors.
  bool is_a(const char* name) const;
  // Adds a note to the Python exception, unless it has this note, and so to what() of later copies.
  void add_note(const std::string& note) const;
  // Makes it the thread's current exception again.
  void restore() const;

 private:
  std::shared_ptr<void> object_;
  std::shared_ptr<const std::string> text_;
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
