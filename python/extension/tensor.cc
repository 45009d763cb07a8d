// The Python type cgtree.Tensor: its lifetime and its properties.
#include "python/extension/tensor.h"

#include <structmember.h>

#include <cstddef>
#include <new>

#include "base/error.h"
#include "interop/tensor/stream_synchronization.h"
#include "python/extension/dlpack.h"
#include "python/extension/module.h"

namespace cgtree::python {
namespace {

struct TensorObject {
  Object<Tensor> object;
  PyObject* weak_references;
};

// Returns whether this is the last handle of memory whose release may block, because it calls a
// device or another library.
bool may_block(const Tensor& tensor) noexcept {
  return tensor.defined() && tensor.storage()->references() == 1 &&
         !tensor.storage()->may_be_invalidated();
}

void dealloc(PyObject* self) {
  if (reinterpret_cast<TensorObject*>(self)->weak_references != nullptr)
    PyObject_ClearWeakRefs(self);
  {
    Tensor last = std::move(tensor_of(self));
    std::destroy_at(&tensor_of(self));
    if (may_block(last) && interpreter_is_alive()) end_without_gil(std::move(last));
  }
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_Free(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

Reference strides(const Tensor& tensor) {
  return from_integers(tensor.shape().strides(),
                       static_cast<std::int64_t>(size_of(tensor.dtype())));
}
Reference repr(const Tensor& tensor) {
  return from_text("cgtree.Tensor(" + describe(tensor) + ")");
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

std::vector<Property> properties() {
  std::vector<Property> all = {
      property<[](const Tensor& tensor) { return from_integers(tensor.shape().dims()); }>("shape"),
      property<&strides>("strides"),
      property<[](const Tensor& tensor) { return name(tensor.dtype()); }>("dtype"),
      property<&Tensor::device>("device"),
      property<&Tensor::rank>("ndim"),
      property<&Tensor::elements>("size"),
      property<[](const Tensor& tensor) { return size_of(tensor.dtype()); }>("itemsize"),
      property<&Tensor::bytes>("nbytes"),
      property<[](const Tensor& tensor) { return tensor.data(); }>("data_ptr"),
      property<&Tensor::is_contiguous>("is_contiguous"),
      property<[](const Tensor& tensor) { return is_read_only(tensor); }>("read_only")};
  for (const Property& each : array_interface_properties())
    all.push_back(each);
  return all;
}

}  // namespace

Reference make_tensor(Tensor tensor) {
  auto* const object = PyObject_New(TensorObject, type_of<Tensor>);
  if (object == nullptr) throw PythonError();
  object->weak_references = nullptr;
  new (&object->object.value) Tensor(std::move(tensor));
  return Reference::steal(reinterpret_cast<PyObject*>(object));
}

void add_tensor_type(PyObject* module) {
  std::vector<Method> methods;
  for (const auto& more :
       {tensor_view_methods(), copy_methods(), dlpack_methods(), array_interface_methods()})
    methods.insert(methods.end(), more.begin(), more.end());
  type_of<Tensor> = add_type(module,
                             {.name = "cgtree.Tensor",
                              .methods = std::move(methods),
                              .properties = properties(),
                              .slots = {{Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                                        slot<&repr>(Py_tp_repr),
                                        {Py_nb_bool, reinterpret_cast<void*>(truth)},
                                        {Py_mp_length, reinterpret_cast<void*>(length)},
                                        {Py_mp_subscript, reinterpret_cast<void*>(tensor_getitem)}},
                              .members = members},
                             sizeof(TensorObject));
  check_status(PyObject_SetAttrString(reinterpret_cast<PyObject*>(type_of<Tensor>),
                                      "__dlpack_c_exchange_api__", exchange_capsule().get()));
}

}  // namespace cgtree::python
