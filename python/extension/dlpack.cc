// DLPack in Python: capsules in both directions, and the exchange API between types.
#include "python/extension/dlpack.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/format.h"
#include "interop/device/stream.h"
#include "interop/exchange/dlpack.h"
#include "interop/exchange/dlpack_tensor.h"
#include "python/extension/import.h"
#include "python/extension/tensor.h"

namespace cgtree::python {
namespace {

// ---- Capsules ----

// Static, because a capsule keeps only the pointer. A consumer renames a capsule that it takes to
// "used_...". The destructor of a capsule that was not taken deletes its content. Source: DLPack,
// Python Specification.
constexpr const char* kVersioned = "dltensor_versioned";
constexpr const char* kUsedVersioned = "used_dltensor_versioned";
constexpr const char* kUnversioned = "dltensor";
constexpr const char* kUsedUnversioned = "used_dltensor";

// Requires: the lock. An exception in flight stays.
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

// Returns the struct of a capsule with this name, and renames the capsule; null for another name.
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

// The arguments of __dlpack__.
struct Request {
  DlpackExportOptions options;
  std::optional<dlpack::Version> max_version;
};

dlpack::Version read_version(PyObject* value) {
  constexpr const char* kWhat = "max_version";
  std::int64_t major = -1;
  std::int64_t minor = -1;
  if (PyTuple_Check(value) && PyTuple_Size(value) == 2) {  // nearly always
    major = to_int64(PyTuple_GetItem(value, 0), kWhat);
    minor = to_int64(PyTuple_GetItem(value, 1), kWhat);
  } else if (const auto numbers = to_integers(value, kWhat); numbers.size() == 2) {
    major = numbers[0];
    minor = numbers[1];
  }
  if (std::min(major, minor) < 0 || std::max(major, minor) > UINT32_MAX) {
    throw InvalidArgument("max_version: expected a pair (major, minor)");
  }
  return {static_cast<std::uint32_t>(major), static_cast<std::uint32_t>(minor)};
}

void read_keyword(const char* name, PyObject* value, Request& request) {
  const std::string_view given(name);
  if (given == "stream") {
    request.options.stream = static_cast<std::intptr_t>(to_int64(value, "stream"));
  } else if (given == "max_version") {
    request.max_version = read_version(value);
  } else if (given == "dl_device") {
    request.options.device = to_device(value);
  } else {
    request.options.copy = to_bool(value);
  }
}

// Compares names by address first, because it is called for each exported tensor.
Request read_request(PyObject* const* values, PyObject* names) {
  static const std::array kNames = {"stream", "max_version", "dl_device", "copy"};
  static const std::array kInterned = {
      PyUnicode_InternFromString(kNames[0]), PyUnicode_InternFromString(kNames[1]),
      PyUnicode_InternFromString(kNames[2]), PyUnicode_InternFromString(kNames[3])};
  Request request;
  for (Py_ssize_t i = 0; i < PyTuple_Size(names); ++i) {
    PyObject* const name = PyTuple_GetItem(names, i);
    std::size_t known = 0;
    while (known < kNames.size() && kInterned[known] != name)
      ++known;
    if (known == kNames.size()) {
      known = 0;
      while (known < kNames.size() && PyUnicode_CompareWithASCIIString(name, kNames[known]) != 0)
        ++known;
    }
    if (known == kNames.size()) {
      PyErr_Format(PyExc_TypeError, "__dlpack__() got an unexpected keyword argument %R", name);
      throw PythonError();
    }
    if (values[i] != Py_None) read_keyword(kNames[known], values[i], request);
  }
  return request;
}

// Copies may wait for a device.
template <const char* const& name, auto make>
Reference export_capsule(const Tensor& tensor, const DlpackExportOptions& options) {
  const auto run = [&] { return make(tensor, options); };
  const bool may_block = options.device || options.copy == true;
  return make_capsule<name>(may_block ? without_gil(run) : run());
}

PyObject* dlpack_capsule(PyObject* self, PyObject* const* values, Py_ssize_t count,
                         PyObject* names) {
  return guarded([&] {
    if (count != 0) {
      PyErr_SetString(PyExc_TypeError, "__dlpack__() takes keywords alone");
      throw PythonError();
    }
    const Request request = names == nullptr ? Request{} : read_request(values, names);
    const auto make = wants_versioned(request.max_version)
                          ? &export_capsule<kVersioned, &to_dlpack>
                          : &export_capsule<kUnversioned, &to_unversioned_dlpack>;
    return make(tensor_of(self), request.options).release();
  });
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
  // Guarded by the lock of the interpreter.
  static std::array<Known, 16> known;
  static std::size_t next = 0;
  for (const Known& entry : known) {
    if (entry.type == type) return entry.exchange;
  }
  const dlpack::Exchange* const exchange = ask(type);
  Known& entry = known[next++ % known.size()];
  Py_INCREF(reinterpret_cast<PyObject*>(type));
  // Releasing the last reference to a type may run code that calls this function.
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
    if (PyErr_Occurred() != nullptr) throw PythonError();  // the message of the other library
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
                      str_format("__dlpack_device__() is {}: expected a pair of integers of 32 "
                                 "bits, DLPack's type and number of the device",
                                 describe_value(pair.get())));
}

// Returns the `stream` argument of __dlpack__ for our stream. Work outside of a capture cannot wait
// for a capturing stream; then it asks for no wait.
Reference stream_number(dlpack::DeviceRef device, StreamRef consumer) {
  if (device.type != dlpack::kCuda && device.type != dlpack::kCudaManaged) {
    return Reference::borrow(Py_None);
  }
  if (consumer && consumer.device().type != DeviceType::kCuda) consumer = {};
  if (consumer && consumer.is_capturing()) return checked(PyLong_FromLong(-1));
  const auto handle = consumer ? static_cast<std::uintptr_t>(consumer.handle()) : 1;
  return checked(PyLong_FromUnsignedLongLong(handle == 0 ? 1 : handle));
}

// Producers before DLPack 1.0 do not know these keywords.
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
  return {{"__dlpack__", reinterpret_cast<void*>(dlpack_capsule), METH_FASTCALL | METH_KEYWORDS},
          bind<&dlpack_device>("__dlpack_device__")};
}

Tensor import_dlpack(PyObject* object, const ImportOptions& options) {
  ImportOptions import;
  import.consumer = options.consumer;
  if (PyCapsule_CheckExact(object)) return take(object, import);
  const dlpack::DeviceRef device = device_of(object);
  StreamRef consumer = options.consumer ? options.consumer : current_stream_or_none();
  if (options.on_any_device && consumer && consumer.device().type == DeviceType::kCuda &&
      device.type == dlpack::kCuda && consumer.device().id != device.id) {
    // The producer orders its work with a stream of its device, and we order ours with that stream.
    import.on_any_device = true;
    import.producer = {Device{DeviceType::kCuda, device.id}, StreamHandle::kLegacy};
    consumer = import.producer;
  }
  const Reference stream = stream_number(device, consumer);
  const Reference capsule = ask(object, stream);
  return take(capsule.get(), import);
}

}  // namespace cgtree::python
