// Tries the protocols in turn, first those that order work in both directions.
#include "python/extension/import.h"

#include "base/error.h"
#include "base/format.h"
#include "interop/exchange/foreign_array.h"
#include "python/extension/dlpack.h"
#include "python/extension/tensor.h"

namespace cgtree::python {
namespace {

[[noreturn]] void refuse_type(PyObject* object) {
  const Reference type = checked(PyObject_Repr(reinterpret_cast<PyObject*>(Py_TYPE(object))));
  throw BoundaryError(
      BoundaryFault::kWrongType,
      str_format("{} is no array that cgtree can take: expected a cgtree.Tensor, or an object "
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

// The exchange API describes the layout, but not the other properties that PyTorch knows.
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
      str_format("{} was to come in as {}", describe(tensor), name(*options.dtype)));
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
  if (cuda && names_a_stream(cuda.get())) return import_cuda_array(cuda.get(), object, options);
  if (!options.dtype && find_attribute(object, "__dlpack__") &&
      find_attribute(object, "__dlpack_device__")) {
    // NumPy's __dlpack__ refuses read-only arrays, but its array interface marks them.
    const Reference host = find_attribute(object, "__array_interface__");
    if (host) return import_host_array(object, object, options);
    Tensor tensor = import_dlpack(object, options);
    if (needs_wait != nullptr) *needs_wait |= tensor.device().type != DeviceType::kHost;
    return tensor;
  }
  if (cuda) return import_cuda_array(cuda.get(), object, options);
  if (find_attribute(object, "__array_interface__")) {
    return import_host_array(object, object, options);
  }
  refuse_type(object);
}

}  // namespace cgtree::python
