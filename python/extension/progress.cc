// The Python type cgtree.ProgressWatch.
#include "cgtree/values/progress.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "extensions/progress/progress_json.h"
#include "python/extension/context.h"
#include "python/extension/module.h"
#include "python/extension/object.h"
#include "python/extension/python.h"
#include "python/extension/values.h"

namespace cgtree::python {
namespace {

PyTypeObject* g_type = nullptr;

// A WatchHolder lets Python run while its watch ends, because the thread of that may be about to
// call a function of Python's.
struct WatchHolder {
  explicit WatchHolder(std::shared_ptr<ProgressWatch> given) : watch(std::move(given)) {}
  WatchHolder(WatchHolder&&) = default;
  ~WatchHolder() {
    if (watch == nullptr) return;
    const GilRelease released;
    watch.reset();
  }

  std::shared_ptr<ProgressWatch> watch;
};

// What the function raises is printed, as what a destructor raises.
void tell(PyObject* function, const std::string& text) {
  const GilAcquire gil;
  try {
    const Reference line = from_text(text);
    const Reference arguments = checked(PyTuple_Pack(1, line.get()));
    (void)call_python(function, arguments.get());
  } catch (const PythonError&) {
    PyErr_WriteUnraisable(function);
  }
}

// ProgressWatch(every_nth_replay=1, time_limit=30, on_timeout=None, times_scopes=False)
PyObject* make(PyTypeObject* type, PyObject* given, PyObject* keywords) {
  return guarded([&] {
    const auto [every, limit, function, times] = read_arguments<4>(
        given, keywords,
        {"ProgressWatch", {"every_nth_replay", "time_limit", "on_timeout", "times_scopes"}});
    ProgressOptions options;
    if (every != nullptr) options.every_nth_replay = to_size(every, "every_nth_replay");
    if (limit != nullptr) {
      options.time_limit =
          std::chrono::ceil<std::chrono::milliseconds>(to_microseconds(limit, "time_limit"));
    }
    if (times != nullptr) options.times_scopes = to_bool(times);
    if (function != nullptr && function != Py_None) {
      if (PyCallable_Check(function) == 0) {
        throw InvalidArgument("ProgressWatch(on_timeout=...): expected a function");
      }
      options.on_timeout = [kept = keep_object(function)](const std::string& text) {
        tell(static_cast<PyObject*>(kept.get()), text);
      };
    }
    return make_object<WatchHolder>(
               type, WatchHolder(std::make_shared<ProgressWatch>(std::move(options))))
        .release();
  });
}

std::string report(PyObject* self) {
  const std::shared_ptr<ProgressWatch> watch = value_of<WatchHolder>(self).watch;
  return without_gil([&] { return to_string(watch->report()); });
}

std::string report_json(PyObject* self) {
  const std::shared_ptr<ProgressWatch> watch = value_of<WatchHolder>(self).watch;
  return without_gil([&] { return progress_json(watch->report()); });
}

constexpr const char* kDoc =
    "ProgressWatch(every_nth_replay=1, time_limit=30.0, on_timeout=None, times_scopes=False): "
    "says\n"
    "where replays hang, by marks that they leave on their way, for Context.watch_progress().\n\n"
    "every_nth_replay: so many of each recording leave marks; 0: only the next one after one has\n"
    "exceeded the limit. time_limit: the seconds within which a replay is to end; 0: none.\n"
    "on_timeout(text): is called on a thread of the watch, once for a replay that has not ended "
    "by\n"
    "then; by default that is logged. times_scopes: those that leave marks are timed by their "
    "scopes,"
    "\n"
    "for metrics_text(). One watch may be given to several contexts.\n\n"
    ">>> watch = cgtree.ProgressWatch(time_limit=10, on_timeout=print)\n"
    ">>> context = cgtree.Context(\"host\")\n"
    ">>> context.watch_progress(watch)\n"
    ">>> \"no replay was watched yet\" in watch.report()\n"
    "True\n";

}  // namespace

std::shared_ptr<ProgressWatch> to_watch(PyObject* object) {
  if (object == Py_None) return nullptr;
  if (Py_TYPE(object) == g_type) return value_of<WatchHolder>(object).watch;
  PyErr_SetString(PyExc_TypeError, "watch_progress(): expected a cgtree.ProgressWatch or None");
  throw PythonError();
}

void add_progress_watch_type(PyObject* module) {
  static PyMethodDef methods[] = {
      method<report>("report",
                     "report() -> str: how far the replays of its contexts have come that have not "
                     "ended, and what ranks wait for (docs/hangs.md). Does not wait. Any thread."),
      method<report_json>("report_json",
                          "report_json() -> str: the same as JSON. `python -m cgtree report` "
                          "brings those of ranks that are processes together."),
      {nullptr, nullptr, 0, nullptr}};
  g_type = add_object_type<WatchHolder>(
      module, {.name = "cgtree.ProgressWatch", .doc = kDoc, .methods = methods, .make = make});
}

}  // namespace cgtree::python
