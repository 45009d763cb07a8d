// The Python type cgtree._cgtree.RecentCalls: the last used FlatCalls of one graph, and calls by a
// function with the graph's inputs as arguments.
#include <cstddef>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "python/extension/flat_call.h"
#include "python/extension/module.h"
#include "python/extension/object.h"

namespace cgtree::python {
namespace {

// A Path maps the arguments of a function to the inputs of the graph, and the results of the graph
// to those of the function.
struct Path {
  std::size_t arguments = 0;
  std::vector<std::int64_t> inputs;  // the argument of each input; empty: in the same order
  std::vector<std::int64_t>
      results;  // by result of the function; -1: None; empty: in the same order
};

struct RecentCalls {
  std::vector<Reference> calls;  // the most recent first
  Reference function;            // makes the call if no FlatCall fits
  std::optional<Path> path;

  template <typename Visit>
  void visit(const Visit& visit) const {
    for (const Reference& call : calls)
      visit(call.get());
    visit(function.get());
  }
};

bool is_no(const Reference& result) {
  return result.get() == Py_NotImplemented;
}

// Calls ask(call) for each in turn. Code that runs meanwhile may change the list.
template <typename Ask>
Reference first_of(const RecentCalls& recent, const Ask& ask) {
  for (std::size_t i = 0; i < recent.calls.size(); ++i) {
    const Reference call = Reference::borrow(recent.calls[i].get());
    Reference result = ask(call.get());
    if (!is_no(result)) return result;
  }
  return Reference::borrow(Py_NotImplemented);
}

Reference results_of(const RecentCalls& recent, Reference results) {
  if (!recent.path || recent.path->results.empty()) return results;
  const std::vector<std::int64_t>& path = recent.path->results;
  return new_list(path.size(), [&](std::size_t i) {
    PyObject* const item = path[i] < 0 ? Py_None : PyList_GetItem(results.get(), path[i]);
    if (item == nullptr) throw PythonError();
    return Reference::borrow(item);
  });
}

PyObject* call(PyObject* self, PyObject* inputs) {
  return guarded([&] {
    const Reference kept = Reference::borrow(self);
    const auto ask = [&](PyObject* flat) { return call_flat(flat, {}, inputs); };
    return first_of(value_of<RecentCalls>(self), ask).release();
  });
}

Reference call_by_path(const RecentCalls& recent, Rest arguments) {
  std::vector<PyObject*> inputs;
  inputs.reserve(recent.path->inputs.size());
  for (const std::int64_t from : recent.path->inputs)
    inputs.push_back(arguments[static_cast<std::size_t>(from)]);
  const Rest given = inputs.empty() ? arguments : Rest(inputs);
  return first_of(recent, [&](PyObject* flat) { return call_flat(flat, given, nullptr); });
}

PyObject* call_with_arguments(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  return guarded([&] {
    const Reference kept = Reference::borrow(self);
    const RecentCalls& recent = value_of<RecentCalls>(self);
    const Rest given(arguments, static_cast<std::size_t>(count));
    if (recent.path && recent.path->arguments == given.size()) [[likely]] {
      Reference results = call_by_path(recent, given);
      if (!is_no(results)) return results_of(recent, std::move(results)).release();
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

using Indices = std::vector<std::int64_t>;

Indices checked_indices(Indices indices, std::int64_t least, std::int64_t end) {
  for (const std::int64_t index : indices)
    if (index < least || index >= end) throw InvalidArgument("set_path(): no such position");
  return indices;
}

// `path`: (count, inputs, results).
void set_path(RecentCalls& recent, PyObject* function,
              std::optional<std::tuple<std::size_t, Indices, Indices>> path) {
  recent.path.reset();
  if (path) {
    auto& [count, inputs, results] = *path;
    recent.path = {count, checked_indices(std::move(inputs), 0, static_cast<std::int64_t>(count)),
                   checked_indices(std::move(results), -1, PY_SSIZE_T_MAX)};
  }
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
