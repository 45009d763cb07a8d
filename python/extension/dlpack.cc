// DLPack in Python: capsules in both directions, and the exchange API between types.
#include "python/extension/dlpack.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "interop/device/stream.h"
#include "interop/exchange/dlpack.h"
#include "interop/exchange/dlpack_tensor.h"
#include "python/extension/import.h"
#include "python/extension/tensor.h"

namespace cgtree::python {
namespace {

// ---- Capsules ----

// Static, because a capsule keeps the pointer alone. A consumer renames a capsule that it takes to
// "used_...". The destructor of a capsule that was not taken deletes its content. Source: DLPack,
// Python Specification.
constexpr const char* kVersioned = "dltensor_versioned";
constexpr const char* kUsedVersioned = "used_dltensor_versioned";
constexpr const char* kUnversioned = "dltensor";
constexpr const char* kUsedUnversioned = "used_dltensor";

// Requires: the lock. An exception may be in flight, which stays.
template <typename T, const char* const& name>
void drop(PyObject* capsule) noexcept {
  if (PyCapsule_IsValid(capsule, name) == 0) return;
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  auto* const tensor = static_cast<T*>(PyCapsule_GetPointer(capsule, name));
  if (tensor != nullptr && tensor->deleter != nullptr) tensor->deleter(tensor);
  PyErr_Restore(type, value, traceback);
}

template <const char* const& name, typename Owner>
Reference make_capsule(Owner tensor) {
  using Struct = std::remove_pointer_t<decltype(tensor.get())>;
  Reference capsule = checked(PyCapsule_New(tensor.get(), name, drop<Struct, name>));
  (void)tensor.release();
  return capsule;
}

// Returns the struct of a capsule with this name, which has another one from then on, or null.
template <typename T>
T* take_struct(PyObject* capsule, const char* name, const char* used) {
  if (PyCapsule_IsValid(capsule, name) == 0) return nullptr;
  auto* const taken = static_cast<T*>(PyCapsule_GetPointer(capsule, name));
  check_status(PyCapsule_SetName(capsule, used));
  return taken;
}

Tensor take(PyObject* capsule, const ImportOptions& options) {
  if (auto* const taken =
          take_struct<dlpack::ManagedVersioned>(capsule, kVersioned, kUsedVersioned))
    return from_dlpack(taken, options);
  if (auto* const taken = take_struct<dlpack::Managed>(capsule, kUnversioned, kUsedUnversioned))
    return from_dlpack(taken, options);
  if (PyCapsule_IsValid(capsule, kUsedVersioned) != 0 ||
      PyCapsule_IsValid(capsule, kUsedUnversioned) != 0) {
    throw BoundaryError(BoundaryFault::kWrongValue,
                        "this DLPack capsule was consumed before: ask the producer for another");
  }
  throw BoundaryError(
      BoundaryFault::kWrongType,
      "expected a capsule named 'dltensor_versioned' or 'dltensor', or an object with __dlpack__");
}

// ---- Exports ----

std::optional<dlpack::Version> version_of(
    const std::optional<std::tuple<std::int64_t, std::int64_t>>& given) {
  if (!given) return std::nullopt;
  const auto [major, minor] = *given;
  if (std::min(major, minor) < 0 || std::max(major, minor) > UINT32_MAX) {
    throw InvalidArgument("max_version: expected a pair (major, minor)");
  }
  return dlpack::Version{static_cast<std::uint32_t>(major), static_cast<std::uint32_t>(minor)};
}

Reference export_capsule(const Tensor& tensor, std::optional<std::int64_t> stream,
                         const std::optional<std::tuple<std::int64_t, std::int64_t>>& max_version,
                         std::optional<Device> device, std::optional<bool> copy) {
  const DlpackExportOptions options = {.stream = stream, .device = device, .copy = copy};
  const auto made_by = [&](auto make) {
    const auto run = [&] { return make(tensor, options); };
    const bool may_block = device || copy == true;  // copies may wait for a device
    return may_block ? without_gil(run) : run();
  };
  if (wants_versioned(version_of(max_version))) return make_capsule<kVersioned>(made_by(to_dlpack));
  return make_capsule<kUnversioned>(made_by(to_unversioned_dlpack));
}

Reference dlpack_device(const Tensor& tensor) {
  const dlpack::DeviceRef device = to_dlpack_device(tensor.device());
  return pack(device.type, device.id);
}

// ---- The exchange API ----

constexpr const char* kCapsule = "dlpack_exchange_api";
constexpr const char* kAttribute = "__dlpack_c_exchange_api__";

int from_object(void* object, dlpack::ManagedVersioned** out) noexcept {
  return guarded_status([&] {
    const Tensor& tensor = expect_object<Tensor>(static_cast<PyObject*>(object), "from_object");
    *out = to_unordered_dlpack(tensor).release();
  });
}

int to_object(dlpack::ManagedVersioned* stolen, void** out) noexcept {
  return guarded_status([&] { *out = make_tensor(from_dlpack(stolen)).release(); });
}

// Writes a view that is valid as long as the object, which holds the shape.
int view_of_object(void* object, dlpack::TensorView* out) noexcept {
  return guarded_status([&] {
    *out = view_of(expect_object<Tensor>(static_cast<PyObject*>(object), "view_of_object"));
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
  // The lock of the interpreter guards it.
  static std::array<Known, 16> known;
  static std::size_t next = 0;
  for (const Known& entry : known) {
    if (entry.type == type) return entry.exchange;
  }
  const dlpack::Exchange* const exchange = ask(type);
  Known& entry = known[next++ % known.size()];
  Py_INCREF(reinterpret_cast<PyObject*>(type));
  // To release the last reference to a type may run code that calls this function.
  const Reference last = Reference::steal(reinterpret_cast<PyObject*>(entry.type));
  entry = {type, exchange};
  return exchange;
}

// Keeps the lock, because the functions of the other library run Python.
Tensor import_exchange(const dlpack::Exchange& exchange, PyObject* object,
                       const ImportOptions& options) {
  try {
    Tensor tensor = from_exchange(exchange, object, options);
    expect_dtype(options, tensor);
    return tensor;
  } catch (const BoundaryError&) {
    if (PyErr_Occurred() != nullptr) throw PythonError();  // the other library's own words
    throw;
  }
}

Reference export_exchange(const dlpack::Exchange& exchange, const Tensor& tensor) {
  if (exchange.to_object == nullptr) {
    throw BoundaryError(BoundaryFault::kNotSupported,
                        "the other library's exchange API makes no objects of its type");
  }
  DlpackTensor made = to_unordered_dlpack(tensor);
  void* object = nullptr;
  // It takes the struct even if it fails.
  if (exchange.to_object(made.release(), &object) != 0 || object == nullptr) throw PythonError();
  return Reference::steal(static_cast<PyObject*>(object));
}

// ---- Imports ----

namespace {

dlpack::DeviceRef device_of(PyObject* object) {
  const Reference pair = checked(PyObject_CallMethod(object, "__dlpack_device__", nullptr));
  const Reference items = is_tuple_or_list(pair.get()) ? items_of(pair.get()) : Reference();
  if (items && PyTuple_Size(items.get()) == 2) {
    const auto type = find_int64(PyTuple_GetItem(items.get(), 0));
    const auto id = find_int64(PyTuple_GetItem(items.get(), 1));
    const auto fits = [](std::optional<std::int64_t> number) {
      return number && *number >= INT32_MIN && *number <= INT32_MAX;
    };
    if (fits(type) && fits(id)) {
      return {static_cast<std::int32_t>(*type), static_cast<std::int32_t>(*id)};
    }
  }
  throw BoundaryError(BoundaryFault::kWrongType,
                      fmt::format("__dlpack_device__() is {}: expected a pair of integers of 32 "
                                  "bits, DLPack's type and number of the device",
                                  describe_value(pair.get())));
}

// Returns the `stream` argument of __dlpack__ for our stream. Work outside of a capture cannot wait
// for a stream that captures, so then it asks for no wait.
Reference stream_number(dlpack::DeviceRef device, StreamRef consumer) {
  if (device.type != dlpack::kCuda && device.type != dlpack::kCudaManaged) {
    return Reference::borrow(Py_None);
  }
  if (consumer && consumer.device().type != DeviceType::kCuda) consumer = {};
  if (consumer && consumer.is_capturing()) return checked(PyLong_FromLong(-1));
  const auto handle = consumer ? static_cast<std::uintptr_t>(consumer.handle()) : 1;
  return checked(PyLong_FromUnsignedLongLong(handle == 0 ? 1 : handle));
}

// Producers before DLPack 1.0 know neither keyword.
Reference ask(PyObject* object, const Reference& stream) {
  const Reference method = checked(PyObject_GetAttrString(object, "__dlpack__"));
  const Reference none = checked(PyTuple_New(0));
  const Reference newer = new_dict("stream", stream.get(), "max_version",
                                   pack(dlpack::kVersion.major, dlpack::kVersion.minor));
  PyObject* const capsule = PyObject_Call(method.get(), none.get(), newer.get());
  if (capsule != nullptr) return Reference::steal(capsule);
  if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw PythonError();
  PyErr_Clear();
  const Reference older = new_dict("stream", stream.get());
  return checked(PyObject_Call(method.get(), none.get(), older.get()));
}

}  // namespace

std::vector<Method> dlpack_methods() {
  return {bind<&export_capsule>("__dlpack__"), bind<&dlpack_device>("__dlpack_device__")};
}

Tensor import_dlpack(PyObject* object, const ImportOptions& options) {
  ImportOptions import;
  import.consumer = options.consumer;
  if (PyCapsule_CheckExact(object)) return take(object, import);
  const dlpack::DeviceRef device = device_of(object);
  StreamRef consumer = options.consumer ? options.consumer : current_stream_or_none();
  if (options.on_any_device && consumer && consumer.device().type == DeviceType::kCuda &&
      device.type == dlpack::kCuda && consumer.device().id != device.id) {
    // The producer orders its work with a stream of its device, and we order ours with that.
    import.on_any_device = true;
    import.producer = {Device{DeviceType::kCuda, device.id}, StreamHandle::kLegacy};
    consumer = import.producer;
  }
  const Reference stream = stream_number(device, consumer);
  const Reference capsule = ask(object, stream);
  return take(capsule.get(), import);
}

}  // namespace cgtree::python
