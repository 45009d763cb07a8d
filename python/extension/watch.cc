// has_values(): whether many names still stand for the objects that they stood for before.
#include "python/extension/errors.h"
#include "python/extension/module.h"
#include "python/extension/python.h"

namespace cgtree::python {
namespace {

// Returns what the container has under the name, as a borrowed reference, or null.
PyObject* find(PyObject* container, PyObject* name) {
  if (PyDict_Check(container)) return PyDict_GetItemWithError(container, name);
  const Py_ssize_t index = PyLong_AsSsize_t(name);
  if (index == -1 && PyErr_Occurred() != nullptr) return nullptr;
  if (PyList_Check(container) && index < PyList_Size(container)) {
    return PyList_GetItem(container, index);
  }
  if (PyTuple_Check(container) && index < PyTuple_Size(container)) {
    return PyTuple_GetItem(container, index);
  }
  return nullptr;
}

}  // namespace

PyObject* has_values(PyObject*, PyObject* arguments) {
  return guarded([&] {
    PyObject* containers = nullptr;
    PyObject* names = nullptr;
    PyObject* values = nullptr;
    if (PyArg_ParseTuple(arguments, "O!O!O!", &PyList_Type, &containers, &PyList_Type, &names,
                         &PyList_Type, &values) == 0) {
      throw PythonError();
    }
    const Py_ssize_t count = PyList_Size(values);
    bool are_same = PyList_Size(containers) == count && PyList_Size(names) == count;
    for (Py_ssize_t i = 0; are_same && i < count; ++i) {
      PyObject* const found = find(PyList_GetItem(containers, i), PyList_GetItem(names, i));
      if (found == nullptr && PyErr_Occurred() != nullptr) throw PythonError();
      are_same = found != nullptr && found == PyList_GetItem(values, i);
    }
    return PyBool_FromLong(are_same ? 1 : 0);
  });
}

}  // namespace cgtree::python
