// Tries the protocols in turn, beginning with those that order work in both directions.
#include "python/extension/import.h"

#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "interop/device/stream.h"
#include "interop/exchange/cuda_array_interface.h"
#include "interop/exchange/foreign_array.h"
#include "python/extension/array_interface.h"
#include "python/extension/dlpack.h"
#include "python/extension/tensor.h"

namespace cgtree::python {
namespace {

// Returns the dict of the protocol: the attribute of an object, or the dict itself.
Reference dict_of(PyObject* object, const char* attribute) {
  if (PyDict_Check(object)) return Reference::borrow(object);
  Reference dict = checked(PyObject_GetAttrString(object, attribute));
  if (PyDict_Check(dict.get())) return dict;
  throw BoundaryError(BoundaryFault::kWrongType,
                      fmt::format("'{}' is not a dict, which the protocol says it is", attribute));
}

std::shared_ptr<void> owner_of(PyObject* owner) {
  return owner == nullptr ? nullptr : keep_object(owner);
}

bool is_of_cupy(PyObject* object) {
  const Reference module =
      find_attribute(reinterpret_cast<PyObject*>(Py_TYPE(object)), "__module__");
  return module && PyUnicode_Check(module.get()) &&
         to_text(module.get(), "module").starts_with("cupy");
}

// The protocol says that the stream lives as long as the array. CuPy names its current stream, but
// its arrays do not keep that stream alive.
std::shared_ptr<void> owner_with_stream(PyObject* owner) {
  if (owner == nullptr || !is_of_cupy(owner)) return owner_of(owner);
  const Reference cuda = checked(PyImport_ImportModule("cupy.cuda"));
  const Reference stream = checked(PyObject_CallMethod(cuda.get(), "get_current_stream", nullptr));
  return keep_object(checked(PyTuple_Pack(2, owner, stream.get())).get());
}

bool names_a_stream(PyObject* dict) {
  const Reference key = from_text("stream");
  PyObject* const stream = PyDict_GetItemWithError(dict, key.get());
  if (stream == nullptr && PyErr_Occurred() != nullptr) throw PythonError();
  return stream != nullptr && stream != Py_None;
}

Tensor import_cuda_dict(PyObject* dict, PyObject* owner, const ImportOptions& options) {
  const CudaArrayInterface array = read_interface(dict);
  const bool is_ordered = array.stream && *array.stream > 2;  // not one of the default streams
  std::shared_ptr<void> kept = is_ordered ? owner_with_stream(owner) : owner_of(owner);
  const GilRelease released;
  return from_cuda_array_interface(array, std::move(kept), options);
}

[[noreturn]] void refuse_type(PyObject* object) {
  const Reference type = checked(PyObject_Repr(reinterpret_cast<PyObject*>(Py_TYPE(object))));
  throw BoundaryError(
      BoundaryFault::kWrongType,
      fmt::format("{} is no array that cgtree can take: expected a cgtree.Tensor, or an object "
                  "with __dlpack__, __cuda_array_interface__ or __array_interface__",
                  to_text(type.get(), "a type")));
}

// Calls a method without arguments, and returns false for an object without it.
bool says(PyObject* object, const char* method) {
  const Reference function = find_attribute(object, method);
  return function && to_bool(checked(PyObject_CallNoArgs(function.get())).get());
}

// Returns whether PyTorch would compute gradients here.
bool are_gradients_wanted() {
  const Reference torch = Reference::steal(PyImport_GetModule(from_text("torch").get()));
  if (!torch && PyErr_Occurred() != nullptr) throw PythonError();
  return !torch || says(torch.get(), "is_grad_enabled");
}

// The exchange API says where the elements lie, and not what else PyTorch knows of them.
void expect_plain_values(PyObject* object) {
  const Reference requires_grad = find_attribute(object, "requires_grad");
  if (requires_grad && to_bool(requires_grad.get()) && are_gradients_wanted()) {
    throw BoundaryError(BoundaryFault::kNotSupported,
                        "the tensor requires gradients, which do not pass through cgtree: pass "
                        "tensor.detach(), or call under torch.no_grad()");
  }
  expect_resolved_values(object);
}

}  // namespace

void expect_dtype(const ImportOptions& options, const Tensor& tensor) {
  if (!options.dtype || *options.dtype == tensor.dtype()) return;
  throw BoundaryError(
      BoundaryFault::kWrongValue,
      fmt::format("{} was to come in as {}", describe(tensor), name(*options.dtype)));
}

void expect_resolved_values(PyObject* object) {
  if (says(object, "is_neg")) {
    throw BoundaryError(BoundaryFault::kNotSupported,
                        "the tensor has the negative bit, so that its memory holds the opposite of "
                        "its values: pass tensor.resolve_neg()");
  }
  if (says(object, "is_conj")) {
    throw BoundaryError(BoundaryFault::kNotSupported,
                        "the tensor has the conjugate bit, so that its memory holds the conjugates "
                        "of its values: pass tensor.resolve_conj()");
  }
}

Tensor import_cuda_array(PyObject* object, PyObject* owner, const ImportOptions& options) {
  const Reference dict = dict_of(object, "__cuda_array_interface__");
  return import_cuda_dict(dict.get(), owner, options);
}

Tensor import_host_array(PyObject* object, PyObject* owner, const ImportOptions& options) {
  const Reference dict = dict_of(object, "__array_interface__");
  ForeignArray array = read_array(read_interface(dict.get()), options.dtype);
  array.device = Device::host();
  array.is_machine_memory = true;
  array.stream.reset();
  array.owner = owner_of(owner);
  return import_array(std::move(array),
                      {.consumer = StreamRef(Device::host(), StreamHandle::kLegacy)});
}

Tensor import_object(PyObject* object, const ImportOptions& options, bool* needs_wait) {
  if (is_tensor(object)) {
    expect_dtype(options, tensor_of(object));
    return tensor_of(object);
  }
  if (const dlpack::Exchange* exchange = exchange_of(Py_TYPE(object))) {
    expect_plain_values(object);
    return import_exchange(*exchange, object, options);
  }
  const Reference cuda = find_attribute(object, "__cuda_array_interface__");
  if (cuda && !PyDict_Check(cuda.get())) (void)dict_of(object, "__cuda_array_interface__");
  if (cuda && names_a_stream(cuda.get())) return import_cuda_dict(cuda.get(), object, options);
  if (!options.dtype && find_attribute(object, "__dlpack__") &&
      find_attribute(object, "__dlpack_device__")) {
    // NumPy's __dlpack__ refuses read-only arrays, and its array interface marks them.
    const Reference host = find_attribute(object, "__array_interface__");
    if (host) return import_host_array(object, object, options);
    Tensor tensor = import_dlpack(object, options);
    if (needs_wait != nullptr) *needs_wait |= tensor.device().type != DeviceType::kHost;
    return tensor;
  }
  if (cuda) return import_cuda_dict(cuda.get(), object, options);
  if (find_attribute(object, "__array_interface__")) {
    return import_host_array(object, object, options);
  }
  refuse_type(object);
}

}  // namespace cgtree::python
