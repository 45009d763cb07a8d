// What tables of methods and types repeat.
#pragma once

#include "python/extension/errors.h"

namespace cgtree::python {

// A function that takes keywords, as an entry of a table.
template <typename Function>
PyCFunction as_function(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}
inline constexpr int kKeywords = METH_VARARGS | METH_KEYWORDS;

// Makes the type, which lives as long as the process, and names it in the module. Throws
// PythonError.
inline PyTypeObject* add_type(PyObject* module, const char* name, PyType_Spec& spec) {
  Reference type = checked(PyType_FromSpec(&spec));
  check_status(PyModule_AddObjectRef(module, name, type.get()));
  return reinterpret_cast<PyTypeObject*>(type.release());
}

}  // namespace cgtree::python
