// The Python type cgtree.CompiledFunction, and PythonStep: a Python function as a step function.
#include "python/extension/module.h"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cgtree/compile.h"
#include "interop/device/stream.h"
#include "interop/tensor/tensor.h"
#include "python/extension/compiled.h"
#include "python/extension/context.h"
#include "python/extension/dlpack.h"
#include "python/extension/errors.h"
#include "python/extension/import.h"
#include "python/extension/python.h"
#include "python/extension/tensor.h"
#include "python/extension/values.h"

namespace cgtree::python {
namespace {

// The kind of result of a Python function, which replays must return too.
enum class ResultKind { kUnknown, kNone, kTensor, kTuple, kList };

// A PythonStep calls a Python function with tensors as objects, and reads what it returns.
struct PythonStep {
  PyObject* function = nullptr;  // owned; null once the cycle collector has taken it
  ResultKind kind = ResultKind::kUnknown;
  std::size_t runs = 0;

  explicit PythonStep(PyObject* given);
  ~PythonStep();
  PythonStep(const PythonStep&) = delete;
  PythonStep& operator=(const PythonStep&) = delete;

  // Takes the GIL and calls the function. Throws PythonError, and InvalidArgument for a result that
  // is not None, a tensor or a tuple or list of tensors, or that has another kind than before.
  std::vector<Tensor> run(std::span<const Tensor> inputs);

  // Returns the outputs in the form that the function returns. Requires: the GIL; run() was called.
  Reference results(std::span<Tensor> outputs) const;
};

const char* name_of(ResultKind kind) {
  switch (kind) {
    case ResultKind::kNone:
      return "None";
    case ResultKind::kTensor:
      return "a tensor";
    case ResultKind::kTuple:
      return "a tuple";
    case ResultKind::kList:
      return "a list";
    case ResultKind::kUnknown:
      break;
  }
  return "nothing yet";
}

ResultKind kind_of(PyObject* result) {
  if (result == Py_None) return ResultKind::kNone;
  if (is_tensor(result)) return ResultKind::kTensor;
  if (PyTuple_Check(result)) return ResultKind::kTuple;
  if (PyList_Check(result)) return ResultKind::kList;
  const Reference type = checked(PyObject_Str(reinterpret_cast<PyObject*>(Py_TYPE(result))));
  throw InvalidArgument(fmt::format(
      "the step function returned {}: expected None, a cgtree.Tensor, or a tuple or list of them; "
      "arrays of CuPy, Numba or PyTorch come out of cgtree.compile(..., framework=...)",
      to_text(type.get(), "a type")));
}

Reference arguments_of(std::span<const Tensor> inputs) {
  Reference tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(inputs.size())));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    PyObject* const tensor = make_tensor(inputs[i]).release();
    check_status(PyTuple_SetItem(tuple.get(), static_cast<Py_ssize_t>(i), tensor));
  }
  return tuple;
}

std::vector<Tensor> tensors_of(PyObject* result, ResultKind kind) {
  if (kind == ResultKind::kNone) return {};
  if (kind == ResultKind::kTensor) return {tensor_of(result)};
  std::vector<Tensor> tensors;
  const Reference items = items_of(result);
  for (Py_ssize_t i = 0; i < PyTuple_Size(items.get()); ++i)
    tensors.push_back(
        expect_tensor(PyTuple_GetItem(items.get(), i), "what a step function returns"));
  return tensors;
}

PythonStep::PythonStep(PyObject* given) : function(given) {
  Py_INCREF(given);
}

PythonStep::~PythonStep() {
  if (function == nullptr || !interpreter_is_alive()) return;
  const GilAcquire gil;
  Py_DECREF(function);
}

std::vector<Tensor> PythonStep::run(std::span<const Tensor> inputs) {
  const GilAcquire gil;
  if (function == nullptr) throw InvalidArgument("this step function was collected as garbage");
  ++runs;
  const Reference arguments = arguments_of(inputs);
  const Reference callee = Reference::borrow(function);
  const NoCollection none(current_stream_or_none() && current_stream_or_none().is_capturing());
  const Reference result = call_python(callee.get(), arguments.get());
  const ResultKind found = kind_of(result.get());
  if (kind != ResultKind::kUnknown && kind != found) {
    throw InvalidArgument(
        fmt::format("the step function returned {}, and {} before: a replay could not tell which",
                    name_of(found), name_of(kind)));
  }
  std::vector<Tensor> tensors = tensors_of(result.get(), found);
  kind = found;
  return tensors;
}

Reference PythonStep::results(std::span<Tensor> outputs) const {
  if (kind == ResultKind::kNone) return Reference::borrow(Py_None);
  if (kind == ResultKind::kTensor && outputs.size() == 1) return make_tensor(std::move(outputs[0]));
  Reference tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(outputs.size())));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    PyObject* const tensor = make_tensor(std::move(outputs[i])).release();
    check_status(PyTuple_SetItem(tuple.get(), static_cast<Py_ssize_t>(i), tensor));
  }
  return kind == ResultKind::kList ? checked(PySequence_List(tuple.get())) : std::move(tuple);
}

// A Binding is a compiled function in one context.
struct Binding {
  std::weak_ptr<ContextState> context;
  CompiledCore core;
};

// A Compiled is bound to a context by its first call there, so that to compile a function, which
// modules do when they are imported, touches no device.
struct Compiled {
  std::shared_ptr<ContextState> context;  // null: the default context of the thread that calls
  std::shared_ptr<PythonStep> step;
  std::string name;
  CompileOptions options;
  std::vector<std::unique_ptr<Binding>> bindings;
};

// The default context that the thread used last.
thread_local std::weak_ptr<ContextState> t_default;

bool is_same(const std::weak_ptr<ContextState>& a, const std::weak_ptr<ContextState>& b) noexcept {
  return !a.owner_before(b) && !b.owner_before(a);
}

Binding* find_binding(const Compiled& compiled, const std::weak_ptr<ContextState>& context) {
  for (const auto& binding : compiled.bindings) {
    if (is_same(binding->context, context)) return binding.get();
  }
  return nullptr;
}

// The contexts of threads that have ended take their bindings along.
std::unique_ptr<Binding> drop_expired(Compiled& compiled) {
  for (auto& binding : compiled.bindings) {
    if (!binding->context.expired()) continue;
    std::swap(binding, compiled.bindings.back());
    std::unique_ptr<Binding> dropped = std::move(compiled.bindings.back());
    compiled.bindings.pop_back();
    return dropped;
  }
  return nullptr;
}

const CompiledCore& add_binding(Compiled& compiled, const std::shared_ptr<ContextState>& context) {
  while (std::unique_ptr<Binding> dropped = drop_expired(compiled))
    without_gil([&] { dropped.reset(); });
  const std::shared_ptr<Context> open = context->open();
  auto binding = without_gil([&] {
    StepFunction run = [step = compiled.step](std::span<const Tensor> inputs) {
      return step->run(inputs);
    };
    return std::make_unique<Binding>(
        context, CompiledCore(*open, compiled.name, std::move(run), compiled.options));
  });
  // Another thread may have bound the same context meanwhile; then one of the two is never used.
  compiled.bindings.push_back(std::move(binding));
  return compiled.bindings.back()->core;
}

// Throws InvalidArgument if the context was closed.
Bound bound(Compiled& compiled) {
  if (compiled.context != nullptr) {
    const Context& context = *compiled.context->open();
    if (!compiled.bindings.empty()) [[likely]] {
      return {nullptr, &context, &compiled.bindings.front()->core};
    }
    const CompiledCore& core = add_binding(compiled, compiled.context);
    return {nullptr, compiled.context->open().get(), &core};
  }
  std::shared_ptr<ContextState> state = t_default.lock();
  if (state == nullptr || state->context == nullptr) {
    state = default_context();
    t_default = state;
  }
  const Context& context = *state->open();
  if (const Binding* binding = find_binding(compiled, state)) {
    return {std::move(state), &context, &binding->core};
  }
  const CompiledCore& core = add_binding(compiled, state);
  return {std::move(state), &context, &core};
}

struct CompiledObject {
  PyObject ob_base;
  Compiled compiled;
};

PyTypeObject* g_type = nullptr;

Compiled& compiled_of(PyObject* self) {
  return reinterpret_cast<CompiledObject*>(self)->compiled;
}

// Arguments are the inputs of one call: tensors of cgtree by address, and imported arrays.
class Arguments {
 public:
  Arguments(StreamRef stream, Py_ssize_t count) : stream_(stream) {
    addresses_.reserve(static_cast<std::size_t>(count));
    imported_.reserve(static_cast<std::size_t>(count));
  }

  void add(PyObject* object) {
    if (is_tensor(object)) {
      addresses_.push_back(&tensor_of(object));
      return;
    }
    imported_.push_back(
        object == Py_None
            ? Tensor()
            : import_object(object, {.consumer = stream_, .on_any_device = true}, &needs_wait_));
    addresses_.push_back(&imported_.back());
  }
  void add_all(PyObject* tuple) {
    for (Py_ssize_t i = 0; i < PyTuple_Size(tuple); ++i)
      add(PyTuple_GetItem(tuple, i));
  }

  InputList list(std::size_t buffers) const {
    return {std::span<const Tensor* const>(addresses_), buffers};
  }
  // Waits for our work before the imported handles are released, if nothing else makes the producer
  // wait for it. Requires: the GIL is released.
  void settle() {
    if (needs_wait_ && !stream_.is_capturing()) stream_.synchronize();
    imported_.clear();
  }

 private:
  const StreamRef stream_;
  std::vector<const Tensor*> addresses_;
  std::vector<Tensor> imported_;
  bool needs_wait_ = false;
};

// Returns the buffers for outputs: none, a tensor, or a sequence in which None means no buffer.
Reference buffers_of(PyObject* keywords) {
  PyObject* const out = find_keyword(keywords, "out");
  if (out == nullptr) return checked(PyTuple_New(0));
  const bool is_list = PyTuple_Check(out) || PyList_Check(out);
  return is_list ? items_of(out) : checked(PyTuple_Pack(1, out));
}

// Returns the key of a call; none is an empty one.
Key key_of(PyObject* keywords) {
  PyObject* const key = find_keyword(keywords, "key");
  return key == nullptr ? Key() : to_key(key);
}

PyObject* call_with(const PythonStep& step, const CompiledCore& core, Arguments& arguments,
                    std::size_t buffers, const Key& key = {}) {
  TensorList outputs;
  {
    const GilRelease released;
    const InputList list = arguments.list(buffers).with_key(key.text());
    and_settle(arguments, [&] { core.call(list, outputs); });
  }
  throw_raised_in_launch();
  return step.results(outputs.tensors()).release();
}

PyObject* call(PyObject* self, PyObject* inputs, PyObject* keywords) {
  return guarded([&] {
    Compiled& compiled = compiled_of(self);
    const Bound bound = python::bound(compiled);
    const StreamRef stream = bound.context->stream();
    const Py_ssize_t count = PyTuple_Size(inputs);
    if (keywords == nullptr) {
      Arguments arguments(stream, count);
      arguments.add_all(inputs);
      return call_with(*compiled.step, *bound.core, arguments, 0);
    }
    static constexpr std::array kNames = {"out", "key"};
    expect_keywords(keywords, kNames, "a compiled function");
    const Reference buffers = buffers_of(keywords);
    Arguments arguments(stream, count + PyTuple_Size(buffers.get()));
    arguments.add_all(inputs);
    arguments.add_all(buffers.get());
    return call_with(*compiled.step, *bound.core, arguments,
                     static_cast<std::size_t>(PyTuple_Size(buffers.get())), key_of(keywords));
  });
}

PyObject* explain(PyObject* self, PyObject* inputs, PyObject* keywords) {
  return guarded([&] {
    static constexpr std::array kNames = {"key"};
    expect_keywords(keywords, kNames, "explain");
    const Key key = keywords == nullptr ? Key() : key_of(keywords);
    const Bound bound = python::bound(compiled_of(self));
    Arguments arguments(bound.context->stream(), PyTuple_Size(inputs));
    arguments.add_all(inputs);
    const Explanation explanation =
        without_gil([&] { return bound.core->explain(arguments.list(0).with_key(key.text())); });
    const std::string outcome(name(explanation.outcome));
    const std::string reason(explanation.skip_reason ? name(*explanation.skip_reason) : "");
    const std::string different = difference(explanation);
    const std::string to_do = advice(explanation);
    const std::string text = to_string(explanation);
    return checked(Py_BuildValue("{s:s,s:s,s:s,s:s,s:s}", "outcome", outcome.c_str(), "skip_reason",
                                 reason.c_str(), "difference", different.c_str(), "advice",
                                 to_do.c_str(), "text", text.c_str()))
        .release();
  });
}

PyObject* stats(PyObject* self, PyObject*) {
  return guarded([&] {
    Compiled& compiled = compiled_of(self);
    // To make its binding is a call, which has to wait for others.
    if (compiled.context != nullptr && compiled.context->open() && compiled.bindings.empty())
      return dict_of(FunctionStats()).release();
    const Bound bound = python::bound(compiled);
    return dict_of(without_gil([&] { return bound.core->stats(); })).release();
  });
}

PyObject* freeze(PyObject* self, PyObject* arguments, PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    expect_keywords(keywords, std::array{"when"}, "freeze");
    PyObject* const given = argument(arguments, 0, keywords, "when");
    const std::string when = given == nullptr ? "run_eagerly" : to_text(given, "when");
    if (when != "run_eagerly" && when != "throw") {
      throw InvalidArgument(
          fmt::format("freeze(): when is '{}': expected 'run_eagerly' or 'throw'", when));
    }
    bound(compiled_of(self))
        .core->freeze(when == "throw" ? WhenFrozen::kThrow : WhenFrozen::kRunEagerly);
    Py_RETURN_NONE;
  });
}

PyObject* unfreeze(PyObject* self, PyObject*) {
  return guarded([&]() -> PyObject* {
    bound(compiled_of(self)).core->unfreeze();
    Py_RETURN_NONE;
  });
}

PyObject* last_outcome(PyObject* self, PyObject*) {
  return guarded(
      [&] { return outcome_of(bound(compiled_of(self)).core->last_outcome()).release(); });
}

PyObject* histogram(PyObject* self, PyObject* axis) {
  return guarded([&] { return size_counts(*bound(compiled_of(self)).core, axis).release(); });
}

PyObject* suggest(PyObject* self, PyObject* arguments, PyObject* keywords) {
  return guarded(
      [&] { return suggest_for(*bound(compiled_of(self)).core, arguments, keywords).release(); });
}

PyObject* suggest_all(PyObject* self, PyObject* max_combinations) {
  return guarded(
      [&] { return suggest_all_for(*bound(compiled_of(self)).core, max_combinations).release(); });
}

PyObject* precapture_or_predict(PyObject* self, PyObject* arguments, PyObject* keywords,
                                bool only_predicts) {
  return guarded([&] {
    Compiled& compiled = compiled_of(self);
    const Bound bound = python::bound(compiled);
    const std::shared_ptr<Context> context =  // another thread may close it meanwhile
        (bound.kept != nullptr ? bound.kept : compiled.context)->open();
    Reference report = precapture(*bound.core, *context, arguments, keywords, only_predicts);
    throw_raised_in_launch();
    return report.release();
  });
}

PyObject* precapture_sizes(PyObject* self, PyObject* arguments, PyObject* keywords) {
  return precapture_or_predict(self, arguments, keywords, /*only_predicts=*/false);
}

PyObject* predict_memory(PyObject* self, PyObject* arguments, PyObject* keywords) {
  return precapture_or_predict(self, arguments, keywords, /*only_predicts=*/true);
}

PyObject* name_of(PyObject* self, void*) {
  return guarded([&] { return from_text(compiled_of(self).name).release(); });
}
// Returns the function that the user wrote, which compile() may have wrapped for a framework.
PyObject* wrapped(PyObject* self, void*) {
  return guarded([&] {
    PyObject* const function = compiled_of(self).step->function;
    Reference inner =
        function == nullptr ? Reference::borrow(Py_None) : find_attribute(function, "__wrapped__");
    return (inner ? std::move(inner) : Reference::borrow(function)).release();
  });
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<PyObject*>(Py_TYPE(self)));
  const Compiled& compiled = compiled_of(self);
  if (compiled.step != nullptr) Py_VISIT(compiled.step->function);
  return 0;
}

int clear(PyObject* self) {
  const Compiled& compiled = compiled_of(self);
  if (compiled.step != nullptr) Py_CLEAR(compiled.step->function);
  return 0;
}

void dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  {
    Compiled last = std::move(compiled_of(self));
    std::destroy_at(&compiled_of(self));
    if (interpreter_is_alive()) {
      const GilRelease released;  // recordings go, and wait for the device
      last.bindings.clear();
    } else {
      for (auto& binding : last.bindings)
        (void)binding.release();
    }
  }
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_GC_Del(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

PyMethodDef methods[] = {
    {"explain", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(explain)),
     METH_VARARGS | METH_KEYWORDS,
     "explain(*inputs, key=None) -> dict: what such a call would do now ('outcome'), and why: "
     "'difference' has both sides of what differs from the nearest recording, 'advice' says what "
     "to "
     "change, and 'text' has all."},
    {"stats", stats, METH_NOARGS,
     "stats() -> dict: calls, warm_ups, recordings, replays, failures, kept_recordings, skips by "
     "reason."},
    {"freeze", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(freeze)),
     METH_VARARGS | METH_KEYWORDS,
     "freeze(when='run_eagerly'): from now on nothing is warmed up, recorded or evicted for calls "
     "of this thread. A call for which no recording fits runs eagerly, or raises CaptureError for "
     "'throw'."},
    {"unfreeze", unfreeze, METH_NOARGS, "unfreeze(): ends what freeze() began."},
    {"last_outcome", last_outcome, METH_NOARGS,
     "last_outcome() -> (outcome, skip_reason) or None: what the last call of this thread did, "
     "'replay', 'record', 'warm_up', 'run_eagerly' or 'throw', and why it ran eagerly, or ''. None "
     "before the first call."},
    {"histogram", histogram, METH_O,
     "histogram(axis) -> {size: count}: the sizes that calls gave a dynamic axis, for up to 4,096 "
     "different ones. Raises InvalidArgument for an axis that the function does not have."},
    {"suggest_buckets", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(suggest)),
     METH_VARARGS | METH_KEYWORDS,
     "suggest_buckets(axis, max_buckets, cost=None) -> list of int: cgtree.suggest_buckets() for "
     "histogram(axis)."},
    {"suggest_all_buckets", suggest_all, METH_O,
     "suggest_all_buckets(max_combinations) -> {axis: list of int}: the buckets that would have "
     "cost least together for all axes and all integers of the key that have options, with at most "
     "that many combinations of one of each. The cost of a call is the product of its sizes."},
    {"precapture", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(precapture_sizes)),
     METH_VARARGS | METH_KEYWORDS,
     "precapture(make_inputs, *, sizes=None, key=None, max_time=None, max_bytes=None, "
     "progress=None, "
     "held_outputs=1) -> dict\n\nRecords each combination of the sizes of the dynamic axes before "
     "calls come, the "
     "largest first. `make_inputs({axis: size})` makes the inputs of such a call. `sizes`: {axis: "
     "sizes}, by default all buckets and lists. `key`: {name: values} of all parts of the key, "
     "None for the values of the options; the dict that `make_inputs` gets has them too. What is "
     "not begun within `max_time` seconds, or "
     "when the pools hold `max_bytes`, is left out. `progress(entry)` is told of each. "
     "`held_outputs`: how many results of earlier calls are still held at a call. The "
     "report: 'entries' (each 'sizes', 'outcome': 'recorded', 'already_there' or 'left_out', "
     "'why', 'bytes', 'graph_bytes', 'seconds'), 'bytes', 'graph_bytes', 'seconds', 'text'. Raises "
     "what the functions and calls "
     "raise, InvalidArgument for an axis without sizes; what was recorded until then stays."},
    {"predict_memory", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(predict_memory)),
     METH_VARARGS | METH_KEYWORDS,
     "predict_memory(make_inputs, *, ...) -> dict\n\nWhat precapture() with the same arguments "
     "would take, as its report with the outcome 'predicted': each combination is run once and "
     "captured, but no graph is made, and the pools give back what they needed. 'bytes' are exact, "
     "'graph_bytes' an estimate from the graphs."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef properties[] = {{"name", name_of, nullptr, "As given to compile().", nullptr},
                            {"__name__", name_of, nullptr, nullptr, nullptr},
                            {"__wrapped__", wrapped, nullptr, "The step function.", nullptr},
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};

constexpr const char* kDoc =
    "A compiled step function: f(*inputs, out=None, key=None).\n\n"
    "The first call with given shapes runs the step function (warm up), the second records it,\n"
    "later ones replay: then its Python code does not run. Inputs are tensors, or arrays of other\n"
    "libraries. `out`: arrays for the outputs, by position. `key`: {name: int or str}, what the\n"
    "work depends on beside its inputs: calls with other keys share no recording; see\n"
    "current_key(). Raises what the step function raises,\n"
    "InvalidArgument, StaleTensor, ConcurrentUse, OutOfMemory, CaptureError, DeviceError; then\n"
    "everything is as before the call.\n\n"
    ">>> context = cgtree.Context(\"host\")\n"
    ">>> f = context.compile(lambda x: x)\n"
    ">>> x = cgtree.empty((3,), device=\"host\")\n"
    ">>> for _ in range(3):\n"
    "...     y = f(x)\n"
    "...     print(f.last_outcome()[0])\n"
    "warm_up\n"
    "record\n"
    "replay\n";

}  // namespace

Reference outcome_of(const std::optional<CallOutcome>& last) {
  if (!last) return Reference::borrow(Py_None);
  const std::string outcome(name(last->outcome));
  const std::string reason(last->skip_reason ? name(*last->skip_reason) : "");
  return checked(Py_BuildValue("(ss)", outcome.c_str(), reason.c_str()));
}

Bound bound_of(PyObject* compiled) {
  return bound(compiled_of(compiled));
}

std::shared_ptr<ContextState> state_of(PyObject* compiled) {
  if (compiled_of(compiled).context != nullptr) return compiled_of(compiled).context;
  throw InvalidArgument("this function was compiled for no context");
}

std::size_t runs_of(PyObject* compiled) {
  return compiled_of(compiled).step->runs;
}

void expect_compiled(PyObject* object) {
  if (Py_TYPE(object) == g_type) return;
  PyErr_SetString(PyExc_TypeError, "expected a cgtree.CompiledFunction");
  throw PythonError();
}

PyObject* compile_function(PyObject*, PyObject* arguments) {
  return guarded([&]() -> PyObject* {
    if (PyTuple_Size(arguments) != 4) throw InvalidArgument("compile() takes four arguments");
    PyObject* const function = PyTuple_GetItem(arguments, 2);
    if (PyCallable_Check(function) == 0) {
      PyErr_SetString(PyExc_TypeError, "compile(): expected a function");
      throw PythonError();
    }
    Compiled compiled;
    if (PyObject* context = PyTuple_GetItem(arguments, 0); context != Py_None) {
      compiled.context = expect_context(context);
      (void)compiled.context->open();
    }
    compiled.step = std::make_shared<PythonStep>(function);
    compiled.name = to_text(PyTuple_GetItem(arguments, 1), "name");
    compiled.options = to_compile_options(PyTuple_GetItem(arguments, 3));
    check_compile_options(compiled.name, compiled.options);
    const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(g_type, Py_tp_alloc));
    Reference self = checked(allocate(g_type, 0));
    new (&compiled_of(self.get())) Compiled(std::move(compiled));
    return self.release();
  });
}

void add_compiled_type(PyObject* module) {
  PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void*>(call)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                         {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                         {Py_tp_clear, reinterpret_cast<void*>(clear)},
                         {Py_tp_doc, const_cast<char*>(kDoc)},
                         {Py_tp_methods, methods},
                         {Py_tp_getset, properties},
                         {0, nullptr}};
  PyType_Spec spec = {"cgtree.CompiledFunction", sizeof(CompiledObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                      slots};
  g_type = add_type(module, "CompiledFunction", spec);
}
}  // namespace cgtree::python
