// Conversions that neither call Python's part of DLPack nor wait.
#include "python/extension/exchange.h"

#include <array>

#include "base/error.h"
#include "interop/exchange/dlpack_tensor.h"
#include "interop/exchange/dlpack.h"
#include "interop/exchange/stream_synchronization.h"
#include "python/extension/capsules.h"
#include "python/extension/tensor.h"
#include "python/extension/values.h"

namespace cgtree::python {
namespace {

constexpr const char* kCapsule = "dlpack_exchange_api";
constexpr const char* kAttribute = "__dlpack_c_exchange_api__";

DlpackExportOptions unordered(const Tensor& tensor) {
  DlpackExportOptions options;
  if (tensor.device().type != DeviceType::kHost) options.stream = -1;
  return options;
}

int from_object(void* object, dlpack::ManagedVersioned** out) noexcept {
  return guarded_status([&] {
    const Tensor& tensor = expect_tensor(static_cast<PyObject*>(object), "from_object");
    *out = to_dlpack(tensor, unordered(tensor)).release();
  });
}

int to_object(dlpack::ManagedVersioned* stolen, void** out) noexcept {
  return guarded_status([&] { *out = make_tensor(from_dlpack(stolen)).release(); });
}

// Borrows from the object, which holds its shape as long as it lives.
int view_of_object(void* object, dlpack::TensorView* out) noexcept {
  return guarded_status([&] {
    const Tensor& tensor = expect_tensor(static_cast<PyObject*>(object), "view_of_object");
    out->data = tensor.elements() == 0 ? nullptr : tensor.data();
    out->device = to_dlpack_device(tensor.device());
    out->ndim = tensor.rank();
    out->dtype = to_dlpack_type(tensor.dtype());
    out->shape = const_cast<std::int64_t*>(tensor.shape().dims().data());
    out->strides = const_cast<std::int64_t*>(tensor.shape().strides().data());
    out->byte_offset = 0;
  });
}

struct Known {
  PyTypeObject* type = nullptr;  // kept, so that no other type takes its address
  const dlpack::Exchange* exchange = nullptr;
};

const dlpack::Exchange* ask(PyTypeObject* type) {
  const Reference capsule = find_attribute(reinterpret_cast<PyObject*>(type), kAttribute);
  if (!capsule || PyCapsule_IsValid(capsule.get(), kCapsule) == 0) return nullptr;
  void* const table = PyCapsule_GetPointer(capsule.get(), kCapsule);
  return find_exchange(static_cast<const dlpack::ExchangeHeader*>(table));
}

}  // namespace

Reference exchange_capsule() {
  static dlpack::Exchange table = make_exchange(&from_object, &to_object, &view_of_object);
  return checked(PyCapsule_New(&table, kCapsule, nullptr));
}

const dlpack::Exchange* exchange_of(PyTypeObject* type) {
  // Of the interpreter, whose lock guards it.
  static std::array<Known, 16> known;
  static std::size_t next = 0;
  for (const Known& entry : known) {
    if (entry.type == type) return entry.exchange;
  }
  const dlpack::Exchange* const exchange = ask(type);
  Known& entry = known[next++ % known.size()];
  Py_INCREF(reinterpret_cast<PyObject*>(type));
  // The last reference to a type may run code that comes back here.
  const Reference last = Reference::steal(reinterpret_cast<PyObject*>(entry.type));
  entry = {type, exchange};
  return exchange;
}

// The other library's functions run Python, so the lock stays.
Tensor import_exchange(const dlpack::Exchange& exchange, PyObject* object,
                       const ObjectImport& options) {
  try {
    Tensor tensor = from_exchange(
        exchange, object, {options.consumer, options.sync.value_or(SyncPolicy::kEventWait)});
    if (options.dtype && *options.dtype != tensor.dtype()) {
      throw BoundaryError(BoundaryFault::kWrongValue,
                          describe(tensor) + " was to come in as another dtype");
    }
    return tensor;
  } catch (const BoundaryError&) {
    if (PyErr_Occurred() != nullptr) throw PythonError();  // the other library's own words
    throw;
  }
}

}  // namespace cgtree::python
