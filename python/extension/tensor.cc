// The Python type cgtree.Tensor: its lifetime and its properties.
#include "python/extension/tensor.h"

#include <structmember.h>

#include <cstddef>
#include <new>
#include <vector>

#include "base/error.h"
#include "interop/tensor/stream_synchronization.h"
#include "python/extension/dlpack.h"
#include "python/extension/module.h"
#include "python/extension/python.h"
#include "python/extension/values.h"

namespace cgtree::python {

PyTypeObject* tensor_type = nullptr;

namespace {

// Tells whether this is the last handle of memory whose release may block, because a device or
// another library is told of it.
bool may_block(const Tensor& tensor) noexcept {
  return tensor.defined() && tensor.storage()->references() == 1 &&
         !tensor.storage()->owner().may_be_invalidated();
}

void dealloc(PyObject* self) {
  auto* const object = reinterpret_cast<TensorObject*>(self);
  if (object->weak_references != nullptr) PyObject_ClearWeakRefs(self);
  {
    Tensor last = std::move(object->tensor);
    std::destroy_at(&object->tensor);
    if (may_block(last) && interpreter_is_alive()) {
      const GilRelease released;
      last = Tensor();
    }
  }
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_Free(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

PyObject* shape(PyObject* self, void*) {
  return guarded([&] { return from_integers(tensor_of(self).shape().dims()).release(); });
}
PyObject* strides(PyObject* self, void*) {
  return guarded([&] {
    const Tensor& tensor = tensor_of(self);
    return from_integers(tensor.shape().strides(),
                         static_cast<std::int64_t>(size_of(tensor.dtype())))
        .release();
  });
}
PyObject* dtype(PyObject* self, void*) {
  return guarded([&] { return from_text(name(tensor_of(self).dtype())).release(); });
}
PyObject* device(PyObject* self, void*) {
  return guarded([&] { return from_text(to_string(tensor_of(self).device())).release(); });
}
PyObject* rank(PyObject* self, void*) {
  return PyLong_FromLong(tensor_of(self).rank());
}
PyObject* elements(PyObject* self, void*) {
  return PyLong_FromLongLong(tensor_of(self).elements());
}
PyObject* item_bytes(PyObject* self, void*) {
  return PyLong_FromSize_t(size_of(tensor_of(self).dtype()));
}
PyObject* bytes(PyObject* self, void*) {
  return PyLong_FromSize_t(tensor_of(self).bytes());
}
PyObject* data_ptr(PyObject* self, void*) {
  return guarded([&] { return PyLong_FromVoidPtr(tensor_of(self).data()); });
}
PyObject* contiguous(PyObject* self, void*) {
  return PyBool_FromLong(tensor_of(self).is_contiguous() ? 1 : 0);
}
PyObject* read_only(PyObject* self, void*) {
  return PyBool_FromLong(is_read_only(tensor_of(self)) ? 1 : 0);
}

PyObject* repr(PyObject* self) {
  return guarded(
      [&] { return from_text("cgtree.Tensor(" + describe(tensor_of(self)) + ")").release(); });
}

Py_ssize_t length(PyObject* self) {
  const Tensor& tensor = tensor_of(self);
  if (tensor.rank() > 0) return static_cast<Py_ssize_t>(tensor.shape().dim(0));
  PyErr_SetString(PyExc_TypeError, "len() of a tensor without dimensions");
  return -1;
}

int truth(PyObject*) {
  PyErr_SetString(PyExc_TypeError,
                  "the truth value of a cgtree.Tensor would have to wait for the device: write `is "
                  "not None`, `len(tensor) > 0` or `any(tensor.tobytes())`");
  return -1;
}

PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(TensorObject, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyGetSetDef properties[] = {
    {"shape", shape, nullptr, "Sizes of the axes, in elements: a tuple of int.", nullptr},
    {"strides", strides, nullptr, "Steps of the axes, in bytes: a tuple of int.", nullptr},
    {"dtype", dtype, nullptr, "Name of the element type, such as 'float32'.", nullptr},
    {"device", device, nullptr, "Where the memory lies, such as 'cuda:0' or 'host:0'.", nullptr},
    {"ndim", rank, nullptr, "Number of axes.", nullptr},
    {"size", elements, nullptr, "Number of elements.", nullptr},
    {"itemsize", item_bytes, nullptr, "Bytes of one element.", nullptr},
    {"nbytes", bytes, nullptr, "size * itemsize.", nullptr},
    {"data_ptr", data_ptr, nullptr,
     "Address of the first element, on its device. Raises StaleTensor.", nullptr},
    {"is_contiguous", contiguous, nullptr, "Whether the elements are row-major, without gaps.",
     nullptr},
    {"read_only", read_only, nullptr, "Whether the memory may not be written.", nullptr},
    {"__cuda_array_interface__", cuda_array_interface_property, nullptr,
     "Version 3 of the protocol. AttributeError on the host device. Raises StaleTensor.", nullptr},
    {"__array_interface__", array_interface_property, nullptr,
     "NumPy's protocol. AttributeError but on the host device. Raises StaleTensor.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

constexpr const char* kDoc =
    "A typed, shaped view of device memory; a handle: copying it copies no data.\n\n"
    "Made by empty(), as_tensor(), from_dlpack() and compiled functions. Other libraries take it\n"
    "through __cuda_array_interface__, __dlpack__ and, on the host device, __array_interface__.\n\n"
    ">>> x = cgtree.empty((2, 3), \"int32\", device=\"host\")\n"
    ">>> x.shape, x.strides, x.nbytes\n"
    "((2, 3), (12, 4), 24)\n";

}  // namespace

Tensor& expect_tensor(PyObject* object, const char* what) {
  if (is_tensor(object)) return tensor_of(object);
  PyErr_Format(PyExc_TypeError, "%s: expected a cgtree.Tensor, not %R", what,
               reinterpret_cast<PyObject*>(Py_TYPE(object)));
  throw PythonError();
}

Reference make_tensor(Tensor tensor) {
  auto* const object = PyObject_New(TensorObject, tensor_type);
  if (object == nullptr) throw PythonError();
  object->weak_references = nullptr;
  new (&object->tensor) Tensor(std::move(tensor));
  return Reference::steal(reinterpret_cast<PyObject*>(object));
}

void add_tensor_type(PyObject* module) {
  // The type refers to them as long as it lives.
  static std::vector<PyMethodDef> methods;
  for (const PyMethodDef* list : {tensor_view_methods, tensor_protocol_methods}) {
    for (const PyMethodDef* method = list; method->ml_name != nullptr; ++method)
      methods.push_back(*method);
  }
  methods.push_back({nullptr, nullptr, 0, nullptr});
  PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                         {Py_tp_repr, reinterpret_cast<void*>(repr)},
                         {Py_tp_doc, const_cast<char*>(kDoc)},
                         {Py_tp_members, members},
                         {Py_tp_getset, properties},
                         {Py_tp_methods, methods.data()},
                         {Py_nb_bool, reinterpret_cast<void*>(truth)},
                         {Py_mp_length, reinterpret_cast<void*>(length)},
                         {Py_mp_subscript, reinterpret_cast<void*>(tensor_getitem)},
                         {0, nullptr}};
  PyType_Spec spec = {"cgtree.Tensor", sizeof(TensorObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  tensor_type = reinterpret_cast<PyTypeObject*>(checked(PyType_FromSpec(&spec)).release());
  PyObject* const type = reinterpret_cast<PyObject*>(tensor_type);
  check_status(PyObject_SetAttrString(type, "__dlpack_c_exchange_api__", exchange_capsule().get()));
  check_status(PyModule_AddObjectRef(module, "Tensor", type));
}

}  // namespace cgtree::python
