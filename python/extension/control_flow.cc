// Branches and loops on the device, with functions of Python as bodies, and the Python type
// cgtree.LoopStream.
#include "extensions/flow/control_flow.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "extensions/flow/loop_stream.h"
#include "interop/device/stream.h"
#include "interop/random/generator.h"
#include "python/extension/compiled.h"
#include "python/extension/import.h"
#include "python/extension/module.h"
#include "python/extension/results.h"
#include "python/extension/tensor.h"

namespace cgtree::python {

template <>
struct Caster<Generator> {
  static const Generator& from(PyObject* object, const char* what) {
    return expect_object<Generator>(object, what);
  }
};

namespace {

using Body = std::function<std::vector<Tensor>()>;

// The kind of result that all bodies of a call return.
using SharedKind = std::shared_ptr<ResultKind>;

// Rethrows an error of a body, with a note of its name. In a captured body, an error that cgtree
// itself raised becomes an exception of C++ again, so that the step is not recorded.
[[noreturn]] void rethrow(const PythonError& error, const std::string& name) {
  error.add_note("in " + name);
  const bool is_refused = error.is_a("InvalidArgument") || error.is_a("DeviceError");
  if (is_refused && current_stream().is_capturing())
    throw InvalidArgument(str_format("{} (in {})", error.what(), name));
  throw error;
}

// Calls the function, and reads its result. Errors of the function get a note of its name.
template <typename Read>
auto call_round(PyObject* function, const Read& read,
                const std::string& name = "the body of loop()") {
  const GilAcquire gil;
  const NoCollection none(current_stream().is_capturing());
  try {
    const Reference result = call_with(function);
    return read(result.get());
  } catch (const PythonError& error) {
    rethrow(error, name);
  }
}

std::vector<Tensor> call_body(PyObject* function, const std::string& name, ResultKind& kind) {
  const auto read = [&](PyObject* result) {
    return read_result(result, name, kind, "all bodies must return alike");
  };
  return call_round(function, read, name);
}

// Returns null for None. Throws TypeError for an object that cannot be called.
Body body_of(PyObject* function, std::string name, SharedKind kind) {
  if (function == nullptr || function == Py_None) return nullptr;
  (void)to_callable(function, name.c_str());
  return [kept = keep_for_step(function), name = std::move(name), kind = std::move(kind)] {
    return call_body(static_cast<PyObject*>(kept.get()), name, *kind);
  };
}

// Refuses results of a body, for which there is no place.
std::function<void()> without_results(const Body& body, const char* instead) {
  if (!body) return nullptr;
  return [&body, instead] {
    if (body().empty()) return;
    throw InvalidArgument(str_format("a body returned tensors: {}", instead));
  };
}

// Returns a predicate, an index or a row as a tensor; it may be an array of another library.
Tensor to_given(PyObject* object) {
  if (is_tensor(object)) return tensor_of(object);
  return import_object(object, {.consumer = current_stream()});
}

// Calls run() without the lock; then raises errors of host work of this thread.
template <typename Run>
auto enqueue(const Run& run) {
  auto made = without_gil(run);
  throw_raised_in_launch();
  return made;
}

LoopRound to_round(PyObject* result) {
  const bool is_pair = is_tuple_or_list(result) && PySequence_Size(result) == 2;
  if (!is_pair) {
    throw InvalidArgument(
        "the body of loop(rows=...) must return two tensors: the flag and the row");
  }
  const Reference pair = items_of(result);
  return {to_given(PyTuple_GetItem(pair.get(), 0)), to_given(PyTuple_GetItem(pair.get(), 1))};
}

// ---- cgtree.LoopStream ----

struct RowsHolder {
  std::unique_ptr<LoopStream> rows;
  std::size_t row_bytes = 0;

  void end() { end_without_gil(std::move(rows)); }
};

using std::chrono::microseconds;

// The longest time for which a wait ignores signals.
constexpr microseconds kSlice = std::chrono::milliseconds(100);

RowsHolder make_rows(Device device, std::size_t row_bytes, std::size_t rows) {
  return {without_gil([&] { return std::make_unique<LoopStream>(device, row_bytes, rows); }),
          row_bytes};
}

Reference row_of(const LoopRow& row, const std::byte* data) {
  return pack(from_bytes({data, row.bytes}), row.loop, row.round, row.is_last);
}

Reference next(const RowsHolder& holder, std::optional<microseconds> timeout) {
  const microseconds limit = timeout.value_or(microseconds::max());
  const auto data = std::make_unique_for_overwrite<std::byte[]>(holder.row_bytes);
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    const auto waited = std::chrono::steady_clock::now() - begin;
    const microseconds left = limit - std::chrono::floor<microseconds>(waited);
    const std::optional<LoopRow> row = without_gil([&] {
      return holder.rows->next({data.get(), holder.row_bytes}, std::min(left, kSlice));
    });
    if (row) return row_of(*row, data.get());
    if (left <= kSlice) return Reference::borrow(Py_None);
    check_status(PyErr_CheckSignals());
  }
}

// ---- Branches and loops ----

using Generators = std::vector<Generator>;

Reference branch_of(PyObject* flag, PyObject* first, PyObject* second,
                    const Generators& generators) {
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

template <bool has_results>
Reference choose_of(PyObject* flag, PyObject* functions, const Generators& generators) {
  const auto kind = std::make_shared<ResultKind>(ResultKind::kUnknown);
  std::vector<Body> bodies;
  for_each_item(functions, [&](PyObject* function) {
    bodies.push_back(body_of(function, str_format("body {} of choose()", bodies.size()), kind));
  });
  const Tensor index = to_given(flag);
  std::vector<Tensor> made = enqueue([&] {
    if (has_results) return choose_results(index, bodies, generators);
    std::vector<std::function<void()>> plain;
    for (const Body& body : bodies)
      plain.push_back(without_results(body, "choose_results() is for bodies with results"));
    choose(index, plain, generators);
    return std::vector<Tensor>();
  });
  return results_of(*kind, made);
}

Tensor loop_of(std::int64_t max_rounds, Callable body, RowsHolder* rows,
               const Generators& generators) {
  PyObject* const function = body.object;
  return enqueue([&] {
    if (rows == nullptr) {
      return loop(
          max_rounds, [&] { return call_round(function, to_given); }, generators);
    }
    return loop(
        max_rounds, *rows->rows, [&] { return call_round(function, to_round); }, generators);
  });
}

}  // namespace

void add_control_flow(PyObject* module) {
  add_type<RowsHolder>(
      module, {.name = "cgtree.LoopStream",
               .methods = {bind<&next>("next"),
                           bind<[](const RowsHolder& holder) { holder.rows->stop(); }>("stop")},
               .maker = constructor<&make_rows>()});
  add_functions(
      module, {bind_function<&branch_of>("branch"), bind_function<&choose_of<false>>("choose"),
               bind_function<&choose_of<true>>("choose_results"), bind_function<&loop_of>("loop")});
}

}  // namespace cgtree::python
