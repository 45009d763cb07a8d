// Asks an object for a capsule, and takes what is in it.
#include <fmt/format.h>

#include "base/error.h"
#include "interop/device/stream.h"
#include "interop/exchange/dlpack_tensor.h"
#include "interop/exchange/foreign_memory.h"
#include "python/extension/capsules.h"
#include "python/extension/errors.h"
#include "python/extension/import.h"
#include "python/extension/values.h"

namespace cgtree::python {
namespace {

Tensor take(PyObject* capsule, const DlpackImportOptions& options) {
  const TakenCapsule taken = take_capsule(capsule);
  if (taken.versioned != nullptr) return from_dlpack(taken.versioned, options);
  return from_dlpack(taken.unversioned, options);
}

dlpack::DeviceRef device_of(PyObject* object) {
  const Reference pair = checked(PyObject_CallMethod(object, "__dlpack_device__", nullptr));
  const InterfaceValue value = to_interface_value(pair.get());
  const auto* const list = std::get_if<InterfaceList>(&value.value);
  const bool is_pair = list != nullptr && list->size() == 2;
  const auto* const type = is_pair ? std::get_if<std::int64_t>(&(*list)[0].value) : nullptr;
  const auto* const id = is_pair ? std::get_if<std::int64_t>(&(*list)[1].value) : nullptr;
  const auto fits = [](const std::int64_t* number) {
    return number != nullptr && *number >= INT32_MIN && *number <= INT32_MAX;
  };
  if (fits(type) && fits(id)) {
    return {static_cast<std::int32_t>(*type), static_cast<std::int32_t>(*id)};
  }
  throw BoundaryError(
      BoundaryFault::kWrongType,
      fmt::format("__dlpack_device__() is {}: expected a pair of integers of 32 bits, DLPack's "
                  "type and number of the device",
                  to_string(value)));
}

// What the producer is told of the stream our work will be on. A stream that captures cannot be
// waited for from outside, so then nobody is to wait.
Reference stream_number(dlpack::DeviceRef device, StreamRef consumer) {
  if (device.type != dlpack::kCuda && device.type != dlpack::kCudaManaged) {
    return Reference::borrow(Py_None);
  }
  if (consumer && consumer.device().type != DeviceType::kCuda) consumer = {};
  if (consumer && consumer.is_capturing()) return checked(PyLong_FromLong(-1));
  const auto handle = consumer ? static_cast<std::uintptr_t>(consumer.handle()) : 1;
  return checked(PyLong_FromUnsignedLongLong(handle == 0 ? 1 : handle));
}

// Producers from before version 1 know neither of the keywords.
Reference ask(PyObject* object, const Reference& stream) {
  const Reference method = checked(PyObject_GetAttrString(object, "__dlpack__"));
  const Reference none = checked(PyTuple_New(0));
  const Reference newer = checked(Py_BuildValue(
      "{s:O,s:(ii)}", "stream", stream.get(), "max_version",
      static_cast<int>(dlpack::kVersion.major), static_cast<int>(dlpack::kVersion.minor)));
  PyObject* const capsule = PyObject_Call(method.get(), none.get(), newer.get());
  if (capsule != nullptr) return Reference::steal(capsule);
  if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw PythonError();
  PyErr_Clear();
  const Reference older = checked(Py_BuildValue("{s:O}", "stream", stream.get()));
  return checked(PyObject_Call(method.get(), none.get(), older.get()));
}

}  // namespace

Tensor import_dlpack(PyObject* object, const ObjectImport& options) {
  DlpackImportOptions import;
  import.consumer = options.consumer;
  if (PyCapsule_CheckExact(object)) return take(object, import);
  const dlpack::DeviceRef device = device_of(object);
  const Reference stream = stream_number(device, consumer_or_current(options.consumer));
  const Reference capsule = ask(object, stream);
  return take(capsule.get(), import);
}

}  // namespace cgtree::python
