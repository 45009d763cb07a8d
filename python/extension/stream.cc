// The Python type cgtree.Stream.
#include "python/extension/stream.h"

#include <fmt/format.h>

#include <array>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "interop/device/stream.h"
#include "interop/tensor/stream_synchronization.h"
#include "python/extension/module.h"
#include "python/extension/python.h"
#include "python/extension/values.h"

namespace cgtree::python {
namespace {

struct OpenScope {
  std::thread::id thread;
  std::unique_ptr<StreamScope> scope;
};

struct StreamState {
  StreamRef stream;                    // names none once it was closed
  std::shared_ptr<const void> keeper;  // keeps the owner of the stream; may be null
  std::shared_ptr<const Stream> own;   // null unless it was made here
  std::vector<OpenScope> open;
};

struct StreamObject {
  PyObject ob_base;
  StreamState state;
};

PyTypeObject* g_type = nullptr;

StreamState& state_of(PyObject* self) {
  return reinterpret_cast<StreamObject*>(self)->state;
}

StreamRef stream_of(PyObject* self) {
  const StreamRef stream = state_of(self).stream;
  if (!stream) throw InvalidArgument("this stream was closed: make another");
  return stream;
}

PyObject* allocate(PyTypeObject* type, StreamState state) {
  auto* const object = PyObject_New(StreamObject, type);
  if (object == nullptr) return nullptr;
  new (&object->state) StreamState(std::move(state));
  return reinterpret_cast<PyObject*>(object);
}

// Lets go of the stream. One of another library may be destroyed by that, so contexts leave it.
void let_go(StreamState& state) {
  const StreamRef stream = std::exchange(state.stream, StreamRef());
  const bool is_foreign = state.own == nullptr;
  state.own.reset();
  std::shared_ptr<const void> keeper = std::move(state.keeper);
  if (keeper == nullptr || !interpreter_is_alive()) return;
  const GilRelease released;
  if (is_foreign) retire_stream(stream);
  keeper.reset();
}

void dealloc(PyObject* self) {
  let_go(state_of(self));
  std::destroy_at(&state_of(self));
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_Free(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

// Stream(device="auto", *, blocking=False, external=None)
PyObject* construct(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    static constexpr std::array kNames = {"device", "blocking", "external"};
    expect_keywords(keywords, kNames, "Stream");
    PyObject* place = find_keyword(keywords, "device");
    if (PyTuple_Size(arguments) > 0) place = PyTuple_GetItem(arguments, 0);
    const Device device = to_optional_device(place).value_or(Device::best());
    if (PyObject* external = find_keyword(keywords, "external")) {
      return allocate(type, {to_stream(external, device), keep_object(external), nullptr, {}});
    }
    PyObject* const blocking = find_keyword(keywords, "blocking");
    const bool is_blocking = blocking != nullptr && to_bool(blocking);
    auto own = std::make_shared<Stream>(
        device, is_blocking ? StreamKind::kBlocking : StreamKind::kNonBlocking);
    return allocate(type, {own->ref(), own, own, {}});
  });
}

PyObject* enter(PyObject* self, PyObject*) {
  return guarded([&] {
    const StreamRef stream = stream_of(self);
    state_of(self).open.push_back(
        {std::this_thread::get_id(), std::make_unique<StreamScope>(stream)});
    return Reference::borrow(self).release();
  });
}

PyObject* leave(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    std::vector<OpenScope>& open = state_of(self).open;
    if (open.empty() || open.back().thread != std::this_thread::get_id()) {
      throw InvalidArgument("a stream's `with` ends on the thread on which it began");
    }
    open.pop_back();
    Py_RETURN_NONE;
  });
}

PyObject* synchronize(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    const StreamRef stream = stream_of(self);
    {
      const GilRelease released;
      stream.synchronize();
    }
    Py_RETURN_NONE;
  });
}

PyObject* wait_for(PyObject* self, PyObject* other) {
  return guarded([&]() -> PyObject* {
    const StreamRef stream = stream_of(self);
    const StreamRef first = to_stream(other, stream.device());
    {
      const GilRelease released;
      stream.wait_for(first);
    }
    Py_RETURN_NONE;
  });
}

PyObject* close(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    StreamState& state = state_of(self);
    if (!state.open.empty())
      throw InvalidArgument("this stream is current: leave its `with` first");
    let_go(state);
    Py_RETURN_NONE;
  });
}

PyObject* cuda_stream(PyObject* self, PyObject*) {
  return guarded([&] {
    return Py_BuildValue("(iK)", 0, static_cast<unsigned long long>(stream_of(self).handle()));
  });
}
PyObject* pointer(PyObject* self, void*) {
  return guarded([&] {
    return PyLong_FromUnsignedLongLong(static_cast<unsigned long long>(stream_of(self).handle()));
  });
}
PyObject* device(PyObject* self, void*) {
  return guarded([&] { return from_text(to_string(stream_of(self).device())).release(); });
}
PyObject* is_capturing(PyObject* self, void*) {
  return guarded([&] { return PyBool_FromLong(stream_of(self).is_capturing() ? 1 : 0); });
}

PyObject* capture_id(PyObject* self, void*) {
  return guarded([&] { return PyLong_FromUnsignedLongLong(capture_of(stream_of(self))); });
}

PyObject* repr(PyObject* self) {
  return guarded([&] {
    const StreamRef stream = state_of(self).stream;
    if (!stream) return from_text("cgtree.Stream(closed)").release();
    return from_text(fmt::format("cgtree.Stream({:#x} on {})",
                                 static_cast<std::uintptr_t>(stream.handle()),
                                 to_string(stream.device())))
        .release();
  });
}

PyMethodDef methods[] = {
    {"synchronize", synchronize, METH_NOARGS,
     "synchronize(): waits until all work so far is done."},
    {"wait_for", wait_for, METH_O,
     "wait_for(other): work from now on waits for what is on `other` so far; the host does not."},
    {"close", close, METH_NOARGS,
     "close(): gives the stream back; what still needs it keeps it. Later use is InvalidArgument."},
    {"__cuda_stream__", cuda_stream, METH_NOARGS, "__cuda_stream__() -> (0, handle)"},
    {"__enter__", enter, METH_NOARGS, "Makes it current on this thread."},
    {"__exit__", leave, METH_VARARGS, "Makes the one before current again."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef properties[] = {
    {"ptr", pointer, nullptr, "The handle: a cudaStream_t as an int; 1 legacy, 2 per thread.",
     nullptr},
    {"device", device, nullptr, "Its device, such as 'cuda:0'.", nullptr},
    {"is_capturing", is_capturing, nullptr, "Whether work on it is recorded, not run.", nullptr},
    {"capture_id", capture_id, nullptr, "The id of the capture it is in; 0 for none.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

constexpr const char* kDoc =
    "Stream(device='auto', *, blocking=False, external=None)\n\n"
    "A queue of work on a device. `external`: another library's stream, or a cudaStream_t as an\n"
    "int; it is borrowed. `with stream:` makes it current on the thread. Raises "
    "InvalidArgument.\n\n"
    ">>> stream = cgtree.Stream(\"host\")\n"
    ">>> with stream:\n"
    "...     x = cgtree.empty((2, 3))\n"
    ">>> stream.synchronize()\n";

bool is_stream(PyObject* object) {
  return Py_TYPE(object) == g_type;
}

std::uintptr_t foreign_handle(PyObject* object) {
  if (PyIndex_Check(object) != 0) return to_address(object, "stream");
  if (const Reference method = find_attribute(object, "__cuda_stream__")) {
    const bool can_call = PyCallable_Check(method.get()) != 0;
    const Reference pair =
        can_call ? checked(PyObject_CallNoArgs(method.get())) : Reference::borrow(method.get());
    if (PyTuple_Check(pair.get()) && PyTuple_Size(pair.get()) == 2) {
      return to_address(PyTuple_GetItem(pair.get(), 1), "stream");
    }
  }
  for (const char* name : {"cuda_stream", "ptr"}) {
    const Reference value = find_attribute(object, name);
    if (value && PyIndex_Check(value.get()) != 0) return to_address(value.get(), "stream");
  }
  PyErr_Format(PyExc_TypeError,
               "an object of %R is no stream: expected a cgtree.Stream, an int, or an object with "
               "__cuda_stream__",
               reinterpret_cast<PyObject*>(Py_TYPE(object)));
  throw PythonError();
}

}  // namespace

StreamRef to_stream(PyObject* object, Device device) {
  if (!is_stream(object)) {
    const std::uintptr_t handle = foreign_handle(object);
    return {device, static_cast<StreamHandle>(handle == 0 ? 1 : handle)};
  }
  const StreamRef stream = stream_of(object);
  if (stream.device() == device) return stream;
  throw InvalidArgument(fmt::format("stream {:#x} is of {}, but {} is needed",
                                    static_cast<std::uintptr_t>(stream.handle()),
                                    to_string(stream.device()), to_string(device)));
}

StreamRef to_optional_stream(PyObject* object, Device device) {
  if (object == nullptr || object == Py_None) return {};
  return to_stream(object, device);
}

std::optional<Device> device_of_stream(PyObject* object) {
  if (!is_stream(object)) return std::nullopt;
  return stream_of(object).device();
}

std::shared_ptr<const void> owner_of_stream(PyObject* object) {
  return is_stream(object) ? state_of(object).keeper : nullptr;
}

std::shared_ptr<const Stream> expect_own_stream(PyObject* object) {
  if (is_stream(object)) {
    (void)stream_of(object);
    if (state_of(object).own != nullptr) return state_of(object).own;
  }
  throw InvalidArgument("expected a cgtree.Stream that cgtree has made");
}

Reference make_stream(StreamRef stream, std::shared_ptr<const void> keeper) {
  return checked(allocate(g_type, {stream, std::move(keeper), nullptr, {}}));
}

void add_stream_type(PyObject* module) {
  PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(construct)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                         {Py_tp_repr, reinterpret_cast<void*>(repr)},
                         {Py_tp_doc, const_cast<char*>(kDoc)},
                         {Py_tp_methods, methods},
                         {Py_tp_getset, properties},
                         {0, nullptr}};
  PyType_Spec spec = {"cgtree.Stream", sizeof(StreamObject), 0, Py_TPFLAGS_DEFAULT, slots};
  g_type = add_type(module, "Stream", spec);
}

}  // namespace cgtree::python
