// The Python type cgtree.Stream.
#include "python/extension/stream.h"

#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "interop/device/stream.h"
#include "interop/tensor/stream_synchronization.h"
#include "python/extension/module.h"
#include "python/extension/object.h"

namespace cgtree::python {
namespace {

struct StreamState {
  StreamRef stream;                    // null once it was closed
  std::shared_ptr<const void> keeper;  // keeps the owner of the stream; may be null
  std::shared_ptr<const Stream> own;   // null unless it was made here
  std::vector<std::pair<std::thread::id, std::unique_ptr<StreamScope>>> open;

  // Returns the stream. Throws InvalidArgument once it was closed.
  StreamRef ref() const {
    if (!stream) throw InvalidArgument("this stream was closed: make another");
    return stream;
  }
  // Releases the stream. This may destroy a foreign stream, so contexts stop using it.
  void end() {
    // A scope of another thread stays current there: this thread must not end it.
    for (auto& [thread, scope] : open)
      if (thread != std::this_thread::get_id()) (void)scope.release();
    const StreamRef last = std::exchange(stream, StreamRef());
    const bool is_foreign = own == nullptr;
    own.reset();
    std::shared_ptr<const void> kept = std::move(keeper);
    if (kept == nullptr || !interpreter_is_alive()) return;
    const GilRelease released;
    if (is_foreign) retire_stream(last);
    kept.reset();
  }
};

StreamState make(std::optional<Device> place, bool is_blocking, PyObject* external) {
  const Device device = place.value_or(Device::best());
  if (external != nullptr) return {to_stream(external, device), keep_object(external), nullptr, {}};
  auto own = std::make_shared<Stream>(
      device, is_blocking ? StreamKind::kBlocking : StreamKind::kNonBlocking);
  return {own->ref(), own, own, {}};
}

Reference enter(PyObject* self) {
  StreamState& state = value_of<StreamState>(self);
  state.open.emplace_back(std::this_thread::get_id(), std::make_unique<StreamScope>(state.ref()));
  return Reference::borrow(self);
}

void leave(StreamState& state, Rest) {
  if (state.open.empty() || state.open.back().first != std::this_thread::get_id()) {
    throw InvalidArgument("a stream's `with` ends on the thread on which it began");
  }
  state.open.pop_back();
}

void synchronize(const StreamState& state) {
  without_gil([stream = state.ref()] { stream.synchronize(); });
}

void wait_for(const StreamState& state, PyObject* other) {
  const StreamRef stream = state.ref();
  const StreamRef first = to_stream(other, stream.device());
  without_gil([&] { stream.wait_for(first); });
}

void close(StreamState& state) {
  if (!state.open.empty()) throw InvalidArgument("this stream is current: leave its `with` first");
  state.end();
}

std::uint64_t pointer(const StreamState& state) {
  return static_cast<std::uint64_t>(state.ref().handle());
}

std::string repr(const StreamState& state) {
  if (!state.stream) return "cgtree.Stream(closed)";
  return str_format("cgtree.Stream({:#x} on {})", pointer(state), to_string(state.stream.device()));
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

StreamRef to_stream(PyObject* object, std::optional<Device> device) {
  if (object == nullptr) return {};
  if (!is_object<StreamState>(object)) {
    const std::uintptr_t handle = foreign_handle(object);
    return {device ? *device : Device::best(), static_cast<StreamHandle>(handle == 0 ? 1 : handle)};
  }
  const StreamRef stream = value_of<StreamState>(object).ref();
  if (!device || stream.device() == *device) return stream;
  throw InvalidArgument(str_format("stream {:#x} is of {}, but {} is needed",
                                   static_cast<std::uintptr_t>(stream.handle()),
                                   to_string(stream.device()), to_string(*device)));
}

std::shared_ptr<const void> keep_stream(PyObject* object) {
  if (is_object<StreamState>(object) && value_of<StreamState>(object).keeper != nullptr)
    return value_of<StreamState>(object).keeper;
  return keep_object(object);
}

std::shared_ptr<const Stream> expect_own_stream(PyObject* object) {
  if (is_object<StreamState>(object)) {
    (void)value_of<StreamState>(object).ref();
    if (value_of<StreamState>(object).own != nullptr) return value_of<StreamState>(object).own;
  }
  throw InvalidArgument("expected a cgtree.Stream that cgtree has made");
}

Reference make_stream(StreamRef stream, std::shared_ptr<const void> keeper) {
  return new_object<StreamState>(StreamState{stream, std::move(keeper), nullptr, {}});
}

void add_stream_type(PyObject* module) {
  add_type<StreamState>(
      module,
      {.name = "cgtree.Stream",
       .methods = {bind<&synchronize>("synchronize"), bind<&wait_for>("wait_for"),
                   bind<&close>("close"),
                   bind<[](const StreamState& state) { return pack(0, pointer(state)); }>(
                       "__cuda_stream__"),
                   bind<&enter>("__enter__"), bind<&leave>("__exit__")},
       .properties = {property<&pointer>("ptr"),
                      property<[](const StreamState& state) { return state.ref().device(); }>(
                          "device"),
                      property<[](const StreamState& state) { return state.ref().is_capturing(); }>(
                          "is_capturing"),
                      property<[](const StreamState& state) { return capture_of(state.ref()); }>(
                          "capture_id")},
       .maker = constructor<&make>(),
       .slots = {slot<&repr>(Py_tp_repr)}});
}

}  // namespace cgtree::python
