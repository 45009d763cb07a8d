// The Python type cgtree.CompiledFunction.
#include "python/extension/module.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/frame.h"
#include "cgtree/compile.h"
#include "extensions/watch/spelling.h"
#include "interop/device/stream.h"
#include "interop/tensor/tensor.h"
#include "python/extension/compiled.h"
#include "python/extension/import.h"
#include "python/extension/inspection.h"
#include "python/extension/results.h"
#include "python/extension/tensor.h"

namespace cgtree::python {

template <>
struct Caster<WhenFrozen> {
  static WhenFrozen from(PyObject* object, const char* what) {
    return to_choice<WhenFrozen>(
        object, what, {{"run_eagerly", WhenFrozen::kRunEagerly}, {"throw", WhenFrozen::kThrow}});
  }
};

namespace {

struct OnThread {
  // The kept objects of the outermost step function that runs: its recording keeps them.
  std::shared_ptr<KeptObjects> kept;
  std::weak_ptr<ContextState> last_default;  // the default context used last
};

// In its scope objects are kept for the step function, unless another step function runs already.
struct KeepsForStep {
  explicit KeepsForStep(const std::shared_ptr<KeptObjects>& kept) {
    if (!before) of_thread<OnThread>().kept = kept;
  }
  ~KeepsForStep() { of_thread<OnThread>().kept = std::move(before); }

  std::shared_ptr<KeptObjects> before = of_thread<OnThread>().kept;
};

}  // namespace

std::vector<Tensor> PythonStep::run(std::span<const Tensor> inputs) {
  const GilAcquire gil;
  if (function == nullptr) throw InvalidArgument("this step function was collected as garbage");
  ++runs;
  const Reference arguments =
      new_tuple(inputs.size(), [&](std::size_t i) { return make_tensor(inputs[i]); });
  const std::shared_ptr<void> callee = function;
  const NoCollection none(current_stream_or_none() && current_stream_or_none().is_capturing());
  const KeepsForStep keeps(kept);
  const Reference result = call_python(static_cast<PyObject*>(callee.get()), arguments.get());
  return read_result(result.get(), "the step function", kind, "a replay could not tell which");
}

namespace {

// Returns the default context of the thread.
std::shared_ptr<ContextState> context_of_thread() {
  std::weak_ptr<ContextState>& last = of_thread<OnThread>().last_default;
  std::shared_ptr<ContextState> state = last.lock();
  if (state == nullptr || state->context == nullptr) last = state = default_context();
  return state;
}

// The contexts of ended threads take their bindings along.
void drop_expired(Compiled& compiled) {
  auto& all = compiled.bindings;
  const auto expired = std::partition(
      all.begin(), all.end(), [](const auto& binding) { return !binding->context.expired(); });
  std::vector<std::unique_ptr<ContextBinding>> dropped(std::make_move_iterator(expired),
                                                       std::make_move_iterator(all.end()));
  all.erase(expired, all.end());
  end_without_gil(std::move(dropped));
}

const CompiledCore& add_binding(Compiled& compiled, const std::shared_ptr<ContextState>& context) {
  drop_expired(compiled);
  const std::shared_ptr<Context> open = context->open();
  auto binding = without_gil([&] {
    StepFunction run = [step = compiled.step](std::span<const Tensor> inputs) {
      return step->run(inputs);
    };
    return std::unique_ptr<ContextBinding>(
        new ContextBinding{context.get(), context,
                           CompiledCore(*open, compiled.name, std::move(run), compiled.options)});
  });
  // Another thread may have bound the same context meanwhile; then one of the two bindings is never
  // used.
  compiled.bindings.push_back(std::move(binding));
  return compiled.bindings.back()->core;
}

const CompiledCore& core_for(Compiled& compiled, const std::shared_ptr<ContextState>& context) {
  for (const auto& binding : compiled.bindings) {
    if (binding->place == context.get() && !binding->context.expired()) return binding->core;
  }
  return add_binding(compiled, context);
}

}  // namespace

Bound bound(Compiled& compiled) {
  std::shared_ptr<ContextState> kept;
  if (compiled.context == nullptr) kept = context_of_thread();
  const std::shared_ptr<ContextState>& state = kept == nullptr ? compiled.context : kept;
  const CompiledCore& core = core_for(compiled, state);
  const Context& context = *state->open();
  return {std::move(kept), &context, &core};
}

namespace {

// Arguments are the inputs of one call: tensors of cgtree by address, and imported arrays.
class Arguments {
 public:
  Arguments(StreamRef stream, std::size_t count) : stream_(stream) {
    addresses_.reserve(count);
    imported_.reserve(count);
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
  void add_all(std::span<PyObject* const> objects) {
    for (PyObject* const object : objects)
      add(object);
  }

  InputList list(std::size_t buffers) const {
    return {std::span<const Tensor* const>(addresses_), buffers};
  }
  // Waits for our work before the imported handles are released, if nothing else makes the producer
  // wait. Requires: the GIL is released.
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
  if (out == nullptr) return pack();
  return is_tuple_or_list(out) ? items_of(out) : pack(out);
}

// Returns the inputs by position, then those by name. Throws InvalidArgument if an input is missing
// or given twice, and TypeError for an unknown name.
std::vector<PyObject*> inputs_of(const Compiled& compiled, Rest given, const Others& named) {
  std::vector<PyObject*> inputs(given.begin(), given.end());
  if (!named.dict) return inputs;
  const std::size_t count = given.size();
  const std::string* missing = nullptr;
  for (std::size_t i = 0; i < compiled.options.inputs.size(); ++i) {
    const std::string& name = compiled.options.inputs[i].name;
    PyObject* const value = PyDict_GetItemString(named.dict.get(), name.c_str());
    if (value == nullptr) {
      if (i >= count && missing == nullptr) missing = &name;
      continue;
    }
    if (i < count || missing != nullptr) {
      throw InvalidArgument(str_format("{}(): input '{}' is {}", compiled.name,
                                       i < count ? name : *missing,
                                       i < count ? "given twice" : "missing"));
    }
    inputs.push_back(value);
    check_status(PyDict_DelItemString(named.dict.get(), name.c_str()));
  }
  if (PyDict_Size(named.dict.get()) == 0) return inputs;
  const Reference names = items_of(named.dict.get());
  PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'",
               compiled.name.c_str(), PyTuple_GetItem(names.get(), 0));
  throw PythonError();
}

Reference run_call(const PythonStep& step, const CompiledCore& core, Arguments& arguments,
                   std::size_t buffers, const Key& key) {
  TensorList outputs;
  {
    const GilRelease released;
    const InputList list = arguments.list(buffers).with_key(key.text());
    and_settle(arguments, [&] { core.call(list, outputs); });
  }
  throw_raised_in_launch();
  return results_of(step.kind, outputs.tensors());
}

Reference call_with_names(const Compiled& compiled, const Bound& bound, const Passed& passed) {
  static const Signature& signature = signature_of("CompiledFunction", "__call__");
  const auto [given, out, key, named] =
      arguments_for(TypeList<Rest, PyObject*, Key, Others>(), &signature, passed);
  const std::vector<PyObject*> inputs = inputs_of(compiled, given, named);
  const Reference buffers = buffers_of(out);
  const auto count = static_cast<std::size_t>(PyTuple_Size(buffers.get()));
  Arguments arguments(bound.context->stream(), inputs.size() + count);
  arguments.add_all(inputs);
  arguments.add_all(buffers.get());
  return run_call(*compiled.step, *bound.core, arguments, count, key);
}

PyObject* call(PyObject* self, PyObject* inputs, PyObject* keywords) {
  return guarded([&] {
    Compiled& compiled = value_of<Compiled>(self);
    const Bound bound = python::bound(compiled);
    if (keywords == nullptr) [[likely]] {
      Arguments arguments(bound.context->stream(), static_cast<std::size_t>(PyTuple_Size(inputs)));
      arguments.add_all(inputs);
      return run_call(*compiled.step, *bound.core, arguments, 0, {}).release();
    }
    return call_with_names(compiled, bound, PassedTuple(inputs, keywords).passed).release();
  });
}

// Returns look(core, inputs) for a call with these inputs.
template <typename Look>
auto look_at_call(Compiled& compiled, Rest given, const Key& key, const Others& named,
                  const Look& look) {
  const std::vector<PyObject*> inputs = inputs_of(compiled, given, named);
  const Bound bound = python::bound(compiled);
  Arguments arguments(bound.context->stream(), inputs.size());
  arguments.add_all(inputs);
  return without_gil([&] { return look(*bound.core, arguments.list(0).with_key(key.text())); });
}

InspectionReport inspect_call(Compiled& compiled, Rest given, const Key& key, const Others& named) {
  return look_at_call(compiled, given, key, named,
                      [](const auto& core, const auto& list) { return inspect(core, list); });
}

CaptureComparison compare_captures_of(Compiled& compiled, Rest given, const Key& key,
                                      const Others& named) {
  return look_at_call(compiled, given, key, named, [](const auto& core, const auto& list) {
    return compare_captures(core, list);
  });
}

CaptureComparison compare_runs_of(Compiled& compiled, Rest given, const Key& key,
                                  const Others& named) {
  return look_at_call(compiled, given, key, named,
                      [](const auto& core, const auto& list) { return compare_runs(core, list); });
}

Reference explain(Compiled& compiled, Rest given, const Key& key, const Others& named) {
  const Explanation explanation =
      look_at_call(compiled, given, key, named,
                   [](const auto& core, const auto& list) { return core.explain(list); });
  const auto with_names = [](const std::string& text) { return spelled(text, Spelling::kNames); };
  return new_dict("outcome", name(explanation.outcome), "skip_reason",
                  explanation.skip_reason ? name(*explanation.skip_reason) : "", "difference",
                  with_names(difference(explanation)), "advice", with_names(advice(explanation)),
                  "text", with_names(to_string(explanation)));
}

FunctionStats stats(Compiled& compiled) {
  // Making its binding is a call, which must wait for other calls.
  if (compiled.context != nullptr && compiled.context->open() && compiled.bindings.empty())
    return {};
  const Bound bound = python::bound(compiled);
  return without_gil([&] { return bound.core->stats(); });
}

// Returns the function that the user wrote, which compile() may have wrapped for a framework.
Reference wrapped(const Compiled& compiled) {
  PyObject* const function = compiled.step->object();
  Reference inner =
      function == nullptr ? Reference::borrow(Py_None) : find_attribute(function, "__wrapped__");
  return inner ? std::move(inner) : Reference::borrow(function);
}

Reference compile_function(std::optional<std::shared_ptr<ContextState>> context, std::string name,
                           Callable function, PyObject* options) {
  Compiled compiled;
  if (context) {
    compiled.context = std::move(*context);
    (void)compiled.context->open();
  }
  compiled.step = std::make_shared<PythonStep>(PythonStep{keep_object(function.object)});
  compiled.name = std::move(name);
  compiled.options = to_compile_options(options);
  check_compile_options(compiled.name, compiled.options);
  return new_object<Compiled>(std::move(compiled));
}

}  // namespace

std::shared_ptr<void> keep_for_step(PyObject* object) {
  const std::shared_ptr<KeptObjects>& kept_by_step = of_thread<OnThread>().kept;
  if (!kept_by_step) return keep_object(object);
  kept_by_step->push_back(object);
  Py_INCREF(object);
  return std::shared_ptr<void>(object, [list = kept_by_step](void* kept) {
    if (!interpreter_is_alive()) return;
    const GilAcquire gil;
    auto* const ended = static_cast<PyObject*>(kept);
    list->erase(std::next(std::find(list->rbegin(), list->rend(), ended)).base());
    Py_DECREF(ended);
  });
}

void add_compiled_type(PyObject* module) {
  std::vector<Method> methods = {
      bind<&explain>("explain"),
      bind<&inspect_call>("inspect"),
      bind<&compare_captures_of>("compare_captures"),
      bind<&compare_runs_of>("compare_runs"),
      bind<&stats>("stats"),
      bind<[](Compiled& compiled, std::optional<WhenFrozen> when) {
        bound(compiled).core->freeze(when.value_or(WhenFrozen::kRunEagerly));
      }>("freeze"),
      bind<[](Compiled& compiled) { bound(compiled).core->unfreeze(); }>("unfreeze"),
      bind<[](Compiled& compiled) { return bound(compiled).core->last_outcome(); }>(
          "last_outcome")};
  for (const Method& each : size_methods())
    methods.push_back(each);
  constexpr auto kName = [](const Compiled& compiled) { return compiled.name; };
  add_type<Compiled>(module, {.name = "cgtree.CompiledFunction",
                              .methods = std::move(methods),
                              .properties = {property<kName>("name"), property<kName>("__name__"),
                                             property<&wrapped>("__wrapped__")},
                              .slots = {{Py_tp_call, reinterpret_cast<void*>(call)}}});
  add_functions(module, {bind_function<&compile_function>("compile")});
}

}  // namespace cgtree::python
