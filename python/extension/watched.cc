// Compares hundreds of names and tensors with what they were, in nanoseconds each.
#include "python/extension/watched.h"

#include <array>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "interop/exchange/dlpack.h"
#include "interop/tensor/shape.h"
#include "python/extension/dlpack.h"
#include "python/extension/module.h"
#include "python/extension/python.h"
#include "python/extension/values.h"

namespace cgtree::python {
namespace {

// Objects are borrowed from Watched::kept.
struct WholeDict {
  PyObject* dict;
  std::vector<std::pair<PyObject*, PyObject*>> items;
};
struct Place {
  PyObject* container;  // a dict, list or tuple
  PyObject* name;
  Py_ssize_t index;
  PyObject* value;
};
struct Cell {
  PyObject* cell;
  PyObject* value;
};
struct WatchedTensor {
  PyObject* object;
  const dlpack::Exchange* exchange;
  const void* data;
  std::vector<std::int64_t> layout;  // sizes, then strides
  bool requires_grad;
};

struct Watched {
  bool has_gradients = false;  // so that requires_grad is compared
  std::vector<Reference> kept;
  std::vector<WholeDict> dicts;
  std::vector<Place> places;
  std::vector<Cell> cells;
  std::vector<WatchedTensor> tensors;
  std::vector<std::pair<PyObject*, Reference>> other_tensors;  // with their data_ptr()

  PyObject* keep(PyObject* object) {
    kept.push_back(Reference::borrow(object));
    return object;
  }
};

struct WatchedObject {
  PyObject ob_base;
  Watched watched;
};

PyTypeObject* g_type = nullptr;

Watched& watched_of(PyObject* self) {
  return reinterpret_cast<WatchedObject*>(self)->watched;
}

// ---- What holds ----

bool is_whole(const WholeDict& whole) {
  if (PyDict_Size(whole.dict) != static_cast<Py_ssize_t>(whole.items.size())) return false;
  Py_ssize_t position = 0;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  for (const auto& [name, expected] : whole.items) {
    if (PyDict_Next(whole.dict, &position, &key, &value) == 0) return false;
    if (key != name || value != expected) return false;
  }
  return true;
}

bool is_there(const Place& place) {
  PyObject* const container = place.container;
  if (PyDict_Check(container)) {
    PyObject* const found = PyDict_GetItemWithError(container, place.name);
    if (found == nullptr && PyErr_Occurred() != nullptr) throw PythonError();
    return found == place.value;
  }
  if (PyList_Check(container)) {
    return place.index < PyList_Size(container) &&
           PyList_GetItem(container, place.index) == place.value;
  }
  return PyTuple_GetItem(container, place.index) == place.value;
}

bool has_value(const Cell& cell, PyObject* attribute) {
  const Reference found = Reference::steal(PyObject_GetAttr(cell.cell, attribute));
  if (!found) PyErr_Clear();  // the variable was deleted
  return found.get() == cell.value;
}

bool view_of(const dlpack::Exchange& exchange, PyObject* object, dlpack::TensorView& view) {
  if (exchange.view_of_object(object, &view) == 0) return true;
  PyErr_Clear();
  return false;
}

bool is_where_it_was(const WatchedTensor& tensor) {
  dlpack::TensorView view;
  if (!view_of(*tensor.exchange, tensor.object, view)) return false;
  const auto rank = tensor.layout.size() / 2;
  if (view.data != tensor.data || static_cast<std::size_t>(view.ndim) != rank) return false;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    if (view.shape[axis] != tensor.layout[axis]) return false;
    if (view.strides[axis] != tensor.layout[rank + axis]) return false;
  }
  return true;
}

Reference data_pointer(PyObject* tensor) {
  return checked(PyObject_CallMethod(tensor, "data_ptr", nullptr));
}

template <typename Parts, typename Test>
bool all_of(const Parts& parts, Test test) {
  for (const auto& part : parts) {
    if (!test(part)) return false;
  }
  return true;
}

// ---- Making one ----

void add_tensor(Watched& watched, PyObject* object) {
  watched.keep(object);
  const dlpack::Exchange* const exchange = exchange_of(Py_TYPE(object));
  dlpack::TensorView view;
  if (exchange == nullptr || exchange->view_of_object == nullptr ||
      !view_of(*exchange, object, view) || (view.ndim > 0 && view.strides == nullptr)) {
    watched.other_tensors.emplace_back(object, data_pointer(object));
    return;
  }
  const auto rank = static_cast<std::size_t>(view.ndim);
  WatchedTensor tensor{object,
                       exchange,
                       view.data,
                       {view.shape, view.shape + rank},
                       watched.has_gradients && requires_grad(object)};
  tensor.layout.insert(tensor.layout.end(), view.strides, view.strides + rank);
  watched.tensors.push_back(std::move(tensor));
}

void add_dict(Watched& watched, PyObject* dict) {
  if (!PyDict_Check(dict)) {
    PyErr_SetString(PyExc_TypeError, "Watched(): expected dicts");
    throw PythonError();
  }
  WholeDict whole{watched.keep(dict), {}};
  Py_ssize_t position = 0;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  while (PyDict_Next(dict, &position, &key, &value) != 0)
    whole.items.emplace_back(watched.keep(key), watched.keep(value));
  watched.dicts.push_back(std::move(whole));
}

void add_place(Watched& watched, PyObject* container, PyObject* name, PyObject* value) {
  if (!PyDict_Check(container) && !PyList_Check(container) && !PyTuple_Check(container)) {
    PyErr_SetString(PyExc_TypeError, "Watched(): expected dicts, lists and tuples");
    throw PythonError();
  }
  const Py_ssize_t index = PyDict_Check(container) ? 0 : PyLong_AsSsize_t(name);
  if (index == -1 && PyErr_Occurred() != nullptr) throw PythonError();
  watched.places.push_back(
      {watched.keep(container), watched.keep(name), index, watched.keep(value)});
}

PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject*) {
  return guarded([&] {
    std::array<PyObject*, 4> lists{};  // dicts, (container, name, value), (cell, value), tensors
    int has_gradients = 0;
    if (PyArg_ParseTuple(arguments, "O!O!O!O!p", &PyList_Type, &lists[0], &PyList_Type, &lists[1],
                         &PyList_Type, &lists[2], &PyList_Type, &lists[3], &has_gradients) == 0) {
      throw PythonError();
    }
    const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
    Reference self = checked(allocate(type, 0));
    Watched& watched = *new (&watched_of(self.get())) Watched();
    watched.has_gradients = has_gradients != 0;
    for (Py_ssize_t i = 0; i < PyList_Size(lists[0]); ++i)
      add_dict(watched, PyList_GetItem(lists[0], i));
    for (Py_ssize_t i = 0; i < PyList_Size(lists[1]); ++i) {
      PyObject* parts[3];
      if (PyArg_ParseTuple(PyList_GetItem(lists[1], i), "OOO", &parts[0], &parts[1], &parts[2]) ==
          0) {
        throw PythonError();
      }
      add_place(watched, parts[0], parts[1], parts[2]);
    }
    for (Py_ssize_t i = 0; i < PyList_Size(lists[2]); ++i) {
      PyObject* parts[2];
      if (PyArg_ParseTuple(PyList_GetItem(lists[2], i), "OO", &parts[0], &parts[1]) == 0) {
        throw PythonError();
      }
      watched.cells.push_back({watched.keep(parts[0]), watched.keep(parts[1])});
    }
    for (Py_ssize_t i = 0; i < PyList_Size(lists[3]); ++i)
      add_tensor(watched, PyList_GetItem(lists[3], i));
    return self.release();
  });
}

PyObject* call_holds(PyObject* self, PyObject*) {
  return guarded([&] { return PyBool_FromLong(holds(self) ? 1 : 0); });
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<PyObject*>(Py_TYPE(self)));
  for (const Reference& object : watched_of(self).kept)
    Py_VISIT(object.get());
  return 0;
}

int clear(PyObject* self) {
  const Watched last = std::exchange(watched_of(self), {});
  return 0;
}

void dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  std::destroy_at(&watched_of(self));
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_GC_Del(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

PyMethodDef methods[] = {{"holds", call_holds, METH_NOARGS,
                          "holds() -> bool: whether all of it is as it was when this was made."},
                         {nullptr, nullptr, 0, nullptr}};

constexpr const char* kDoc =
    "Watched(dicts, places, cells, tensors, has_gradients): dicts whose items stay the same "
    "objects; lists of\n"
    "(container, name, value), of a dict, list or tuple that has this very object there; of\n"
    "(cell, value); and of torch.Tensors that stay where they are and, if there are gradients, "
    "require\n"
    "them or not as before.";

}  // namespace

bool requires_grad(PyObject* tensor) {
  static PyObject* const name = checked(PyUnicode_InternFromString("requires_grad")).release();
  return to_bool(checked(PyObject_GetAttr(tensor, name)).get());
}

void expect_watched(PyObject* object) {
  if (Py_TYPE(object) == g_type) return;
  PyErr_SetString(PyExc_TypeError, "expected a cgtree.Watched");
  throw PythonError();
}

bool holds(PyObject* self) {
  // A container may be changed by what compares names, so what is compared is kept.
  const Watched& watched = watched_of(self);
  static PyObject* const contents = checked(PyUnicode_InternFromString("cell_contents")).release();
  return all_of(watched.dicts, is_whole) && all_of(watched.places, is_there) &&
         all_of(watched.cells, [](const Cell& cell) { return has_value(cell, contents); }) &&
         all_of(watched.tensors, is_where_it_was) &&
         (!watched.has_gradients || all_of(watched.tensors,
                                           [](const WatchedTensor& tensor) {
                                             return requires_grad(tensor.object) ==
                                                    tensor.requires_grad;
                                           })) &&
         all_of(watched.other_tensors, [](const auto& tensor) {
           const Reference now = data_pointer(tensor.first);
           const int is_same = PyObject_RichCompareBool(now.get(), tensor.second.get(), Py_EQ);
           check_status(is_same);
           return is_same != 0;
         });
}

void add_watched_type(PyObject* module) {
  PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(make)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                         {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                         {Py_tp_clear, reinterpret_cast<void*>(clear)},
                         {Py_tp_doc, const_cast<char*>(kDoc)},
                         {Py_tp_methods, methods},
                         {0, nullptr}};
  PyType_Spec spec = {"cgtree.Watched", sizeof(WatchedObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
  g_type = add_type(module, "Watched", spec);
}

}  // namespace cgtree::python
