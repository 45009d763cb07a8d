// Reads a shape, and compares values with it.
#include "python/extension/pattern.h"

#include <cstring>
#include <string>

#include "base/error.h"
#include "python/extension/python.h"
#include "python/extension/values.h"

namespace cgtree::python {

bool ArgumentPattern::read(PyObject* shape, PyObject* types) {
  Py_ssize_t leaf = 0;
  return read(shape, types, leaf, root_) && leaf == PyTuple_Size(types);
}

bool ArgumentPattern::read(PyObject* shape, PyObject* types, Py_ssize_t& leaf, Node& node) {
  if (!PyTuple_Check(shape) || PyTuple_Size(shape) != 3) throw InvalidArgument("this is no shape");
  PyObject* const kind = PyTuple_GetItem(shape, 0);
  PyObject* const what = PyTuple_GetItem(shape, 1);
  PyObject* const children = PyTuple_GetItem(shape, 2);
  if (PyUnicode_Check(kind)) {
    const std::string name = to_text(kind, "a kind");
    if (name == "tensor") {
      PyObject* const type = leaf < PyTuple_Size(types) ? PyTuple_GetItem(types, leaf++) : nullptr;
      if (type == nullptr) return false;
      node = {Kind::kTensor, reinterpret_cast<PyTypeObject*>(type), Reference::borrow(type)};
      return true;
    }
    if (name == "object") {
      Reference object = checked(PyObject_GetAttrString(what, "object"));
      PyTypeObject* const type = Py_TYPE(object.get());
      node = {Kind::kSame, type, std::move(object)};
      return true;
    }
    if (name != "value") return false;
    auto* const type = reinterpret_cast<PyTypeObject*>(PyTuple_GetItem(what, 0));
    PyObject* const value = PyTuple_GetItem(what, 1);
    if (type == &PyFloat_Type) {  // as text
      const Reference number = checked(
          PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyFloat_Type), "fromhex", "O", value));
      node = {Kind::kFloat, type, {}, PyFloat_AsDouble(number.get())};
      return true;
    }
    node = {Kind::kEqual, type, Reference::borrow(value)};
    return true;
  }
  if (kind == reinterpret_cast<PyObject*>(&PyTuple_Type)) {
    node.kind = Kind::kTuple;
  } else if (kind == reinterpret_cast<PyObject*>(&PyList_Type)) {
    node.kind = Kind::kList;
  } else if (kind == reinterpret_cast<PyObject*>(&PyDict_Type)) {
    node.kind = Kind::kDict;
    for (Py_ssize_t i = 0; i < PyTuple_Size(what); ++i)
      node.names.push_back(Reference::borrow(PyTuple_GetItem(what, i)));
  } else {
    return false;
  }
  node.type = reinterpret_cast<PyTypeObject*>(kind);
  for (Py_ssize_t i = 0; i < PyTuple_Size(children); ++i) {
    node.children.emplace_back();
    if (!read(PyTuple_GetItem(children, i), types, leaf, node.children.back())) return false;
  }
  return true;
}

int ArgumentPattern::traverse(const Node& node, visitproc visit, void* arg) {
  Py_VISIT(node.value.get());
  for (const Reference& name : node.names)
    Py_VISIT(name.get());
  for (const Node& child : node.children) {
    if (const int status = traverse(child, visit, arg)) return status;
  }
  return 0;
}

bool ArgumentPattern::matches(PyObject* value, std::vector<PyObject*>& leaves) const {
  return matches(root_, value, leaves);
}

bool ArgumentPattern::matches(const Node& node, PyObject* value, std::vector<PyObject*>& leaves) {
  if (Py_TYPE(value) != node.type) return false;
  switch (node.kind) {
    case Kind::kTensor:
      leaves.push_back(Reference::borrow(value).release());
      return true;
    case Kind::kSame:
      return value == node.value.get();
    case Kind::kEqual: {
      if (value == node.value.get()) return true;
      const int is_equal = PyObject_RichCompareBool(value, node.value.get(), Py_EQ);
      check_status(is_equal);
      return is_equal != 0;
    }
    case Kind::kFloat: {  // -0.0 is not 0.0, and NaN equals itself
      const double number = PyFloat_AsDouble(value);
      return std::memcmp(&number, &node.number, sizeof number) == 0;
    }
    default:
      return children_match(node, value, leaves);
  }
}

bool ArgumentPattern::children_match(const Node& node, PyObject* value,
                                     std::vector<PyObject*>& leaves) {
  const auto count = static_cast<Py_ssize_t>(node.children.size());
  if (node.kind == Kind::kDict) {
    if (PyDict_Size(value) != count) return false;
    Py_ssize_t position = 0;
    PyObject* name = nullptr;
    PyObject* item = nullptr;
    for (std::size_t i = 0; PyDict_Next(value, &position, &name, &item) != 0; ++i) {
      PyObject* const expected = node.names[i].get();
      // Other keys than text may run code that changes the dict.
      const bool is_text = PyUnicode_CheckExact(name) && PyUnicode_CheckExact(expected);
      if (name != expected && (!is_text || PyUnicode_Compare(name, expected) != 0)) return false;
      if (!matches(node.children[i], item, leaves)) return false;
    }
    return true;
  }
  const bool is_tuple = node.kind == Kind::kTuple;
  if ((is_tuple ? PyTuple_Size(value) : PyList_Size(value)) != count) return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const item = is_tuple ? PyTuple_GetItem(value, i) : PyList_GetItem(value, i);
    if (!matches(node.children[static_cast<std::size_t>(i)], item, leaves)) return false;
  }
  return true;
}

}  // namespace cgtree::python
