// The Python type cgtree.Context.
#include "python/extension/context.h"

#include <fmt/format.h>

#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/error.h"
#include "cgtree/context.h"
#include "cgtree/tree/tree_manager.h"
#include "cgtree/values/metrics.h"
#include "cgtree/values/stats_table.h"
#include "cgtree/values/verification.h"
#include "extensions/watch/recent_events.h"
#include "python/extension/module.h"
#include "python/extension/object.h"
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

// An OpenContext is what an object holds.
struct OpenContext {
  std::shared_ptr<ContextState> state;
  std::unique_ptr<EagerState> eager;  // ends first
};

PyTypeObject* g_type = nullptr;

OpenContext& object_of(PyObject* self) {
  return value_of<OpenContext>(self);
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

PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
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
    return make_object<OpenContext>(type, OpenContext{std::move(state), nullptr}).release();
  });
}

void mark_step(PyObject* self) {
  inside(self, [](Context& context) { context.mark_step(); });
}

std::size_t release_captured(PyObject* self, PyObject* arguments, PyObject* keywords) {
  const auto [id] = read_arguments<1>(arguments, keywords, {"release_captured", {"capture"}});
  std::optional<std::uint64_t> capture;
  if (id != nullptr) capture = to_size(id, "capture");
  return inside(self, [&](Context& context) { return context.release_captured(capture); });
}

std::size_t trim(PyObject* self, PyObject* arguments, PyObject* keywords) {
  const auto [given] = read_arguments<1>(arguments, keywords, {"trim", {"to_device"}});
  const bool to_device = given != nullptr && to_bool(given);
  return inside(self, [&](Context& context) { return context.trim(to_device); });
}

std::size_t release_memory(PyObject* self) {
  return inside(self, [](Context& context) { return context.release_memory(); });
}

const void* to_address(PyObject* object) {
  return reinterpret_cast<const void*>(to_size(object, "address"));
}

void declare(PyObject* self, PyObject* arguments, PyObject* keywords) {
  const auto [given, place, nbytes] =
      read_arguments<3>(arguments, keywords, {"declare", {"name", "address", "nbytes"}, 3});
  const std::string name = to_text(given, "name");
  const void* const address = to_address(place);
  const std::size_t bytes = to_size(nbytes, "nbytes");
  inside(self, [&](Context& context) { context.declare(name, address, bytes); });
}

void undeclare(PyObject* self, PyObject* object) {
  const std::string name = to_text(object, "name");
  inside(self, [&](Context& context) { context.undeclare(name); });
}

std::size_t invalidate(PyObject* self, PyObject* arguments, PyObject* keywords) {
  const auto [place, nbytes] =
      read_arguments<2>(arguments, keywords, {"invalidate", {"address", "nbytes"}, 2});
  const void* const address = to_address(place);
  const std::size_t bytes = to_size(nbytes, "nbytes");
  return inside(self, [&](Context& context) { return context.invalidate(address, bytes); });
}

void keep(PyObject* self, PyObject* output) {
  const Tensor tensor = expect_tensor(output, "what keep() takes");
  inside(self, [&](Context& context) { context.keep(tensor); });
}

void synchronize(PyObject* self) {
  inside(self, [](const Context& context) { context.synchronize(); });
}

void close(PyObject* self) {
  if (object_of(self).eager != nullptr) {
    throw InvalidArgument("this context is inside `with eager()`: leave that first");
  }
  ContextState& state = *object_of(self).state;
  if (state.context == nullptr) return;
  inside(self, [](const Context& context) { context.share_manager()->check_idle(); });
  end(std::move(state.context));
}

void put(const Reference& dict, const char* key, std::uint64_t value) {
  const Reference number = checked(PyLong_FromUnsignedLongLong(value));
  check_status(PyDict_SetItemString(dict.get(), key, number.get()));
}

Reference stats(PyObject* self) {
  const ContextStats stats = inside(self, [](const Context& context) { return context.stats(); });
  Reference dict = dict_of(stats);
  for (const auto& field : kContextStats)
    put(dict, field.name.data(), stats.*field.value);
  put(dict, "recording_microseconds", static_cast<std::uint64_t>(stats.recording_time.count()));
  const Reference text = from_text(to_string(stats));
  check_status(PyDict_SetItemString(dict.get(), "text", text.get()));
  return dict;
}

std::string verification(PyObject* self) {
  return to_string(inside(self, [](const Context& context) { return context.verification(); }));
}

std::string snapshot_json(PyObject* self) {
  return inside(self, [](const Context& context) { return context.snapshot_json(); });
}

void watch_progress(PyObject* self, PyObject* given) {
  std::shared_ptr<ProgressWatch> watch = to_watch(given);
  inside(self, [&](Context& context) { context.watch_progress(std::move(watch)); });
}

std::string recent_events(PyObject* self) {
  return inside(self, [](const Context& context) { return cgtree::recent_events(context); });
}

void dump_events(PyObject* self, PyObject* path) {
  const std::string name = to_text(path, "path");
  inside(self, [&](const Context& context) { cgtree::dump_events(context, name); });
}

std::string metrics_text(PyObject* self) {
  return inside(self, [](const Context& context) { return context.metrics_text(); });
}

std::string metrics_text_of(PyObject*, PyObject* list) {
  std::vector<std::shared_ptr<Context>> held;
  for_each_item(list, [&](PyObject* context) {
    if (PyObject_TypeCheck(context, g_type) == 0) {
      throw InvalidArgument(fmt::format("metrics_text(): argument {} is no Context", held.size()));
    }
    held.push_back(context_of(context));
  });
  return without_gil([&] {
    std::vector<const Context*> all;
    for (const std::shared_ptr<Context>& context : held)
      all.push_back(context.get());
    return cgtree::metrics_text(std::span<const Context* const>(all));
  });
}

void enter_eager(PyObject* self) {
  OpenContext& object = object_of(self);
  if (object.eager != nullptr) throw InvalidArgument("`with eager()` does not nest");
  auto eager = std::make_unique<EagerState>();
  eager->thread = std::this_thread::get_id();
  inside(self, [&](const Context& context) {
    eager->scope = std::make_unique<EagerScope>(*context.share_manager());
  });
  object.eager = std::move(eager);
}

void leave_eager(PyObject* self) {
  OpenContext& object = object_of(self);
  if (object.eager == nullptr || object.eager->thread != std::this_thread::get_id()) {
    throw InvalidArgument("`with eager()` ends on the thread on which it began");
  }
  object.eager.reset();
}

Reference stream(PyObject* self) {
  const std::shared_ptr<Context> context = context_of(self);
  return make_stream(context->stream(), context->share_manager());
}
std::string device(PyObject* self) {
  return to_string(context_of(self)->device());
}
bool closed(PyObject* self) {
  return object_of(self).state->context == nullptr;
}

PyMethodDef methods[] = {
    method<mark_step>("mark_step",
                      "mark_step(): outputs of earlier calls may be overwritten from now on; "
                      "touching one that is still held raises StaleTensor. Raises ConcurrentUse."),
    method<release_captured>(
        "release_captured",
        "release_captured(capture=None) -> int: says that the caller's graph that holds work of "
        "this context is gone: that of the capture with this id (Stream.capture_id), or every one. "
        "Returns how many tensors were kept for it. Raises ConcurrentUse."),
    method<trim>("trim",
                 "trim(to_device=False) -> int: gives memory that neither a recording nor an "
                 "output uses back "
                 "to the device's cache, where other contexts find it; returns the bytes. "
                 "to_device: and what "
                 "the cache holds to the device, for other libraries. Raises ConcurrentUse."),
    method<release_memory>(
        "release_memory",
        "release_memory() -> int: for a server that sleeps: drops all recordings, and gives all "
        "that no output uses back to the device; what was warmed up stays so. Waits until all work "
        "is done. Returns the bytes of the pools. Raises ConcurrentUse, and CaptureError while the "
        "stream is captured."),
    method<keep>(
        "keep",
        "keep(output): mark_step() does not end this output, which is held until it is released. "
        "Raises StaleTensor, ConcurrentUse, and InvalidArgument for another context's."),
    method<declare>("declare",
                    "declare(name, address, nbytes): says that memory which recordings refer to, "
                    "and which is no tensor, lives until undeclare(): a workspace or table of a "
                    "library. Declared again with another range, it has moved, and the recordings "
                    "that refer to where it was are dropped."),
    method<undeclare>("undeclare",
                      "undeclare(name): the memory goes; the recordings that refer to it are "
                      "dropped, now or before the next call. Any thread."),
    method<invalidate>("invalidate",
                       "invalidate(address, nbytes) -> int: drops the recordings that refer to "
                       "memory in the range; returns how many. Raises ConcurrentUse."),
    method<synchronize>(
        "synchronize",
        "synchronize(): waits until all work launched by calls is done. Raises DeviceError."),
    method<close>("close",
                  "close(): ends the context. Later use, of its functions too, raises "
                  "InvalidArgument; tensors it made stay."),
    method<stats>("stats",
                  "stats() -> dict: calls, warm_ups, recordings, replays, failures, skips by "
                  "reason; bytes of pools and graphs; 'text' is all of it as a table."),
    method<verification>(
        "verification",
        "verification() -> str: what verify_every has verified so far, and what it has left out."),
    method<metrics_text>("metrics_text",
                         "metrics_text() -> str: what Prometheus scrapes of this context "
                         "(docs/metrics.md). Any thread."),
    method<snapshot_json>("snapshot_json", "snapshot_json() -> str: the tree as JSON."),
    method<watch_progress>(
        "watch_progress",
        "watch_progress(watch): replays leave marks from now on, by which the ProgressWatch says "
        "where one hangs; None: no longer (docs/hangs.md). Raises ConcurrentUse, and "
        "InvalidArgument on a device that cannot."),
    method<recent_events>("recent_events",
                          "recent_events() -> str: the last 1,000 events that are no replays, as "
                          "the lines of an event file (docs/events.md). Any thread."),
    method<dump_events>("dump_events",
                        "dump_events(path): writes them to a file. Raises InvalidArgument if it "
                        "cannot be opened or written. Any thread."),
    method<metrics_text_of>("_metrics_text_of", "What metrics_text() returns.",
                            METH_O | METH_STATIC),
    method<enter_eager>("_enter_eager", "What `with eager()` begins with."),
    method<leave_eager>("_leave_eager", "What `with eager()` ends with."),
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef properties[] = {
    property<stream>("stream",
                     "Where calls launch their work: a Stream. Work of your own that reads outputs "
                     "or writes inputs belongs there too, or must be ordered with it."),
    property<device>("device", "Such as 'cuda:0'."),
    property<closed>("closed", "Whether close() was called."),
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
  if (!stats.last_failure.empty()) {
    const Reference text = from_text(stats.last_failure);
    check_status(PyDict_SetItemString(dict.get(), "last_failure", text.get()));
  }
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
  g_type = add_object_type<OpenContext>(module, {.name = "cgtree._cgtree.Context",
                                                 .methods = methods,
                                                 .properties = properties,
                                                 .make = make,
                                                 .flags = Py_TPFLAGS_BASETYPE});
}

}  // namespace cgtree::python
