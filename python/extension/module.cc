// The extension module cgtree._cgtree: functions of the process and of the running step, and the
// module's initialization.
#include "python/extension/module.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/log.h"
#include "cgtree/record/step.h"
#include "cgtree/values/axes.h"
#include "cgtree/values/graph_scope.h"
#include "extensions/scopes/scope.h"
#include "extensions/watch/recent_events.h"
#include "interop/device/device_api.h"
#include "interop/device/stream.h"
#include "interop/tensor/empty.h"
#include "python/extension/context.h"
#include "python/extension/stream.h"
#include "python/extension/tensor.h"

namespace cgtree::python {

template <>
struct Caster<LogLevel> {
  static LogLevel from(PyObject* object, const char* what) {
    return to_choice<LogLevel>(object, what,
                               {{"trace", LogLevel::kTrace},
                                {"debug", LogLevel::kDebug},
                                {"info", LogLevel::kInfo},
                                {"warn", LogLevel::kWarn},
                                {"error", LogLevel::kError},
                                {"off", LogLevel::kOff}});
  }
};

namespace {

Reference key_of_step() {
  Reference dict = new_dict();
  add_key(dict.get(), current_key());
  return dict;
}

// In other modes, calls that allocate or free device memory are refused while the thread captures.
Reference call_relaxed(Callable function) {
  const StreamRef current = current_stream_or_none();
  const RelaxedCapture relaxed(current ? current.api().graphs() : nullptr);
  return checked(PyObject_CallNoArgs(function.object));
}

void dump_on_signal(const std::string& path, const std::vector<std::int64_t>& signals) {
  std::vector<int> numbers;
  for (const std::int64_t number : signals)
    numbers.push_back(static_cast<int>(std::clamp<std::int64_t>(number, -1, 1 << 16)));
  dump_events_on_signal(path, numbers);
}

void add_process_functions(PyObject* module) {
  add_functions(
      module,
      {bind_function<[] { return make_stream(current_stream(), nullptr); }>("current_stream"),
       bind_function<[] { return current_allocator() != nullptr; }>("is_in_step"),
       bind_function<&key_of_step>("current_key"), bind_function<&axis_length>("axis_length"),
       bind_function<&refuse_capture>("refuse_capture"),
       bind_function<[]() -> const void* { return StepScope::innermost(); }>("context_of_step"),
       bind_function<&call_relaxed>("call_relaxed"), bind_function<&Device::best>("best_device"),
       bind_function<&set_log_level>("set_log_level"),
       bind_function<&dump_on_signal>("_dump_events_on_signal"),
       bind_function<&open_scope>("_open_scope"),
       bind_function<[](Word scope) { close_scope(scope); }>("_close_scope"),
       bind_function<&interpreter_ends>("_interpreter_ends")});
}

// Registers the function after which threads cannot take the lock.
void register_at_exit(PyObject* module) {
  const Reference atexit = checked(PyImport_ImportModule("atexit"));
  const Reference end = checked(PyObject_GetAttrString(module, "_interpreter_ends"));
  (void)checked(PyObject_CallMethod(atexit.get(), "register", "O", end.get()));
}

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "cgtree._cgtree", "What cgtree is made of.", -1};

Reference make_module() {
  load_errors();
  Reference module = checked(PyModule_Create(&definition));
  for (const auto add :
       {&add_process_functions, &add_tensor_type, &add_stream_type, &add_context_type,
        &add_compiled_type, &add_arrays, &add_sizes, &add_steps, &add_generator_type,
        &add_group_type, &add_progress_watch_type, &add_control_flow, &add_host_launch,
        &add_settings_type, &add_flat_call_type, &add_recent_calls_type, &add_torch_allocator})
    add(module.get());
  register_at_exit(module.get());
  return module;
}

}  // namespace
}  // namespace cgtree::python

extern "C" PyMODINIT_FUNC PyInit__cgtree() {
  return cgtree::python::guarded([] { return cgtree::python::make_module().release(); });
}
