// The Python type cgtree.ProgressWatch.
#include "extensions/progress/progress_watch.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "extensions/progress/progress_json.h"
#include "python/extension/context.h"
#include "python/extension/module.h"

namespace cgtree::python {
namespace {

struct WatchHolder {
  std::shared_ptr<ProgressWatch> watch;

  // Python runs while the watch ends, because the watch's thread may be about to call a Python
  // function.
  void end() {
    const GilRelease released;
    watch.reset();
  }
};

}  // namespace

template <>
struct Receiver<ProgressWatch> {
  static constexpr bool kIsUnlocked = true;
  static std::shared_ptr<ProgressWatch> of(PyObject* self) {
    return value_of<WatchHolder>(self).watch;
  }
};

namespace {

// An exception of the function is printed, as Python does for a destructor's.
void tell(PyObject* function, const std::string& text) {
  const GilAcquire gil;
  try {
    (void)call_with(function, text);
  } catch (const PythonError&) {
    PyErr_WriteUnraisable(function);
  }
}

WatchHolder make(std::optional<std::size_t> every_nth_replay,
                 std::optional<std::chrono::milliseconds> time_limit,
                 std::optional<Callable> on_timeout, bool times_scopes) {
  ProgressOptions options;
  options.every_nth_replay = every_nth_replay.value_or(options.every_nth_replay);
  options.time_limit = time_limit.value_or(options.time_limit);
  options.times_scopes = times_scopes;
  if (on_timeout) {
    options.on_timeout = [kept = keep_object(on_timeout->object)](const std::string& text) {
      tell(static_cast<PyObject*>(kept.get()), text);
    };
  }
  return {std::make_shared<ProgressWatch>(std::move(options))};
}

}  // namespace

std::shared_ptr<ProgressWatch> Caster<std::shared_ptr<ProgressWatch>>::from(PyObject* object,
                                                                            const char* what) {
  if (object == Py_None) return nullptr;
  return expect_object<WatchHolder>(object, what).watch;
}

void add_progress_watch_type(PyObject* module) {
  add_type<WatchHolder>(
      module,
      {.name = "cgtree.ProgressWatch",
       .methods = {bind<[](const ProgressWatch& watch) { return to_string(watch.report()); }>(
                       "report"),
                   bind<[](const ProgressWatch& watch) { return progress_json(watch.report()); }>(
                       "report_json")},
       .maker = constructor<&make>()});
}

}  // namespace cgtree::python
