// The Python type cgtree.Context.
#include "python/extension/context.h"

#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "cgtree/context.h"
#include "cgtree/tree/engine.h"
#include "cgtree/values/stats_table.h"
#include "extensions/verify/verification.h"
#include "extensions/watch/monitor.h"
#include "extensions/watch/recent_events.h"
#include "python/extension/module.h"
#include "python/extension/stream.h"
#include "python/extension/tensor.h"

namespace cgtree::python {

template <>
struct Caster<ContextStats> {
  static Reference to(const ContextStats& stats) {
    Reference dict = Caster<FunctionStats>::to(stats);
    for (const auto& field : kContextStats)
      put(dict, field.name, stats.*field.value);
    put(dict, "recording_microseconds", stats.recording_time.count());
    put(dict, "text", to_string(stats));
    return dict;
  }
};

namespace {

// An OpenContext is the value of a Python object.
struct OpenContext {
  std::shared_ptr<ContextState> state;
  std::unique_ptr<EagerScope> eager = nullptr;  // ends first
  std::thread::id eager_thread = {};
};

OpenContext make(std::optional<Device> place, PyObject* stream, std::shared_ptr<Group> group,
                 const Others& others) {
  const Device device = place.value_or(Device::best());
  ContextOptions options = to_context_options(others.dict.get());
  options.group = std::move(group);
  if (stream != nullptr) {
    options.stream = to_stream(stream, device);
    options.owner = keep_stream(stream);
  }
  auto state = std::make_shared<ContextState>();
  state->context =
      without_gil([&] { return std::make_shared<Context>(device, std::move(options)); });
  return {std::move(state)};
}

void close(OpenContext& object) {
  if (object.eager != nullptr) {
    throw InvalidArgument("this context is inside `with eager()`: leave that first");
  }
  if (object.state->context == nullptr) return;
  {
    const std::shared_ptr<Context> context = object.state->context;
    without_gil([&] { context->share_engine()->check_idle(); });
  }
  end_without_gil(std::move(object.state->context));
}

std::string metrics_text_of(PyObject* list) {
  std::vector<std::shared_ptr<Context>> held;
  for_each_item(list, [&](PyObject* context) {
    if (!is_object<OpenContext>(context)) {
      throw InvalidArgument(str_format("metrics_text(): argument {} is no Context", held.size()));
    }
    held.push_back(Receiver<Context>::of(context));
  });
  return without_gil([&] {
    std::vector<const Context*> all;
    for (const std::shared_ptr<Context>& context : held)
      all.push_back(context.get());
    return cgtree::metrics_text(std::span<const Context* const>(all));
  });
}

void enter_eager(OpenContext& object) {
  if (object.eager != nullptr) throw InvalidArgument("`with eager()` does not nest");
  const std::shared_ptr<Context> context = object.state->open();
  object.eager =
      without_gil([&] { return std::make_unique<EagerScope>(*context->share_engine()); });
  object.eager_thread = std::this_thread::get_id();
}

void leave_eager(OpenContext& object) {
  if (object.eager == nullptr || object.eager_thread != std::this_thread::get_id()) {
    throw InvalidArgument("`with eager()` ends on the thread on which it began");
  }
  object.eager.reset();
}

Reference stream(const OpenContext& object) {
  const std::shared_ptr<Context>& context = object.state->open();
  return make_stream(context->stream(), context->share_engine());
}

template <typename Counts>
Reference counts_by_name(const Counts& counts) {
  Reference dict = new_dict();
  counts([&](auto reason, std::uint64_t count) { put(dict, name(reason), count); });
  return dict;
}

}  // namespace

ContextState::~ContextState() {
  if (context != nullptr) end_without_gil(std::move(context));
}

const std::shared_ptr<Context>& ContextState::open() const {
  if (context != nullptr) return context;
  throw InvalidArgument("this context was closed: make another");
}

std::shared_ptr<Context> Receiver<Context>::of(PyObject* self) {
  return value_of<OpenContext>(self).state->open();
}

const std::shared_ptr<ContextState>& Caster<std::shared_ptr<ContextState>>::from(PyObject* object,
                                                                                 const char* what) {
  return expect_object<OpenContext>(object, what).state;
}

Reference Caster<FunctionStats>::to(const FunctionStats& stats) {
  Reference dict = new_dict();
  for (const auto& field : kFunctionStats)
    put(dict, field.name, stats.*field.value);
  put(dict, "unverified",
      counts_by_name([&](const auto& visit) { for_each_unverified(stats, visit); }));
  put(dict, "skips", counts_by_name([&](const auto& visit) { for_each_skip(stats, visit); }));
  if (!stats.last_failure.empty()) put(dict, "last_failure", stats.last_failure);
  return dict;
}

std::shared_ptr<ContextState> default_context() {
  const Reference module = checked(PyImport_ImportModule("cgtree._context"));
  const Reference made = checked(PyObject_CallMethod(module.get(), "default_context", nullptr));
  return Caster<std::shared_ptr<ContextState>>::from(made.get(), "default_context()");
}

void add_context_type(PyObject* module) {
  add_type<OpenContext>(
      module,
      {.name = "cgtree._cgtree.Context",
       .methods =
           {bind<&Context::mark_step>("mark_step"),
            bind<&Context::release_captured>("release_captured"), bind<&Context::trim>("trim"),
            bind<&Context::release_memory>("release_memory"), bind<&Context::keep>("keep"),
            bind<&Context::declare>("declare"), bind<&Context::undeclare>("undeclare"),
            bind<&Context::invalidate>("invalidate"), bind<&Context::synchronize>("synchronize"),
            bind<&close>("close"), bind<&Context::stats>("stats"),
            bind<[](const Context& context) { return to_string(verification_of(context)); }>(
                "verification"),
            bind<[](const Context& context) { return metrics_text(context); }>("metrics_text"),
            bind<[](const Context& context) { return snapshot_json(context); }>("snapshot_json"),
            bind<&watch_progress>("watch_progress"),
            bind<[](const Context& context) { return cgtree::recent_events(context); }>(
                "recent_events"),
            bind<[](const Context& context, const std::string& path) {
              cgtree::dump_events(context, path);
            }>("dump_events"),
            bind<&enter_eager>("_enter_eager"), bind<&leave_eager>("_leave_eager")},
       .properties =
           {property<&stream>("stream"),
            property<[](const OpenContext& object) { return object.state->open()->device(); }>(
                "device"),
            property<[](const OpenContext& object) { return object.state->context == nullptr; }>(
                "closed")},
       .maker = constructor<&make>(),
       .flags = Py_TPFLAGS_BASETYPE});
  add_functions(module, {bind_function<&metrics_text_of>("_metrics_text_of")});
}

}  // namespace cgtree::python
