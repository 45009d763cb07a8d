// The Python type cgtree.CompiledFunction, and PythonStep: a Python function as a step function.
#include "python/extension/module.h"
#include "python/extension/object.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cgtree/compile.h"
#include "extensions/sizes/precapture.h"
#include "extensions/watch/spelling.h"
#include "interop/device/stream.h"
#include "interop/tensor/tensor.h"
#include "python/extension/compiled.h"
#include "python/extension/context.h"
#include "python/extension/dlpack.h"
#include "python/extension/errors.h"
#include "python/extension/import.h"
#include "python/extension/python.h"
#include "python/extension/results.h"
#include "python/extension/tensor.h"
#include "python/extension/values.h"

namespace cgtree::python {
namespace {

// Objects that recordings keep, each as often as they do. Guarded by the GIL.
using KeptObjects = std::vector<PyObject*>;

// Those of the outermost step function that runs on this thread: its recording keeps the objects.
thread_local std::shared_ptr<KeptObjects> t_kept;

// A PythonStep calls a Python function with tensors as objects, and reads what it returns.
struct PythonStep {
  PyObject* function = nullptr;  // owned; null once the cycle collector has taken it
  std::shared_ptr<KeptObjects> kept = std::make_shared<KeptObjects>();
  ResultKind kind = ResultKind::kUnknown;
  std::size_t runs = 0;

  explicit PythonStep(PyObject* given);
  ~PythonStep();
  PythonStep(const PythonStep&) = delete;
  PythonStep& operator=(const PythonStep&) = delete;

  // Takes the GIL and calls the function. Throws PythonError, and InvalidArgument for a result that
  // is not None, a tensor or a tuple or list of tensors, or that has another kind than before.
  std::vector<Tensor> run(std::span<const Tensor> inputs);
};

Reference arguments_of(std::span<const Tensor> inputs) {
  return new_tuple(inputs.size(), [&](std::size_t i) { return make_tensor(inputs[i]); });
}

// In its scope objects are kept for the step function, unless another one runs already.
class KeepsForStep {
 public:
  explicit KeepsForStep(const std::shared_ptr<KeptObjects>& kept) : is_outermost_(!t_kept) {
    if (is_outermost_) t_kept = kept;
  }
  ~KeepsForStep() {
    if (is_outermost_) t_kept.reset();
  }
  KeepsForStep(const KeepsForStep&) = delete;
  KeepsForStep& operator=(const KeepsForStep&) = delete;

 private:
  const bool is_outermost_;
};

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
  const KeepsForStep keeps(kept);
  const Reference result = call_python(callee.get(), arguments.get());
  const ResultKind found = kind_of(result.get(), "the step function");
  if (kind != ResultKind::kUnknown && kind != found) {
    throw InvalidArgument(
        fmt::format("the step function returned {}, and {} before: a replay could not tell which",
                    name_of(found), name_of(kind)));
  }
  std::vector<Tensor> tensors = tensors_of(result.get(), found);
  kind = found;
  return tensors;
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

PyTypeObject* g_type = nullptr;

Compiled& compiled_of(PyObject* self) {
  return value_of<Compiled>(self);
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
Reference buffers_of(PyObject* out) {
  if (out == nullptr) return checked(PyTuple_New(0));
  const bool is_list = PyTuple_Check(out) || PyList_Check(out);
  return is_list ? items_of(out) : checked(PyTuple_Pack(1, out));
}

PyObject* no_arguments() {
  static PyObject* const none = checked(PyTuple_New(0)).release();
  return none;
}

// Returns the key of a call; none is an empty one.
Key key_of(PyObject* key) {
  return key == nullptr ? Key() : to_key(key);
}

// Inputs by position, and the keywords that are none of them.
struct Given {
  Reference inputs;
  Reference keywords;
};

// Takes the inputs that are given by name. Throws InvalidArgument if one before them is missing, or
// is given twice.
Given given_of(const Compiled& compiled, PyObject* inputs, PyObject* keywords) {
  Given given{checked(PySequence_List(inputs)), checked(PyDict_Copy(keywords))};
  const auto count = static_cast<std::size_t>(PyTuple_Size(inputs));
  const std::string* missing = nullptr;
  for (std::size_t i = 0; i < compiled.options.inputs.size(); ++i) {
    const std::string& name = compiled.options.inputs[i].name;
    if (name == "out" || name == "key") continue;
    PyObject* const value = PyDict_GetItemString(keywords, name.c_str());
    if (value == nullptr) {
      if (i >= count && missing == nullptr) missing = &name;
      continue;
    }
    if (i < count || missing != nullptr) {
      throw InvalidArgument(fmt::format("{}(): input '{}' is {}", compiled.name,
                                        i < count ? name : *missing,
                                        i < count ? "given twice" : "missing"));
    }
    check_status(PyList_Append(given.inputs.get(), value));
    check_status(PyDict_DelItemString(given.keywords.get(), name.c_str()));
  }
  given.inputs = checked(PyList_AsTuple(given.inputs.get()));
  return given;
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
  return results_of(step.kind, outputs.tensors()).release();
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
    const Given given = given_of(compiled, inputs, keywords);
    const auto [out, key] = read_arguments<2>(no_arguments(), given.keywords.get(),
                                              {"a compiled function", {"out", "key"}});
    const Reference buffers = buffers_of(out);
    Arguments arguments(stream, PyTuple_Size(given.inputs.get()) + PyTuple_Size(buffers.get()));
    arguments.add_all(given.inputs.get());
    arguments.add_all(buffers.get());
    return call_with(*compiled.step, *bound.core, arguments,
                     static_cast<std::size_t>(PyTuple_Size(buffers.get())), key_of(key));
  });
}

Reference explain(PyObject* self, PyObject* inputs, PyObject* keywords) {
  Given all{Reference::borrow(inputs), {}};
  if (keywords != nullptr) all = given_of(compiled_of(self), inputs, keywords);
  const auto [given] = read_arguments<1>(no_arguments(), all.keywords.get(), {"explain", {"key"}});
  const Key key = key_of(given);
  const Bound bound = python::bound(compiled_of(self));
  Arguments arguments(bound.context->stream(), PyTuple_Size(all.inputs.get()));
  arguments.add_all(all.inputs.get());
  const Explanation explanation =
      without_gil([&] { return bound.core->explain(arguments.list(0).with_key(key.text())); });
  const std::string outcome(name(explanation.outcome));
  const std::string reason(explanation.skip_reason ? name(*explanation.skip_reason) : "");
  const std::string different = spelled(difference(explanation), Spelling::kNames);
  const std::string to_do = spelled(advice(explanation), Spelling::kNames);
  const std::string text = spelled(to_string(explanation), Spelling::kNames);
  return checked(Py_BuildValue("{s:s,s:s,s:s,s:s,s:s}", "outcome", outcome.c_str(), "skip_reason",
                               reason.c_str(), "difference", different.c_str(), "advice",
                               to_do.c_str(), "text", text.c_str()));
}

Reference stats(PyObject* self) {
  Compiled& compiled = compiled_of(self);
  // To make its binding is a call, which has to wait for others.
  if (compiled.context != nullptr && compiled.context->open() && compiled.bindings.empty())
    return dict_of(FunctionStats());
  const Bound bound = python::bound(compiled);
  return dict_of(without_gil([&] { return bound.core->stats(); }));
}

void freeze(PyObject* self, PyObject* arguments, PyObject* keywords) {
  const auto [given] = read_arguments<1>(arguments, keywords, {"freeze", {"when"}});
  const WhenFrozen when = given == nullptr
                              ? WhenFrozen::kRunEagerly
                              : to_choice<WhenFrozen>(given, "freeze(): when",
                                                      {{"run_eagerly", WhenFrozen::kRunEagerly},
                                                       {"throw", WhenFrozen::kThrow}});
  bound(compiled_of(self)).core->freeze(when);
}

void unfreeze(PyObject* self) {
  bound(compiled_of(self)).core->unfreeze();
}

Reference last_outcome(PyObject* self) {
  return outcome_of(bound(compiled_of(self)).core->last_outcome());
}

Reference histogram(PyObject* self, PyObject* axis) {
  return size_counts(*bound(compiled_of(self)).core, axis);
}

Reference suggest(PyObject* self, PyObject* arguments, PyObject* keywords) {
  return suggest_for(*bound(compiled_of(self)).core, arguments, keywords);
}

Reference suggest_all(PyObject* self, PyObject* max_combinations) {
  return suggest_all_for(*bound(compiled_of(self)).core, max_combinations);
}

template <bool only_predicts>
Reference precapture_or_predict(PyObject* self, PyObject* arguments, PyObject* keywords) {
  Compiled& compiled = compiled_of(self);
  const Bound bound = python::bound(compiled);
  const std::shared_ptr<Context> context =  // another thread may close it meanwhile
      (bound.kept != nullptr ? bound.kept : compiled.context)->open();
  Reference report = precapture(*bound.core, *context, arguments, keywords, only_predicts);
  throw_raised_in_launch();
  return report;
}

std::string_view title_of(PyObject* self) {
  return compiled_of(self).name;
}
// Returns the function that the user wrote, which compile() may have wrapped for a framework.
Reference wrapped(PyObject* self) {
  PyObject* const function = compiled_of(self).step->function;
  Reference inner =
      function == nullptr ? Reference::borrow(Py_None) : find_attribute(function, "__wrapped__");
  return inner ? std::move(inner) : Reference::borrow(function);
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<PyObject*>(Py_TYPE(self)));
  const Compiled& compiled = compiled_of(self);
  if (compiled.step == nullptr) return 0;
  Py_VISIT(compiled.step->function);
  for (PyObject* const object : *compiled.step->kept)
    Py_VISIT(object);
  return 0;
}

int clear(PyObject* self) {
  const Compiled& compiled = compiled_of(self);
  if (compiled.step != nullptr) Py_CLEAR(compiled.step->function);
  return 0;
}

// Its recordings wait for the device when they go.
void dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  auto bindings = std::move(compiled_of(self).bindings);
  if (interpreter_is_alive()) {
    without_gil([&] { bindings.clear(); });
  } else {
    for (auto& binding : bindings)
      (void)binding.release();
  }
  dealloc_object<Compiled>(self);
}

PyMethodDef methods[] = {
    method<explain>("explain",
                    "explain(*inputs, key=None) -> dict: what such a call would do now "
                    "('outcome'), and why: 'difference' has both sides of what differs from the "
                    "nearest recording, 'advice' says what to change, and 'text' has all."),
    method<stats>(
        "stats",
        "stats() -> dict: calls, warm_ups, recordings, replays, failures, "
        "kept_recordings, skips by reason; 'last_failure', the text of the last call that "
        "raised, if any did."),
    method<freeze>("freeze",
                   "freeze(when='run_eagerly'): from now on nothing is warmed up, recorded or "
                   "evicted for calls of this thread. A call for which no recording fits runs "
                   "eagerly, or raises CaptureError for 'throw'."),
    method<unfreeze>("unfreeze", "unfreeze(): ends what freeze() began."),
    method<last_outcome>("last_outcome",
                         "last_outcome() -> (outcome, skip_reason) or None: what the last call of "
                         "this thread did, 'replay', 'record', 'warm_up', 'run_eagerly' or "
                         "'throw', and why it ran eagerly, or ''. None before the first call."),
    method<histogram>("histogram",
                      "histogram(axis) -> {size: count}: the sizes that calls gave a dynamic axis, "
                      "for up to 4,096 different ones. Raises InvalidArgument for an axis that the "
                      "function does not have."),
    method<suggest>("suggest_buckets",
                    "suggest_buckets(axis, max_buckets, cost=None) -> list of int: "
                    "cgtree.suggest_buckets() for histogram(axis)."),
    method<suggest_all>("suggest_all_buckets",
                        "suggest_all_buckets(max_combinations) -> {axis: list of int}: the buckets "
                        "that would have cost least together for all axes and all integers of the "
                        "key that have options, with at most that many combinations of one of "
                        "each. The cost of a call is the product of its sizes."),
    method<precapture_or_predict<false>>(
        "precapture",
        "precapture(make_inputs, *, sizes=None, key=None, max_time=None, progress=None, "
        "held_outputs=1) -> dict\n\nRecords each combination of the sizes of the "
        "dynamic axes before calls come, the largest first. `make_inputs({axis: size})` makes the "
        "inputs of such a call. `sizes`: {axis: sizes}, by default all buckets and lists. `key`: "
        "{name: values} of all parts of the key, None for the values of the options; the dict that "
        "`make_inputs` gets has them too. What is not begun within `max_time` seconds "
        "is left out. `progress(entry)` is told of each. `held_outputs`: "
        "how many results of earlier calls are still held at a call. The report: 'entries' (each "
        "'sizes', 'outcome': 'recorded', 'already_there' or 'left_out', 'why', 'bytes', "
        "'graph_bytes', 'seconds'), 'bytes', 'graph_bytes', 'seconds', 'text'. Raises what the "
        "functions and calls raise, InvalidArgument for an axis without sizes; what was recorded "
        "until then stays."),
    method<precapture_or_predict<true>>(
        "predict_memory",
        "predict_memory(make_inputs, *, ...) -> dict\n\nWhat precapture() with the same arguments "
        "would take, as its report with the outcome 'predicted': each combination is run once and "
        "captured, but no graph is made, and the pools give back what they needed. 'bytes' are "
        "exact, 'graph_bytes' an estimate from the graphs."),
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef properties[] = {property<title_of>("name", "As given to compile()."),
                            property<title_of>("__name__", nullptr),
                            property<wrapped>("__wrapped__", "The step function."),
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};

constexpr const char* kDoc =
    "A compiled step function: f(*inputs, out=None, key=None). Inputs may be given by name.\n\n"
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

std::shared_ptr<void> keep_for_step(PyObject* object) {
  if (!t_kept) return keep_object(object);
  t_kept->push_back(object);
  Py_INCREF(object);
  return std::shared_ptr<void>(object, [list = t_kept](void* kept) {
    if (!interpreter_is_alive()) return;
    const GilAcquire gil;
    auto* const ended = static_cast<PyObject*>(kept);
    list->erase(std::next(std::find(list->rbegin(), list->rend(), ended)).base());
    Py_DECREF(ended);
  });
}

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

Reference compile_function(PyObject*, PyObject* arguments) {
  const auto [context, name, function, options] = read_arguments<4>(
      arguments, nullptr, {"compile", {"context", "name", "function", "options"}, 4});
  if (PyCallable_Check(function) == 0) {
    PyErr_SetString(PyExc_TypeError, "compile(): expected a function");
    throw PythonError();
  }
  Compiled compiled;
  if (context != Py_None) {
    compiled.context = expect_context(context);
    (void)compiled.context->open();
  }
  compiled.step = std::make_shared<PythonStep>(function);
  compiled.name = to_text(name, "name");
  compiled.options = to_compile_options(options);
  check_compile_options(compiled.name, compiled.options);
  return make_object<Compiled>(g_type, std::move(compiled));
}

void add_compiled_type(PyObject* module) {
  g_type = add_object_type<Compiled>(
      module, {.name = "cgtree.CompiledFunction",
               .doc = kDoc,
               .methods = methods,
               .properties = properties,
               .others = {{Py_tp_call, reinterpret_cast<void*>(call)},
                          {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                          {Py_tp_clear, reinterpret_cast<void*>(clear)}},
               .flags = Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
               .dealloc = dealloc});
}

}  // namespace cgtree::python
