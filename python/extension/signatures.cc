// The table of signatures, the arguments read by them, and the tables that Python reads.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "python/extension/object.h"

namespace cgtree::python {
namespace {

Signature signatures[] = {
#include "python/signatures.inc"
};

// Compares names by address first: most calls have interned names.
std::size_t index_of(const Signature& signature, PyObject* name) {
  const auto* const names = signature.interned.begin();
  const auto* const end = names + signature.count;
  const auto* found = std::find(names, end, name);
  if (found == end) {
    found = std::find_if(names, end,
                         [&](PyObject* each) { return PyUnicode_Compare(name, each) == 0; });
  }
  return static_cast<std::size_t>(found - names);
}

// Sets the signature of an entry, and returns it.
const Signature& bind_signature(const Method& method, const Signature& signature) {
  if (method.signature == nullptr) return signature;
  if (signature.count != method.count) {
    throw Error(str_format("{} has {} parameters in _cgtree.pyi, and {} in C++", signature.name,
                           signature.count, method.count));
  }
  return *(*method.signature = &signature);
}

// Returns a table with an empty row at its end, which lives as long as the process.
template <typename Row>
Row* new_table(std::size_t rows) {
  static auto* const tables = new std::vector<std::unique_ptr<Row[]>>;
  return tables->emplace_back(new Row[rows + 1]()).get();
}

PyMethodDef* table_of(const std::vector<Method>& methods, std::string_view owner) {
  auto* const table = new_table<PyMethodDef>(methods.size());
  for (std::size_t i = 0; i < methods.size(); ++i) {
    const Method& method = methods[i];
    const Signature& signature = bind_signature(method, signature_of(owner, method.name));
    table[i] = {method.name, reinterpret_cast<PyCFunction>(method.called), method.flags,
                signature.doc};
  }
  return table;
}

PyGetSetDef* table_of(const std::vector<Property>& properties, std::string_view owner) {
  auto* const table = new_table<PyGetSetDef>(properties.size());
  for (std::size_t i = 0; i < properties.size(); ++i)
    table[i] = {properties[i].name, properties[i].get, nullptr,
                signature_of(owner, properties[i].name).doc, nullptr};
  return table;
}

}  // namespace

const Signature& signature_of(std::string_view owner, std::string_view name) {
  const std::string whole = owner.empty() ? std::string(name) : str_format("{}.{}", owner, name);
  auto* const found = std::ranges::find(signatures, whole, &Signature::name);
  if (found == std::end(signatures)) throw Error(str_format("_cgtree.pyi has no {}", whole));
  for (std::size_t i = 0; i < found->count && found->interned[i] == nullptr; ++i)
    found->interned[i] = checked(PyUnicode_InternFromString(found->names[i])).release();
  return *found;
}

void read_arguments(const Signature& signature, const Passed& passed, PyObject** read,
                    Others& others) {
  const std::size_t given = passed.positional.size();
  if (given > signature.by_position && !signature.has_rest) {
    PyErr_Format(PyExc_TypeError, "%s() takes %zu positional arguments, and %zu were given",
                 signature.function(), signature.by_position, given);
    throw PythonError();
  }
  std::copy_n(passed.positional.begin(), std::min(given, signature.by_position), read);
  for (std::size_t i = 0; i < passed.named.size(); ++i) {
    PyObject* const name = PyTuple_GetItem(passed.names, static_cast<Py_ssize_t>(i));
    const std::size_t known = index_of(signature, name);
    if (known == signature.count && signature.has_others) {
      if (!others.dict) others.dict = checked(PyDict_New());
      check_status(PyDict_SetItem(others.dict.get(), name, passed.named[i]));
      continue;
    }
    if (known == signature.count || read[known] != nullptr) {
      PyErr_Format(PyExc_TypeError,
                   known == signature.count ? "%s() got an unexpected keyword argument '%U'"
                                            : "%s() got '%U' twice",
                   signature.function(), name);
      throw PythonError();
    }
    read[known] = passed.named[i];
  }
  for (std::size_t i = 0; i < signature.count; ++i) {
    if (i >= signature.needed && read[i] == Py_None) read[i] = nullptr;
    if (i < signature.needed && read[i] == nullptr) {
      throw InvalidArgument(
          str_format("{}(): '{}' is missing", signature.function(), signature.names[i]));
    }
  }
}

PassedTuple::PassedTuple(PyObject* arguments, PyObject* keywords) {
  const auto positional = static_cast<std::size_t>(PyTuple_Size(arguments));
  for (std::size_t i = 0; i < positional; ++i)
    values.push_back(PyTuple_GetItem(arguments, static_cast<Py_ssize_t>(i)));
  if (keywords != nullptr) {
    if (PyArg_ValidateKeywordArguments(keywords) == 0) throw PythonError();
    names = checked(PySequence_Tuple(keywords));
    for (Py_ssize_t i = 0; i < PyTuple_Size(names.get()); ++i)
      values.push_back(PyDict_GetItem(keywords, PyTuple_GetItem(names.get(), i)));
  }
  const std::span<PyObject* const> all(values);
  passed = {all.first(positional), all.subspan(positional), names.get()};
}

void refuse_object(PyObject* object, const char* what, PyTypeObject* expected) {
  const std::string name = to_text(
      checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(expected), "__name__")).get(),
      "a type's name");
  PyErr_Format(PyExc_TypeError, "%s: expected a cgtree.%s, not %R", what, name.c_str(),
               reinterpret_cast<PyObject*>(Py_TYPE(object)));
  throw PythonError();
}

PyTypeObject* add_type(PyObject* module, Type type, std::size_t bytes) {
  const char* const name = last_part(type.name);
  const Signature& signature = bind_signature(type.maker, signature_of("", name));
  const auto add = [&](int slot, void* value) {
    if (value != nullptr) type.slots.push_back({slot, value});
  };
  add(Py_tp_new, type.maker.called);
  add(Py_tp_doc, const_cast<char*>(signature.doc));
  add(Py_tp_methods, table_of(type.methods, name));
  add(Py_tp_getset, table_of(type.properties, name));
  add(Py_tp_members, type.members);
  type.slots.push_back({0, nullptr});
  type.flags |= Py_TPFLAGS_DEFAULT;
  if (type.maker.called == nullptr) type.flags |= Py_TPFLAGS_DISALLOW_INSTANTIATION;
  PyType_Spec spec = {type.name, static_cast<int>(bytes), 0, type.flags, type.slots.data()};
  Reference made = checked(PyType_FromSpec(&spec));
  check_status(PyModule_AddObjectRef(module, name, made.get()));
  return reinterpret_cast<PyTypeObject*>(made.release());
}

void add_functions(PyObject* module, std::vector<Method> functions) {
  check_status(PyModule_AddFunctions(module, table_of(functions, "")));
}

}  // namespace cgtree::python
