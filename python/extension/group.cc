// The Python type cgtree.Group: one rank's end of the connection to the others.
#include "extensions/ranks/group.h"

#include <chrono>
#include <climits>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "python/extension/context.h"
#include "python/extension/module.h"

namespace cgtree::python {
namespace {

using SharedGroup = std::shared_ptr<Group>;

// A PythonGroup asks a Python function: minimum(words) -> words.
class PythonGroup final : public Group {
 public:
  PythonGroup(int rank, int size, Callable function)
      : rank_(rank), size_(size), function_(keep_object(function.object)) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  void minimum(std::span<std::uint64_t> words) override {
    const GilAcquire gil;
    try {
      exchange(words);
    } catch (const PythonError& error) {
      throw GroupError(
          str_format("minimum() of rank {} of {} raised {}", rank_, size_, error.what()));
    }
  }

 private:
  void exchange(std::span<std::uint64_t> words) const {
    const Reference result = call_with(static_cast<PyObject*>(function_.get()), words);
    const Reference items = items_of(result.get());
    if (PyTuple_Size(items.get()) != static_cast<Py_ssize_t>(words.size())) {
      throw GroupError(str_format("minimum() of rank {} of {} returned {} words, and was given {}",
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

SharedGroup make(std::int64_t rank, std::int64_t size, Callable minimum) {
  if (size < 1 || rank < 0 || rank >= size || size > INT_MAX) {
    throw InvalidArgument(str_format("Group(): there is no rank {} of {}", rank, size));
  }
  return std::make_shared<PythonGroup>(static_cast<int>(rank), static_cast<int>(size), minimum);
}

Reference thread_groups(std::size_t size, std::optional<std::chrono::milliseconds> time_limit) {
  if (size < 1 || size > 4096) throw InvalidArgument("thread_groups(): size is not 1 to 4096");
  std::vector<std::unique_ptr<Group>> groups =
      make_thread_groups(static_cast<int>(size), time_limit.value_or(kGroupTimeLimit));
  return new_list(size,
                  [&](std::size_t i) { return new_object<SharedGroup>(std::move(groups[i])); });
}

}  // namespace

void add_group_type(PyObject* module) {
  add_type<SharedGroup>(
      module, {.name = "cgtree.Group",
               .methods = {bind<[](const SharedGroup& group) { return group->rank(); }>("rank"),
                           bind<[](const SharedGroup& group) { return group->size(); }>("size")},
               .maker = constructor<&make>()});
  add_functions(module, {bind_function<&thread_groups>("thread_groups")});
}

}  // namespace cgtree::python
