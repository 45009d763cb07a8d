// The Python type cgtree.Stream.
#include "python/extension/stream.h"

#include <fmt/format.h>

#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "interop/device/stream.h"
#include "interop/tensor/stream_synchronization.h"
#include "python/extension/module.h"
#include "python/extension/object.h"
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

PyTypeObject* g_type = nullptr;

StreamState& state_of(PyObject* self) {
  return value_of<StreamState>(self);
}

StreamRef stream_of(PyObject* self) {
  const StreamRef stream = state_of(self).stream;
  if (!stream) throw InvalidArgument("this stream was closed: make another");
  return stream;
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
  dealloc_object<StreamState>(self);
}

PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  return guarded([&] {
    const auto [place, blocking, external] = read_arguments<3>(
        arguments, keywords, {"Stream", {"device", "blocking", "external"}, 0, 1});
    const Device device = to_optional_device(place).value_or(Device::best());
    StreamState state;
    if (external != nullptr) {
      state = {to_stream(external, device), keep_object(external), nullptr, {}};
    } else {
      const bool is_blocking = blocking != nullptr && to_bool(blocking);
      state.own = std::make_shared<Stream>(
          device, is_blocking ? StreamKind::kBlocking : StreamKind::kNonBlocking);
      state.stream = state.own->ref();
      state.keeper = state.own;
    }
    return make_object<StreamState>(type, std::move(state)).release();
  });
}

Reference enter(PyObject* self) {
  state_of(self).open.push_back(
      {std::this_thread::get_id(), std::make_unique<StreamScope>(stream_of(self))});
  return Reference::borrow(self);
}

void leave(PyObject* self, PyObject*) {
  std::vector<OpenScope>& open = state_of(self).open;
  if (open.empty() || open.back().thread != std::this_thread::get_id()) {
    throw InvalidArgument("a stream's `with` ends on the thread on which it began");
  }
  open.pop_back();
}

void synchronize(PyObject* self) {
  without_gil([stream = stream_of(self)] { stream.synchronize(); });
}

void wait_for(PyObject* self, PyObject* other) {
  const StreamRef stream = stream_of(self);
  const StreamRef first = to_stream(other, stream.device());
  without_gil([&] { stream.wait_for(first); });
}

void close(PyObject* self) {
  if (!state_of(self).open.empty())
    throw InvalidArgument("this stream is current: leave its `with` first");
  let_go(state_of(self));
}

std::uint64_t pointer(PyObject* self) {
  return static_cast<std::uint64_t>(stream_of(self).handle());
}
Reference cuda_stream(PyObject* self) {
  return checked(Py_BuildValue("(iK)", 0, static_cast<unsigned long long>(pointer(self))));
}
std::string device(PyObject* self) {
  return to_string(stream_of(self).device());
}
bool is_capturing(PyObject* self) {
  return stream_of(self).is_capturing();
}
std::uint64_t capture_id(PyObject* self) {
  return capture_of(stream_of(self));
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
    method<synchronize>("synchronize", "synchronize(): waits until all work so far is done."),
    method<wait_for>("wait_for",
                     "wait_for(other): work from now on waits for what is on `other` so far; the "
                     "host does not."),
    method<close>("close",
                  "close(): gives the stream back; what still needs it keeps it. Later use is "
                  "InvalidArgument."),
    method<cuda_stream>("__cuda_stream__", "__cuda_stream__() -> (0, handle)"),
    method<enter>("__enter__", "Makes it current on this thread."),
    method<leave>("__exit__", "Makes the one before current again.", METH_VARARGS),
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef properties[] = {
    property<pointer>("ptr", "The handle: a cudaStream_t as an int; 1 legacy, 2 per thread."),
    property<device>("device", "Its device, such as 'cuda:0'."),
    property<is_capturing>("is_capturing", "Whether work on it is recorded, not run."),
    property<capture_id>("capture_id", "The id of the capture it is in; 0 for none."),
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
  return make_object<StreamState>(g_type, StreamState{stream, std::move(keeper), nullptr, {}});
}

void add_stream_type(PyObject* module) {
  g_type =
      add_object_type<StreamState>(module, {.name = "cgtree.Stream",
                                            .doc = kDoc,
                                            .methods = methods,
                                            .properties = properties,
                                            .make = make,
                                            .others = {{Py_tp_repr, reinterpret_cast<void*>(repr)}},
                                            .dealloc = dealloc});
}

}  // namespace cgtree::python
