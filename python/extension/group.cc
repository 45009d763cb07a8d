// The Python type cgtree.Group: one rank's end of the connection to the others.
#include "extensions/ranks/group.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "python/extension/context.h"
#include "python/extension/module.h"
#include "python/extension/object.h"
#include "python/extension/python.h"
#include "python/extension/values.h"

namespace cgtree::python {
namespace {

using SharedGroup = std::shared_ptr<Group>;

PyTypeObject* g_type = nullptr;

// A PythonGroup asks a function of Python's: minimum(words) -> words.
class PythonGroup final : public Group {
 public:
  PythonGroup(int rank, int size, PyObject* function)
      : rank_(rank), size_(size), function_(keep_object(function)) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  void minimum(std::span<std::uint64_t> words) override {
    const GilAcquire gil;
    try {
      exchange(words);
    } catch (const PythonError& error) {
      throw GroupError(
          fmt::format("minimum() of rank {} of {} raised {}", rank_, size_, error.what()));
    }
  }

 private:
  void exchange(std::span<std::uint64_t> words) const {
    const Reference list = new_list(words.size(), [&](std::size_t i) {
      return checked(PyLong_FromUnsignedLongLong(words[i]));
    });
    const Reference arguments = checked(PyTuple_Pack(1, list.get()));
    const Reference result = call_python(static_cast<PyObject*>(function_.get()), arguments.get());
    const Reference items = items_of(result.get());
    if (PyTuple_Size(items.get()) != static_cast<Py_ssize_t>(words.size())) {
      throw GroupError(fmt::format("minimum() of rank {} of {} returned {} words, and was given {}",
                                   rank_, size_, PyTuple_Size(items.get()), words.size()));
    }
    for (std::size_t i = 0; i < words.size(); ++i) {
      PyObject* const item = PyTuple_GetItem(items.get(), static_cast<Py_ssize_t>(i));
      words[i] = PyLong_AsUnsignedLongLong(item);
      if (PyErr_Occurred() != nullptr) throw PythonError();
    }
  }

  const int rank_;
  const int size_;
  const std::shared_ptr<void> function_;
};

// Group(rank, size, minimum)
PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject*) {
  return guarded([&] {
    int rank = 0;
    int size = 0;
    PyObject* minimum = nullptr;
    if (PyArg_ParseTuple(arguments, "iiO", &rank, &size, &minimum) == 0) throw PythonError();
    if (size < 1 || rank < 0 || rank >= size) {
      throw InvalidArgument(fmt::format("Group(): there is no rank {} of {}", rank, size));
    }
    if (PyCallable_Check(minimum) == 0) {
      throw InvalidArgument("Group(rank, size, minimum): minimum is no function");
    }
    return make_object<SharedGroup>(type, std::make_shared<PythonGroup>(rank, size, minimum))
        .release();
  });
}

int rank_of(PyObject* self) {
  return value_of<SharedGroup>(self)->rank();
}
int size_of_group(PyObject* self) {
  return value_of<SharedGroup>(self)->size();
}

constexpr const char* kDoc =
    "Group(rank, size, minimum): the ranks that take their decisions together, as one of them "
    "sees\n"
    "them, for Context(group=...).\n\n"
    "minimum(words): takes a list of ints from [0, 2**64) and returns the smallest that a rank "
    "has\n"
    "given for each, when all ranks have called it; it raises if one does not come. Calls that "
    "are\n"
    "no replays ask it. With torch.distributed, whose integers are signed, send each word in two\n"
    "halves. thread_groups() makes the groups of ranks that are threads.\n\n"
    ">>> alone = cgtree.Group(0, 1, lambda words: words)\n"
    ">>> context = cgtree.Context(\"host\", group=alone)\n";

}  // namespace

Reference thread_groups(PyObject*, PyObject* arguments, PyObject* keywords) {
  const auto [size, time_limit] =
      read_arguments<2>(arguments, keywords, {"thread_groups", {"size", "time_limit"}, 1});
  const std::size_t count = to_size(size, "size");
  if (count < 1 || count > 4096) throw InvalidArgument("thread_groups(): size is not 1 to 4096");
  auto limit = kGroupTimeLimit;
  if (time_limit != nullptr) {
    limit = std::chrono::ceil<std::chrono::milliseconds>(to_microseconds(time_limit, "time_limit"));
  }
  std::vector<std::unique_ptr<Group>> groups = make_thread_groups(static_cast<int>(count), limit);
  return new_list(count, [&](std::size_t i) {
    return make_object<SharedGroup>(g_type, SharedGroup(std::move(groups[i])));
  });
}

std::shared_ptr<Group> expect_group(PyObject* object) {
  if (Py_TYPE(object) == g_type) return value_of<SharedGroup>(object);
  PyErr_SetString(PyExc_TypeError, "group: expected a cgtree.Group");
  throw PythonError();
}

void add_group_type(PyObject* module) {
  static PyMethodDef methods[] = {method<rank_of>("rank", "rank() -> int"),
                                  method<size_of_group>("size", "size() -> int"),
                                  {nullptr, nullptr, 0, nullptr}};
  g_type = add_object_type<SharedGroup>(
      module, {.name = "cgtree.Group", .doc = kDoc, .methods = methods, .make = make});
}

}  // namespace cgtree::python
