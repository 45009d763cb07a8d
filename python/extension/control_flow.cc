// Branches and loops on the device, with functions of Python as bodies.
#include "python/extension/control_flow.h"
#include "extensions/flow/control_flow.h"

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "interop/device/stream.h"
#include "python/extension/compiled.h"
#include "python/extension/import.h"
#include "python/extension/module.h"
#include "python/extension/object.h"
#include "python/extension/results.h"
#include "python/extension/tensor.h"
#include "python/extension/values.h"

namespace cgtree::python {
namespace {

using Body = std::function<std::vector<Tensor>()>;

// The kind of result that all bodies of a call return.
using SharedKind = std::shared_ptr<ResultKind>;

// Rethrows what a body has raised, with a note of its name. Where the body is captured, what cgtree
// has refused there is an error of C++ again, so that the step is not recorded.
[[noreturn]] void rethrow(const PythonError& error, const std::string& name) {
  error.add_note("in " + name);
  const bool is_refused = error.is_a("InvalidArgument") || error.is_a("DeviceError");
  if (is_refused && current_stream().is_capturing())
    throw InvalidArgument(fmt::format("{} (in {})", error.what(), name));
  throw error;
}

// Calls the function. What it raises has a note of its name.
std::vector<Tensor> call_body(PyObject* function, const std::string& name, ResultKind& kind) {
  const GilAcquire gil;
  const NoCollection none(current_stream().is_capturing());
  const Reference arguments = checked(PyTuple_New(0));
  try {
    const Reference result = call_python(function, arguments.get());
    const ResultKind found = kind_of(result.get(), name);
    if (kind != ResultKind::kUnknown && kind != found) {
      throw InvalidArgument(
          fmt::format("{} returned {}, and another body {}: all must return alike", name,
                      name_of(found), name_of(kind)));
    }
    kind = found;
    return tensors_of(result.get(), found);
  } catch (const PythonError& error) {
    rethrow(error, name);
  }
}

// Returns null for None. Throws TypeError for what cannot be called.
Body body_of(PyObject* function, std::string name, SharedKind kind) {
  if (function == nullptr || function == Py_None) return nullptr;
  if (PyCallable_Check(function) == 0) {
    PyErr_SetString(PyExc_TypeError, (name + ": expected a function").c_str());
    throw PythonError();
  }
  return [kept = keep_for_step(function), name = std::move(name), kind = std::move(kind)] {
    return call_body(static_cast<PyObject*>(kept.get()), name, *kind);
  };
}

// Refuses the results of a body: they have no place to go.
std::function<void()> without_results(const Body& body, const char* instead) {
  if (!body) return nullptr;
  return [&body, instead] {
    if (body().empty()) return;
    throw InvalidArgument(fmt::format("a body returned tensors: {}", instead));
  };
}

// Returns a tensor that says which way to go, or a row, which may be an array of another library.
Tensor to_given(PyObject* object) {
  if (is_tensor(object)) return tensor_of(object);
  return import_object(object, {.consumer = current_stream()});
}

// Calls run() without the lock; then raises what host work of this thread has raised.
template <typename Run>
auto enqueue(const Run& run) {
  auto made = without_gil(run);
  throw_raised_in_launch();
  return made;
}

std::vector<Body> bodies_of(PyObject* functions, const SharedKind& kind) {
  std::vector<Body> bodies;
  for_each_item(functions, [&](PyObject* function) {
    std::string name = fmt::format("body {} of choose()", bodies.size());
    bodies.push_back(body_of(function, std::move(name), kind));
  });
  return bodies;
}

// Calls the function, and reads what it returns.
template <typename Read>
auto call_round(PyObject* function, const Read& read) {
  const std::string name = "the body of loop()";
  const GilAcquire gil;
  const NoCollection none(current_stream().is_capturing());
  const Reference arguments = checked(PyTuple_New(0));
  try {
    const Reference result = call_python(function, arguments.get());
    return read(result.get());
  } catch (const PythonError& error) {
    rethrow(error, name);
  }
}

LoopRound to_round(PyObject* result) {
  const bool is_pair =
      (PyTuple_Check(result) || PyList_Check(result)) && PySequence_Size(result) == 2;
  if (!is_pair) {
    throw InvalidArgument(
        "the body of loop(rows=...) must return two tensors: the flag and the row");
  }
  const Reference pair = items_of(result);
  return {to_given(PyTuple_GetItem(pair.get(), 0)), to_given(PyTuple_GetItem(pair.get(), 1))};
}

}  // namespace

Reference branch_of(PyObject*, PyObject* arguments, PyObject* keywords) {
  const auto [flag, first, second, drawn] = read_arguments<4>(
      arguments, keywords, {"branch", {"predicate", "then", "otherwise", "generators"}, 2, 3});
  const std::vector<Generator> generators = generators_of(drawn);
  const auto kind = std::make_shared<ResultKind>(ResultKind::kUnknown);
  const Body then = body_of(first, "then() of branch()", kind);
  const Body otherwise = body_of(second, "otherwise() of branch()", kind);
  const Tensor predicate = to_given(flag);
  std::vector<Tensor> made = enqueue([&] {
    if (otherwise) return branch_results(predicate, then, otherwise, generators);
    branch(predicate, without_results(then, "a branch with results needs otherwise()"), nullptr,
           generators);
    return std::vector<Tensor>();
  });
  return results_of(*kind, made);
}

void choose_of(PyObject*, PyObject* arguments, PyObject* keywords) {
  const auto [flag, functions, drawn] =
      read_arguments<3>(arguments, keywords, {"choose", {"index", "bodies", "generators"}, 2, 2});
  const std::vector<Generator> generators = generators_of(drawn);
  const auto kind = std::make_shared<ResultKind>(ResultKind::kUnknown);
  const std::vector<Body> bodies = bodies_of(functions, kind);
  std::vector<std::function<void()>> plain;
  for (const Body& body : bodies)
    plain.push_back(without_results(body, "choose_results() is for bodies with results"));
  const Tensor index = to_given(flag);
  enqueue([&] {
    choose(index, plain, generators);
    return true;
  });
}

Reference choose_results_of(PyObject*, PyObject* arguments, PyObject* keywords) {
  const auto [flag, functions, drawn] = read_arguments<3>(
      arguments, keywords, {"choose_results", {"index", "bodies", "generators"}, 2, 2});
  const std::vector<Generator> generators = generators_of(drawn);
  const auto kind = std::make_shared<ResultKind>(ResultKind::kUnknown);
  const std::vector<Body> bodies = bodies_of(functions, kind);
  const Tensor index = to_given(flag);
  std::vector<Tensor> made = enqueue([&] { return choose_results(index, bodies, generators); });
  return results_of(*kind, made);
}

Reference loop_of(PyObject*, PyObject* arguments, PyObject* keywords) {
  const auto [limit, function, given, drawn] = read_arguments<4>(
      arguments, keywords, {"loop", {"max_rounds", "body", "rows", "generators"}, 2, 2});
  const std::int64_t max_rounds = to_int64(limit, "max_rounds");
  if (PyCallable_Check(function) == 0) {
    PyErr_SetString(PyExc_TypeError, "the body of loop(): expected a function");
    throw PythonError();
  }
  const std::vector<Generator> generators = generators_of(drawn);
  LoopStream* const rows = given == nullptr ? nullptr : &loop_stream_of(given);
  Tensor rounds = enqueue([&, function = function] {
    if (rows == nullptr) {
      return loop(
          max_rounds, [&] { return call_round(function, to_given); }, generators);
    }
    return loop(
        max_rounds, *rows, [&] { return call_round(function, to_round); }, generators);
  });
  return make_tensor(std::move(rounds));
}

}  // namespace cgtree::python
