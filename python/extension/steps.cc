// The Python type cgtree.Steps, which puts begin() and end() around the work of an engine, breaks
// of steps, and values that are passed by value.
#include "cgtree/steps.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cgtree/compile.h"
#include "cgtree/values/eager_break.h"
#include "interop/tensor/empty.h"
#include "python/extension/compiled.h"
#include "python/extension/context.h"
#include "python/extension/import.h"
#include "python/extension/module.h"
#include "python/extension/object.h"
#include "python/extension/stream.h"
#include "python/extension/tensor.h"
#include "python/extension/values.h"

namespace cgtree::python {
namespace {

// PythonSteps are Steps with the step that is open.
struct PythonSteps {
  std::shared_ptr<ContextState> context;
  std::unique_ptr<Steps> steps;
  std::vector<std::size_t> host_bytes;  // by binding
  std::optional<Step> open;
  std::thread::id thread;  // on which it was begun
  // Of the open step: what it was given, and the bytes of its step blocks.
  std::vector<Tensor> tensors;
  std::vector<std::string> blocks;
};

PythonSteps& steps_of(PyObject* self) {
  return value_of<PythonSteps>(self);
}

Step& open_step(PythonSteps& steps) {
  if (steps.open) return *steps.open;
  throw InvalidArgument(
      fmt::format("no step of '{}' is open: it was replayed, has ended, or was not begun",
                  steps.steps->name()));
}

void leave(PythonSteps& steps) {
  if (!steps.open) return;
  if (steps.thread != std::this_thread::get_id()) {
    throw InvalidArgument(fmt::format(
        "a step of '{}' is open on another thread: end or leave it there", steps.steps->name()));
  }
  without_gil([&] { steps.open.reset(); });
  steps.tensors.clear();
  steps.blocks.clear();
}

bool go_on(PythonSteps& steps) {
  const bool must_run = steps.open && steps.open->must_run();
  if (!must_run) leave(steps);
  return must_run;
}

std::string bytes_of(PyObject* object) {
  Py_buffer view;
  check_status(PyObject_GetBuffer(object, &view, PyBUF_SIMPLE));
  std::string bytes(static_cast<const char*>(view.buf), static_cast<std::size_t>(view.len));
  PyBuffer_Release(&view);
  return bytes;
}

// Returns the range of a pair (address, bytes), or of an array of any library.
Binding binding_of(PythonSteps& steps, PyObject* object, StreamRef stream) {
  if (PyTuple_Check(object) && PyTuple_Size(object) == 2) {
    return {reinterpret_cast<const void*>(to_address(PyTuple_GetItem(object, 0), "address")),
            to_size(PyTuple_GetItem(object, 1), "bytes")};
  }
  const Tensor tensor =
      is_tensor(object) ? tensor_of(object) : import_object(object, {.consumer = stream});
  if (!tensor.is_contiguous()) {
    throw InvalidArgument(
        "a binding is one range of memory, and this array has gaps: pass (address, bytes)");
  }
  steps.tensors.push_back(tensor);
  return {reinterpret_cast<const void*>(tensor.address()), tensor.bytes()};
}

std::vector<Binding> bindings_of(PythonSteps& steps, PyObject* objects, StreamRef stream) {
  steps.tensors.clear();
  steps.blocks.clear();
  const Reference items = items_of(objects);
  const auto count = static_cast<std::size_t>(PyTuple_Size(items.get()));
  steps.blocks.reserve(count);
  std::vector<Binding> bindings;
  for (std::size_t i = 0; i < count; ++i) {
    PyObject* const item = PyTuple_GetItem(items.get(), static_cast<Py_ssize_t>(i));
    if (i < steps.host_bytes.size() && steps.host_bytes[i] > 0) {
      const std::string& block = steps.blocks.emplace_back(bytes_of(item));
      bindings.push_back({block.data(), block.size()});
    } else {
      bindings.push_back(binding_of(steps, item, stream));
    }
  }
  return bindings;
}

bool begin(PyObject* self, PyObject* arguments) {
  const auto [given, key, stream] =
      read_arguments<3>(arguments, nullptr, {"begin", {"bindings", "key", "stream"}, 1});
  PythonSteps& steps = steps_of(self);
  if (steps.open) {
    throw InvalidArgument(
        fmt::format("a step of '{}' is open: end or leave that one first", steps.steps->name()));
  }
  const Context& context = *steps.context->open();
  const StreamRef place = to_optional_stream(stream, context.device());
  const Key read = key == nullptr ? Key() : to_key(key);
  const std::vector<Binding> bindings = bindings_of(steps, given, place ? place : context.stream());
  without_gil([&] { steps.open.emplace(steps.steps->begin(read, bindings, place)); });
  steps.thread = std::this_thread::get_id();
  return go_on(steps);
}

bool end(PyObject* self) {
  PythonSteps& steps = steps_of(self);
  Step& step = open_step(steps);
  try {
    without_gil([&] { step.end(); });
  } catch (...) {
    if (!steps.open->must_run()) leave(steps);
    throw;
  }
  return go_on(steps);
}

void leave_step(PyObject* self) {
  leave(steps_of(self));
}

const void* address(PyObject* self, PyObject* index) {
  return open_step(steps_of(self)).address(to_size(index, "binding"));
}

bool is_captured(PyObject* self) {
  return open_step(steps_of(self)).is_captured();
}

Reference stats(PyObject* self) {
  const Steps& steps = *steps_of(self).steps;
  return dict_of(without_gil([&] { return steps.stats(); }));
}

Reference last_outcome(PyObject* self) {
  return outcome_of(steps_of(self).steps->last_outcome());
}

std::size_t invalidate(PyObject* self, PyObject* arguments) {
  const auto [address, bytes] =
      read_arguments<2>(arguments, nullptr, {"invalidate", {"address", "nbytes"}, 2});
  const auto* const begin = reinterpret_cast<const void*>(to_address(address, "address"));
  Steps& steps = *steps_of(self).steps;
  const std::size_t count = to_size(bytes, "bytes");
  return without_gil([&] { return steps.invalidate(begin, count); });
}

// Steps(context, name, {binding options: lists by binding}, compile options, capture mode)
PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject*) {
  return guarded([&] {
    const auto [context, name, bindings, options, mode] =
        read_arguments<5>(arguments, nullptr,
                          {"Steps", {"context", "name", "bindings", "options", "capture_mode"}, 5});
    PythonSteps made;
    made.context = expect_context(context);
    const std::shared_ptr<Context> open = made.context->open();
    StepsOptions read;
    cgtree::detail::copy_shared_options(to_compile_options(options), read);
    read.capture_mode = to_choice<CaptureMode>(mode, "capture_mode",
                                               {{"global", CaptureMode::kGlobal},
                                                {"thread_local", CaptureMode::kThreadLocal},
                                                {"relaxed", CaptureMode::kRelaxed}});
    for_each_item(bindings, [&](PyObject* item) {
      BindingOptions& binding = read.bindings.emplace_back();
      const char* title = nullptr;
      int copied = 0, mutated = 0, compared = 0;
      Py_ssize_t bytes = 0;
      if (PyArg_ParseTuple(item, "sppnp", &title, &copied, &mutated, &bytes, &compared) == 0)
        throw PythonError();
      binding = {title, copied != 0, mutated != 0, static_cast<std::size_t>(bytes), compared != 0};
      made.host_bytes.push_back(binding.host_bytes);
    });
    const std::string title = to_text(name, "name");
    made.steps =
        without_gil([&] { return std::make_unique<Steps>(*open, title, std::move(read)); });
    return make_object<PythonSteps>(type, std::move(made)).release();
  });
}

// Its recordings wait for the device when they go.
void dealloc(PyObject* self) {
  PythonSteps last = std::move(steps_of(self));
  if (interpreter_is_alive()) {
    without_gil([&] {
      last.open.reset();
      last.steps.reset();
    });
  } else {
    (void)last.steps.release();
    if (last.open) new Step(std::move(*last.open));
  }
  dealloc_object<PythonSteps>(self);
}

// ---- Breaks and values ----

constexpr const char* kValuesName = "cgtree.StepValues";

// value(i) -> bytes, for as long as the function of the break runs.
Reference value_at(PyObject* capsule, PyObject* index) {
  const auto* const values =
      static_cast<const StepValues*>(PyCapsule_GetPointer(capsule, kValuesName));
  if (values == nullptr) throw PythonError();
  if (PyCapsule_GetContext(capsule) == nullptr) {
    throw InvalidArgument("values are valid while the function of the break runs");
  }
  const std::span<const std::byte> bytes = values->bytes(to_size(index, "input"));
  return checked(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(bytes.data()),
                                           static_cast<Py_ssize_t>(bytes.size())));
}

PyMethodDef value_method =
    method<value_at>("value", "value(i) -> bytes: input or binding i, which is passed by value.");

void call_break(const std::shared_ptr<void>& function, const StepValues& values) {
  const GilAcquire gil;
  // A capsule's pointer may not be null, so that its context says whether it is still valid.
  auto* const pointer = const_cast<StepValues*>(&values);
  const Reference capsule = checked(PyCapsule_New(pointer, kValuesName, nullptr));
  check_status(PyCapsule_SetContext(capsule.get(), pointer));
  const Reference value = checked(PyCFunction_New(&value_method, capsule.get()));
  const Reference arguments = checked(PyTuple_Pack(1, value.get()));
  struct Ended {
    PyObject* capsule;
    ~Ended() { PyCapsule_SetContext(capsule, nullptr); }
  } const ended{capsule.get()};
  (void)call_python(static_cast<PyObject*>(function.get()), arguments.get());
}

}  // namespace

void break_eagerly(PyObject*, PyObject* function) {
  if (PyCallable_Check(function) == 0) throw InvalidArgument("eager_break(): expected a function");
  EagerBreak work = [kept = keep_for_step(function)](const StepValues& values) {
    call_break(kept, values);
  };
  without_gil([&] { eager_break(std::move(work)); });
}

Reference step_block_of(PyObject*, PyObject* data) {
  const std::string bytes = bytes_of(data);
  const Shape shape{static_cast<std::int64_t>(bytes.size())};
  return make_tensor(by_value(bytes.data(), bytes.size(), shape, DType::kUInt8));
}

void add_steps_type(PyObject* module) {
  static PyMethodDef methods[] = {
      method<begin>("begin",
                    "begin(bindings, key, stream) -> bool: whether the work must be enqueued.",
                    METH_VARARGS),
      method<end>("end",
                  "end() -> bool: the work is enqueued; whether it must be enqueued once more."),
      method<leave_step>("leave", "leave(): leaves the open step, if there is one."),
      method<address>(
          "address",
          "address(i) -> int: the address of binding i for the work: its own, or that of a copy."),
      method<is_captured>(
          "is_captured",
          "is_captured() -> bool: whether the work is being captured, so that it must not wait."),
      method<stats>("stats", "stats() -> dict: as that of a CompiledFunction."),
      method<last_outcome>(
          "last_outcome",
          "last_outcome() -> (outcome, skip_reason) or None: as that of a CompiledFunction."),
      method<invalidate>("invalidate",
                         "invalidate(address, nbytes) -> int: drops the recordings that use memory "
                         "in the range, which is given away.",
                         METH_VARARGS),
      {nullptr, nullptr, 0, nullptr}};
  (void)add_object_type<PythonSteps>(module, {.name = "cgtree._cgtree.Steps",
                                              .methods = methods,
                                              .make = make,
                                              .flags = Py_TPFLAGS_BASETYPE,
                                              .dealloc = dealloc});
}

}  // namespace cgtree::python
