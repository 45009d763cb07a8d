// The Python type cgtree.Context.
#include "python/extension/context.h"

#include <fmt/format.h>

#include <array>
#include <new>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/error.h"
#include "cgtree/context.h"
#include "cgtree/stats_table.h"
#include "cgtree/tree/tree_manager.h"
#include "cgtree/verification.h"
#include "cgtree/watch/report.h"
#include "python/extension/module.h"
#include "python/extension/python.h"
#include "python/extension/stream.h"
#include "python/extension/tensor.h"
#include "python/extension/values.h"

namespace cgtree::python {
namespace {

struct EagerState {
  std::thread::id thread;
  std::unique_ptr<EagerScope> scope;
};

struct ContextObject {
  PyObject ob_base;
  std::shared_ptr<ContextState> state;
  std::unique_ptr<EagerState> eager;
};

PyTypeObject* g_type = nullptr;

ContextObject& object_of(PyObject* self) {
  return *reinterpret_cast<ContextObject*>(self);
}
std::shared_ptr<Context> context_of(PyObject* self) {
  return object_of(self).state->open();
}

// Calls a function that waits at the context's door.
template <typename Run>
decltype(auto) inside(PyObject* self, Run run) {
  const std::shared_ptr<Context> context = context_of(self);
  return without_gil([&] { return run(*context); });
}

// Releases the lock, because the destructor waits for the device.
void end(std::shared_ptr<Context> context) {
  if (!interpreter_is_alive()) {
    new std::shared_ptr<Context>(std::move(context));  // leaked
    return;
  }
  const GilRelease released;
  context.reset();
}

void dealloc(PyObject* self) {
  ContextObject& object = object_of(self);
  object.eager.reset();
  std::destroy_at(&object.state);
  std::destroy_at(&object.eager);
  PyTypeObject* const type = Py_TYPE(self);
  const auto free_object = reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free));
  free_object(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

PyObject* construct(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    PyObject* place = find_keyword(keywords, "device");
    if (PyTuple_Size(arguments) > 0) place = PyTuple_GetItem(arguments, 0);
    if (PyTuple_Size(arguments) > 1) throw InvalidArgument("Context(device, **options)");
    const Device device = to_optional_device(place).value_or(Device::best());
    ContextOptions options = to_context_options(keywords);
    auto state = std::make_shared<ContextState>();
    if (PyObject* group = find_keyword(keywords, "group")) options.group = expect_group(group);
    if (PyObject* stream = find_keyword(keywords, "stream")) {
      options.stream = to_stream(stream, device);
      options.owner = owner_of_stream(stream);
      if (options.owner == nullptr) options.owner = keep_object(stream);
    }
    state->context =
        without_gil([&] { return std::make_shared<Context>(device, std::move(options)); });
    const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
    Reference self = checked(allocate(type, 0));
    ContextObject& object = object_of(self.get());
    new (&object.state) std::shared_ptr<ContextState>(std::move(state));
    new (&object.eager) std::unique_ptr<EagerState>();
    return self.release();
  });
}

PyObject* mark_step(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    inside(self, [](Context& context) { context.mark_step(); });
    Py_RETURN_NONE;
  });
}

// Throws InvalidArgument if it is missing.
PyObject* needed(PyObject* arguments, Py_ssize_t i, PyObject* keywords, const char* name) {
  PyObject* const object = argument(arguments, i, keywords, name);
  if (object == nullptr) throw InvalidArgument(fmt::format("'{}' is missing", name));
  return object;
}

PyObject* release_captured(PyObject* self, PyObject* arguments, PyObject* keywords) {
  return guarded([&] {
    expect_keywords(keywords, std::array{"capture"}, "release_captured");
    PyObject* const id = argument(arguments, 0, keywords, "capture");
    std::optional<std::uint64_t> capture;
    if (id != nullptr && id != Py_None) capture = to_size(id, "capture");
    const std::size_t released =
        inside(self, [&](Context& context) { return context.release_captured(capture); });
    return PyLong_FromSize_t(released);
  });
}

PyObject* trim(PyObject* self, PyObject*) {
  return guarded([&] {
    return PyLong_FromSize_t(inside(self, [](Context& context) { return context.trim(); }));
  });
}

PyObject* release_memory(PyObject* self, PyObject*) {
  return guarded([&] {
    return PyLong_FromSize_t(
        inside(self, [](Context& context) { return context.release_memory(); }));
  });
}

const void* to_address(PyObject* object) {
  return reinterpret_cast<const void*>(to_size(object, "address"));
}

PyObject* declare(PyObject* self, PyObject* arguments, PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    expect_keywords(keywords, std::array{"name", "address", "nbytes"}, "declare");
    const std::string name = to_text(needed(arguments, 0, keywords, "name"), "name");
    const void* const address = to_address(needed(arguments, 1, keywords, "address"));
    const std::size_t bytes = to_size(needed(arguments, 2, keywords, "nbytes"), "nbytes");
    inside(self, [&](Context& context) { context.declare(name, address, bytes); });
    Py_RETURN_NONE;
  });
}

PyObject* undeclare(PyObject* self, PyObject* object) {
  return guarded([&]() -> PyObject* {
    const std::string name = to_text(object, "name");
    inside(self, [&](Context& context) { context.undeclare(name); });
    Py_RETURN_NONE;
  });
}

PyObject* invalidate(PyObject* self, PyObject* arguments, PyObject* keywords) {
  return guarded([&] {
    expect_keywords(keywords, std::array{"address", "nbytes"}, "invalidate");
    const void* const address = to_address(needed(arguments, 0, keywords, "address"));
    const std::size_t bytes = to_size(needed(arguments, 1, keywords, "nbytes"), "nbytes");
    return PyLong_FromSize_t(
        inside(self, [&](Context& context) { return context.invalidate(address, bytes); }));
  });
}

PyObject* keep(PyObject* self, PyObject* output) {
  return guarded([&]() -> PyObject* {
    const Tensor tensor = expect_tensor(output, "what keep() takes");
    inside(self, [&](Context& context) { context.keep(tensor); });
    Py_RETURN_NONE;
  });
}

PyObject* synchronize(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    inside(self, [](const Context& context) { context.synchronize(); });
    Py_RETURN_NONE;
  });
}

PyObject* close(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    if (object_of(self).eager != nullptr) {
      throw InvalidArgument("this context is inside `with eager()`: leave that first");
    }
    ContextState& state = *object_of(self).state;
    if (state.context != nullptr) {
      inside(self, [](const Context& context) { context.share_manager()->check_idle(); });
      end(std::move(state.context));
    }
    Py_RETURN_NONE;
  });
}

void put(const Reference& dict, const char* key, std::uint64_t value) {
  const Reference number = checked(PyLong_FromUnsignedLongLong(value));
  check_status(PyDict_SetItemString(dict.get(), key, number.get()));
}

PyObject* stats(PyObject* self, PyObject*) {
  return guarded([&] {
    const ContextStats stats = inside(self, [](const Context& context) { return context.stats(); });
    Reference dict = dict_of(stats);
    for (const auto& field : kContextStats)
      put(dict, field.name.data(), stats.*field.value);
    put(dict, "recording_microseconds", static_cast<std::uint64_t>(stats.recording_time.count()));
    const Reference text = from_text(to_string(stats));
    check_status(PyDict_SetItemString(dict.get(), "text", text.get()));
    return dict.release();
  });
}

PyObject* verification(PyObject* self, PyObject*) {
  return guarded([&] {
    const Verification all =
        inside(self, [](const Context& context) { return context.verification(); });
    return from_text(to_string(all)).release();
  });
}

PyObject* snapshot_json(PyObject* self, PyObject*) {
  return guarded([&] {
    return from_text(inside(self, [](const Context& context) { return context.snapshot_json(); }))
        .release();
  });
}

PyObject* metrics_text(PyObject* self, PyObject*) {
  return guarded([&] {
    return from_text(inside(self, [](const Context& context) { return context.metrics_text(); }))
        .release();
  });
}

PyObject* metrics_text_of(PyObject*, PyObject* list) {
  return guarded([&] {
    const Py_ssize_t count = PySequence_Size(list);
    if (count < 0) throw PythonError();
    std::vector<std::shared_ptr<Context>> held;
    for (Py_ssize_t i = 0; i < count; ++i) {
      const Reference context = checked(PySequence_GetItem(list, i));
      if (PyObject_TypeCheck(context.get(), g_type) == 0) {
        throw InvalidArgument(fmt::format("metrics_text(): argument {} is no Context", i));
      }
      held.push_back(context_of(context.get()));
    }
    const std::string text = without_gil([&] {
      std::vector<const Context*> all;
      for (const std::shared_ptr<Context>& context : held)
        all.push_back(context.get());
      return cgtree::metrics_text(std::span<const Context* const>(all));
    });
    return from_text(text).release();
  });
}

PyObject* report_of(PyObject*, PyObject* text) {
  return guarded([&] {
    const std::string source = to_text(text, "a snapshot, or the lines of an event file");
    return from_text(without_gil([&] { return cgtree::report_of(source); })).release();
  });
}

PyObject* enter_eager(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    ContextObject& object = object_of(self);
    if (object.eager != nullptr) throw InvalidArgument("`with eager()` does not nest");
    auto eager = std::make_unique<EagerState>();
    eager->thread = std::this_thread::get_id();
    inside(self, [&](const Context& context) {
      eager->scope = std::make_unique<EagerScope>(*context.share_manager());
    });
    object.eager = std::move(eager);
    Py_RETURN_NONE;
  });
}

PyObject* leave_eager(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    ContextObject& object = object_of(self);
    if (object.eager == nullptr || object.eager->thread != std::this_thread::get_id()) {
      throw InvalidArgument("`with eager()` ends on the thread on which it began");
    }
    object.eager.reset();
    Py_RETURN_NONE;
  });
}

PyObject* stream(PyObject* self, void*) {
  return guarded([&] {
    const std::shared_ptr<Context> context = context_of(self);
    return make_stream(context->stream(), context->share_manager()).release();
  });
}
PyObject* device(PyObject* self, void*) {
  return guarded([&] { return from_text(to_string(context_of(self)->device())).release(); });
}
PyObject* closed(PyObject* self, void*) {
  return PyBool_FromLong(object_of(self).state->context ? 0 : 1);
}

PyMethodDef methods[] = {
    {"mark_step", mark_step, METH_NOARGS,
     "mark_step(): outputs of earlier calls may be overwritten from now on; touching one that is "
     "still held raises StaleTensor. Raises ConcurrentUse."},
    {"release_captured", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(release_captured)),
     METH_VARARGS | METH_KEYWORDS,
     "release_captured(capture=None) -> int: says that the caller's graph that holds work of this "
     "context is gone: that of the capture with this id (Stream.capture_id), or every one. Returns "
     "how many tensors were kept for it. Raises ConcurrentUse."},
    {"trim", trim, METH_NOARGS,
     "trim() -> int: gives memory that neither a recording nor an output uses back to the device's "
     "cache, where other contexts find it; returns the bytes. Raises ConcurrentUse."},
    {"release_memory", release_memory, METH_NOARGS,
     "release_memory() -> int: for a server that sleeps: drops all recordings, and gives all that "
     "no output uses back to the device; what was warmed up stays so. Waits until all work is "
     "done. "
     "Returns the bytes of the pools. Raises ConcurrentUse, and CaptureError while the stream is "
     "captured."},
    {"keep", keep, METH_O,
     "keep(output): mark_step() does not end this output, which is held until it is released. "
     "Raises StaleTensor, ConcurrentUse, and InvalidArgument for another context's."},
    {"declare", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(declare)),
     METH_VARARGS | METH_KEYWORDS,
     "declare(name, address, nbytes): says that memory which recordings refer to, and which is no "
     "tensor, lives until undeclare(): a workspace or table of a library. Declared again with "
     "another range, it has moved, and the recordings that refer to where it was are dropped."},
    {"undeclare", undeclare, METH_O,
     "undeclare(name): the memory goes; the recordings that refer to it are dropped, now or before "
     "the next call. Any thread."},
    {"invalidate", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(invalidate)),
     METH_VARARGS | METH_KEYWORDS,
     "invalidate(address, nbytes) -> int: drops the recordings that refer to memory in the range; "
     "returns how many. Raises ConcurrentUse."},
    {"synchronize", synchronize, METH_NOARGS,
     "synchronize(): waits until all work launched by calls is done. Raises DeviceError."},
    {"close", close, METH_NOARGS,
     "close(): ends the context. Later use, of its functions too, raises InvalidArgument; tensors "
     "it made stay."},
    {"stats", stats, METH_NOARGS,
     "stats() -> dict: calls, warm_ups, recordings, replays, failures, skips by reason; bytes of "
     "pools and graphs; 'text' is all of it as a table."},
    {"verification", verification, METH_NOARGS,
     "verification() -> str: what verify_every has verified so far, and what it has left out."},
    {"metrics_text", metrics_text, METH_NOARGS,
     "metrics_text() -> str: what Prometheus scrapes of this context (docs/metrics.md). Any "
     "thread."},
    {"snapshot_json", snapshot_json, METH_NOARGS, "snapshot_json() -> str: the tree as JSON."},
    {"_metrics_text_of", metrics_text_of, METH_O | METH_STATIC, "What metrics_text() returns."},
    {"_report_of", report_of, METH_O | METH_STATIC,
     "What report() returns, of a snapshot or of the lines of an event file."},
    {"_enter_eager", enter_eager, METH_NOARGS, "What `with eager()` begins with."},
    {"_leave_eager", leave_eager, METH_NOARGS, "What `with eager()` ends with."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef properties[] = {{"stream", stream, nullptr,
                             "Where calls launch their work: a Stream. Work of your own that reads "
                             "outputs or writes inputs "
                             "belongs there too, or must be ordered with it.",
                             nullptr},
                            {"device", device, nullptr, "Such as 'cuda:0'.", nullptr},
                            {"closed", closed, nullptr, "Whether close() was called.", nullptr},
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};

}  // namespace

ContextState::~ContextState() {
  if (context != nullptr) end(std::move(context));
}

const std::shared_ptr<Context>& ContextState::open() const {
  if (context != nullptr) return context;
  throw InvalidArgument("this context was closed: make another");
}

Reference dict_of(const FunctionStats& stats) {
  Reference dict = checked(PyDict_New());
  for (const auto& field : kFunctionStats)
    put(dict, field.name.data(), stats.*field.value);
  const Reference unverified = checked(PyDict_New());
  for_each_unverified(stats, [&](UnverifiedReason reason, std::uint64_t count) {
    put(unverified, std::string(name(reason)).c_str(), count);
  });
  check_status(PyDict_SetItemString(dict.get(), "unverified", unverified.get()));
  const Reference skips = checked(PyDict_New());
  for_each_skip(stats, [&](SkipReason reason, std::uint64_t count) {
    put(skips, std::string(name(reason)).c_str(), count);
  });
  check_status(PyDict_SetItemString(dict.get(), "skips", skips.get()));
  return dict;
}

std::shared_ptr<ContextState> expect_context(PyObject* object) {
  const int is_context = PyObject_IsInstance(object, reinterpret_cast<PyObject*>(g_type));
  check_status(is_context);
  if (is_context != 0) return object_of(object).state;
  PyErr_SetString(PyExc_TypeError, "expected a cgtree.Context");
  throw PythonError();
}

std::shared_ptr<ContextState> default_context() {
  const Reference module = checked(PyImport_ImportModule("cgtree._context"));
  return expect_context(
      checked(PyObject_CallMethod(module.get(), "default_context", nullptr)).get());
}

void add_context_type(PyObject* module) {
  PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(construct)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                         {Py_tp_methods, methods},
                         {Py_tp_getset, properties},
                         {0, nullptr}};
  PyType_Spec spec = {"cgtree._cgtree.Context", sizeof(ContextObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  g_type = add_type(module, "Context", spec);
}

}  // namespace cgtree::python
