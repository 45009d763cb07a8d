// The Python type cgtree._cgtree.RecentCalls: the FlatCalls of one graph that were used last, and
// its calls by a function with these inputs as arguments.
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "python/extension/errors.h"
#include "python/extension/flat_call.h"
#include "python/extension/module.h"
#include "python/extension/object.h"
#include "python/extension/python.h"
#include "python/extension/values.h"

namespace cgtree::python {
namespace {

// A Path says how the arguments of a function become the inputs of the graph, and the results of
// the graph those of the function.
struct Path {
  std::size_t arguments = 0;
  std::vector<Py_ssize_t> inputs;   // the argument of each input; empty: in the same order
  std::vector<Py_ssize_t> results;  // by result of the function; -1: None; empty: in the same order
};

struct RecentCalls {
  std::vector<Reference> calls;  // the last one first
  Reference function;            // makes the call if none of them does
  bool has_path = false;
  Path path;

  template <typename Visit>
  int visit(const Visit& visit) const {
    for (const Reference& call : calls)
      if (const int stop = visit(call.get())) return stop;
    return visit(function.get());
  }
};

bool is_no(const Reference& result) {
  return result.get() == Py_NotImplemented;
}

// Asks each in turn with ask(call). What runs meanwhile may change the list.
template <typename Ask>
Reference first_of(const RecentCalls& recent, const Ask& ask) {
  for (std::size_t i = 0; i < recent.calls.size(); ++i) {
    const Reference call = Reference::borrow(recent.calls[i].get());
    Reference result = ask(call.get());
    if (!is_no(result)) return result;
  }
  return Reference::borrow(Py_NotImplemented);
}

Reference results_of(const Path& path, Reference results) {
  if (path.results.empty()) return results;
  Reference list = checked(PyList_New(static_cast<Py_ssize_t>(path.results.size())));
  for (std::size_t i = 0; i < path.results.size(); ++i) {
    const Py_ssize_t from = path.results[i];
    PyObject* const item = from < 0 ? Py_None : PyList_GetItem(results.get(), from);
    if (item == nullptr) throw PythonError();
    check_status(
        PyList_SetItem(list.get(), static_cast<Py_ssize_t>(i), Reference::borrow(item).release()));
  }
  return list;
}

PyObject* call(PyObject* self, PyObject* inputs) {
  return guarded([&] {
    const Reference kept = Reference::borrow(self);
    const auto ask = [&](PyObject* flat) { return call_flat_with_list(flat, inputs); };
    return first_of(value_of<RecentCalls>(self), ask).release();
  });
}

Reference call_by_path(const RecentCalls& recent, std::span<PyObject* const> arguments) {
  if (recent.path.inputs.empty()) {
    return first_of(recent, [&](PyObject* flat) { return call_flat(flat, arguments); });
  }
  std::vector<PyObject*> inputs;
  inputs.reserve(recent.path.inputs.size());
  for (const Py_ssize_t from : recent.path.inputs)
    inputs.push_back(arguments[static_cast<std::size_t>(from)]);
  return first_of(recent, [&](PyObject* flat) { return call_flat(flat, inputs); });
}

PyObject* call_with_arguments(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  return guarded([&] {
    const Reference kept = Reference::borrow(self);
    const RecentCalls& recent = value_of<RecentCalls>(self);
    const std::span<PyObject* const> given(arguments, static_cast<std::size_t>(count));
    if (recent.has_path && recent.path.arguments == given.size()) [[likely]] {
      Reference results = call_by_path(recent, given);
      if (!is_no(results)) return results_of(recent.path, std::move(results)).release();
    }
    const Reference function = Reference::borrow(recent.function.get());
    if (!function) throw InvalidArgument("RecentCalls: set_path() was not called");
    const Reference tuple =
        new_tuple(given.size(), [&](std::size_t i) { return Reference::borrow(given[i]); });
    return call_python(function.get(), tuple.get()).release();
  });
}

void set_calls(RecentCalls& recent, PyObject* calls) {
  std::vector<Reference> made;
  for_each_item(calls, [&](PyObject* call) {
    expect_flat(call);
    made.push_back(Reference::borrow(call));
  });
  std::swap(recent.calls, made);
}

std::vector<Py_ssize_t> indices_of(PyObject* numbers, Py_ssize_t least, Py_ssize_t end) {
  std::vector<Py_ssize_t> indices;
  for (const std::int64_t number : to_integers(numbers, "path")) {
    if (number < least || number >= end) throw InvalidArgument("set_path(): no such position");
    indices.push_back(static_cast<Py_ssize_t>(number));
  }
  return indices;
}

void set_path(RecentCalls& recent, PyObject* function, PyObject* path) {
  Path made;
  if (path != Py_None) {
    Py_ssize_t count = 0;
    PyObject* inputs = nullptr;
    PyObject* results = nullptr;
    if (PyArg_ParseTuple(path, "nOO", &count, &inputs, &results) == 0) throw PythonError();
    if (count < 0) throw InvalidArgument("set_path(): no such number of arguments");
    made = {static_cast<std::size_t>(count), indices_of(inputs, 0, count),
            indices_of(results, -1, PY_SSIZE_T_MAX)};
  }
  recent.has_path = path != Py_None;
  recent.path = std::move(made);
  Reference other = Reference::borrow(function);
  std::swap(recent.function, other);
}

}  // namespace

void add_recent_calls_type(PyObject* module) {
  add_type<RecentCalls>(
      module, {.name = "cgtree._cgtree.RecentCalls",
               .methods = {{"call", reinterpret_cast<void*>(call), METH_O},
                           {"call_with_arguments", reinterpret_cast<void*>(call_with_arguments),
                            METH_FASTCALL},
                           bind<&set_calls>("set_calls"),
                           bind<&set_path>("set_path")},
               .maker = constructor<[] { return RecentCalls(); }>()});
}

}  // namespace cgtree::python
