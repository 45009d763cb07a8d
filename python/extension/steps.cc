// The Python type cgtree.Steps, which puts begin() and end() around the work of an engine; breaks
// of steps; and values passed by value.
#include "cgtree/steps.h"

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
#include "base/format.h"
#include "cgtree/compile.h"
#include "cgtree/values/eager_break.h"
#include "extensions/guards/guard.h"
#include "interop/tensor/empty.h"
#include "python/extension/compiled.h"
#include "python/extension/context.h"
#include "python/extension/import.h"
#include "python/extension/inspection.h"
#include "python/extension/module.h"
#include "python/extension/stream.h"
#include "python/extension/tensor.h"

namespace cgtree::python {
namespace {

// PythonSteps are Steps with their open step.
struct PythonSteps {
  std::shared_ptr<ContextState> context;
  std::unique_ptr<Steps> steps;
  std::vector<std::size_t> host_bytes;  // by binding
  std::optional<Step> open;
  std::thread::id thread;  // began the open step
  // The arguments of the open step, and the bytes of its step blocks.
  std::vector<Tensor> tensors;
  std::vector<std::string> blocks;

  // The step ends before its arguments.
  void end() { end_without_gil(std::pair(std::move(steps), std::exchange(open, std::nullopt))); }
};

}  // namespace

template <>
struct Receiver<Steps> {
  static constexpr bool kIsUnlocked = true;
  static Steps* of(PyObject* self) { return value_of<PythonSteps>(self).steps.get(); }
};
template <>
struct Caster<CaptureMode> {
  static CaptureMode from(PyObject* object, const char* what) {
    return to_choice<CaptureMode>(object, what,
                                  {{"global", CaptureMode::kGlobal},
                                   {"thread_local", CaptureMode::kThreadLocal},
                                   {"relaxed", CaptureMode::kRelaxed}});
  }
};

namespace {

Step& open_step(PythonSteps& steps) {
  if (steps.open) return *steps.open;
  throw InvalidArgument(
      str_format("no step of '{}' is open: it was replayed, has ended, or was not begun",
                 steps.steps->name()));
}

void leave(PythonSteps& steps) {
  if (!steps.open) return;
  if (steps.thread != std::this_thread::get_id()) {
    throw InvalidArgument(str_format(
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

// Returns use(bindings, stream) for a call with these arguments.
template <typename Use>
auto use_call(PythonSteps& steps, PyObject* given, PyObject* stream, const Use& use) {
  if (steps.open) {
    throw InvalidArgument(
        str_format("a step of '{}' is open: end or leave that one first", steps.steps->name()));
  }
  const Context& context = *steps.context->open();
  const StreamRef place = to_stream(stream, context.device());
  const std::vector<Binding> bindings = bindings_of(steps, given, place ? place : context.stream());
  return without_gil([&] { return use(bindings, place); });
}

bool begin(PythonSteps& steps, PyObject* given, const Key& key, PyObject* stream) {
  use_call(steps, given, stream, [&](const auto& bindings, StreamRef place) {
    steps.open.emplace(steps.steps->begin(key, bindings, place));
  });
  steps.thread = std::this_thread::get_id();
  return go_on(steps);
}

InspectionReport inspect_call(PythonSteps& steps, PyObject* given, const Key& key,
                              PyObject* stream) {
  return use_call(steps, given, stream, [&](const auto& bindings, StreamRef place) {
    return inspect(*steps.steps, key, bindings, place);
  });
}

CaptureComparison compare_captures_of(PythonSteps& steps, Callable work, PyObject* given,
                                      const Key& key, PyObject* stream) {
  const auto enqueue = [&](std::span<void* const> addresses) {
    const GilAcquire gil;
    (void)call_with(work.object, new_list(addresses.size(),
                                          [&](std::size_t i) { return to_python(addresses[i]); }));
  };
  return use_call(steps, given, stream, [&](const auto& bindings, StreamRef place) {
    return compare_captures(*steps.steps, key, bindings, enqueue, place);
  });
}

bool end(PythonSteps& steps) {
  Step& step = open_step(steps);
  try {
    without_gil([&] { step.end(); });
  } catch (...) {
    if (!steps.open->must_run()) leave(steps);
    throw;
  }
  return go_on(steps);
}

// `bindings`: (name, copied, mutated, bytes, compared, per session) of each.
PythonSteps make(
    std::shared_ptr<ContextState> context, const std::string& name,
    const std::vector<std::tuple<std::string, bool, bool, std::size_t, bool, bool>>& bindings,
    PyObject* options, CaptureMode mode) {
  PythonSteps made;
  made.context = std::move(context);
  const std::shared_ptr<Context> open = made.context->open();
  StepsOptions read;
  cgtree::detail::copy_shared_options(to_compile_options(options), read);
  read.capture_mode = mode;
  for (const auto& [title, is_copied, is_mutated, bytes, is_compared, is_session] : bindings) {
    made.host_bytes.push_back(bytes);
    read.bindings.push_back({title, is_copied, is_mutated, bytes, is_compared, is_session});
  }
  made.steps = without_gil([&] { return std::make_unique<Steps>(*open, name, std::move(read)); });
  return made;
}

// ---- Breaks and values ----

// The values of a break, which Python may hold for longer than they are valid.
struct BreakValues {
  const StepValues* values;  // null once the function of the break has returned
};

Reference value_at(const BreakValues& held, std::size_t input) {
  if (held.values == nullptr) {
    throw InvalidArgument("values are valid while the function of the break runs");
  }
  return from_bytes(held.values->bytes(input));
}

void call_break(const std::shared_ptr<void>& function, const StepValues& values) {
  const GilAcquire gil;
  const Reference held = new_object<BreakValues>(BreakValues{&values});
  struct Ended {
    PyObject* held;
    ~Ended() { value_of<BreakValues>(held).values = nullptr; }
  } const ended{held.get()};
  const Reference value = checked(PyObject_GetAttrString(held.get(), "value"));
  (void)call_with(static_cast<PyObject*>(function.get()), value.get());
}

void break_eagerly(Callable function) {
  EagerBreak work = [kept = keep_for_step(function.object)](const StepValues& values) {
    call_break(kept, values);
  };
  without_gil([&] { eager_break(std::move(work)); });
}

std::int64_t decide_by(const std::string& name, Callable function) {
  auto ask = [kept = keep_for_step(function.object)] {
    const GilAcquire gil;
    const Reference answer = call_with(static_cast<PyObject*>(kept.get()));
    return to_int64(answer.get(), "the answer of a guard");
  };
  return without_gil([&] { return decide(name, std::move(ask)); });
}

Tensor step_block_of(PyObject* data) {
  const std::string bytes = bytes_of(data);
  const Shape shape{static_cast<std::int64_t>(bytes.size())};
  return by_value(bytes.data(), bytes.size(), shape, DType::kUInt8);
}

}  // namespace

void add_steps(PyObject* module) {
  add_type<PythonSteps>(
      module,
      {.name = "cgtree._cgtree.Steps",
       .methods = {bind<&begin>("begin"), bind<&end>("end"), bind<&leave>("leave"),
                   bind<&inspect_call>("inspect"), bind<&compare_captures_of>("compare_captures"),
                   bind<[](PythonSteps& steps, std::size_t binding) -> const void* {
                     return open_step(steps).address(binding);
                   }>("address"),
                   bind<[](PythonSteps& steps) { return open_step(steps).is_captured(); }>(
                       "is_captured"),
                   bind<[](const Steps& steps) { return steps.stats(); }>("stats"),
                   bind<[](const Steps& steps) { return steps.last_outcome(); }>("last_outcome"),
                   bind<&Steps::invalidate>("invalidate")},
       .maker = constructor<&make>(),
       .flags = Py_TPFLAGS_BASETYPE});
  add_type<BreakValues>(
      module, {.name = "cgtree._cgtree.BreakValues", .methods = {bind<&value_at>("value")}});
  add_functions(module,
                {bind_function<&break_eagerly>("eager_break"), bind_function<&decide_by>("decide"),
                 bind_function<&step_block_of>("step_block")});
}

}  // namespace cgtree::python
