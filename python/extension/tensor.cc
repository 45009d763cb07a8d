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
#include "python/extension/object.h"
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

Reference shape(PyObject* self) {
  return from_integers(tensor_of(self).shape().dims());
}
Reference strides(PyObject* self) {
  const Tensor& tensor = tensor_of(self);
  return from_integers(tensor.shape().strides(),
                       static_cast<std::int64_t>(size_of(tensor.dtype())));
}
std::string_view dtype(PyObject* self) {
  return name(tensor_of(self).dtype());
}
std::string device(PyObject* self) {
  return to_string(tensor_of(self).device());
}
int rank(PyObject* self) {
  return tensor_of(self).rank();
}
std::int64_t elements(PyObject* self) {
  return tensor_of(self).elements();
}
std::size_t item_bytes(PyObject* self) {
  return size_of(tensor_of(self).dtype());
}
std::size_t bytes(PyObject* self) {
  return tensor_of(self).bytes();
}
const void* data_ptr(PyObject* self) {
  return tensor_of(self).data();
}
bool contiguous(PyObject* self) {
  return tensor_of(self).is_contiguous();
}
bool read_only(PyObject* self) {
  return is_read_only(tensor_of(self));
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
    property<shape>("shape", "Sizes of the axes, in elements: a tuple of int."),
    property<strides>("strides", "Steps of the axes, in bytes: a tuple of int."),
    property<dtype>("dtype", "Name of the element type, such as 'float32'."),
    property<device>("device", "Where the memory lies, such as 'cuda:0' or 'host:0'."),
    property<rank>("ndim", "Number of axes."),
    property<elements>("size", "Number of elements."),
    property<item_bytes>("itemsize", "Bytes of one element."),
    property<bytes>("nbytes", "size * itemsize."),
    property<data_ptr>("data_ptr",
                       "Address of the first element, on its device. Raises StaleTensor."),
    property<contiguous>("is_contiguous", "Whether the elements are row-major, without gaps."),
    property<read_only>("read_only", "Whether the memory may not be written."),
    property<cuda_array_interface_property>(
        "__cuda_array_interface__",
        "Version 3 of the protocol. AttributeError on the host device. Raises StaleTensor."),
    property<array_interface_property>(
        "__array_interface__",
        "NumPy's protocol. AttributeError but on the host device. Raises StaleTensor."),
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
