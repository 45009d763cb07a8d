// One reader for each key; a key without a reader is refused.
#include "python/extension/options.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <string>

#include "base/error.h"
#include "python/extension/values.h"

namespace cgtree::python {
namespace {

template <typename Enum>
Enum to_choice(PyObject* object, const char* what, const std::map<std::string, Enum>& choices) {
  const std::string given = to_text(object, what);
  if (const auto found = choices.find(given); found != choices.end()) return found->second;
  std::string names;
  for (const auto& [name, value] : choices)
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", name);
  throw InvalidArgument(fmt::format("{} is '{}': expected one of {}", what, given, names));
}

AtLimit to_at_limit(PyObject* object) {
  return to_choice<AtLimit>(object, "at_limit",
                            {{"run_eagerly", AtLimit::kRunEagerly},
                             {"evict", AtLimit::kEvict},
                             {"throw", AtLimit::kThrow}});
}

using Readers = std::map<std::string, std::function<void(PyObject*)>>;

// None means the default.
void read_all(PyObject* dict, const Readers& readers, const char* what) {
  if (dict == nullptr) return;
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  for (Py_ssize_t position = 0; PyDict_Next(dict, &position, &key, &value) != 0;) {
    const std::string name = to_text(key, "an option's name");
    const auto reader = readers.find(name);
    if (reader == readers.end()) {
      throw InvalidArgument(fmt::format("{} has no option '{}'", what, name));
    }
    if (value != Py_None) reader->second(value);
  }
}

template <typename Read>
void for_each_item(PyObject* sequence, Read read) {
  const Reference items = items_of(sequence);
  for (Py_ssize_t i = 0; i < PyTuple_Size(items.get()); ++i)
    read(PyTuple_GetItem(items.get(), i));
}

// Pairs (axis, name).
std::vector<DynamicAxis> to_dynamic(PyObject* object) {
  std::vector<DynamicAxis> axes;
  for_each_item(object, [&](PyObject* pair) {
    const Reference items = items_of(pair);
    if (PyTuple_Size(items.get()) != 2) {
      throw InvalidArgument("dynamic: expected pairs of an axis and its name");
    }
    axes.push_back({static_cast<int>(to_int64(PyTuple_GetItem(items.get(), 0), "an axis")),
                    to_text(PyTuple_GetItem(items.get(), 1), "an axis' name")});
  });
  return axes;
}

Padding to_padding(PyObject* object) {
  if (!PyUnicode_Check(object)) {
    const double value = PyFloat_AsDouble(object);
    if (value == -1.0 && PyErr_Occurred() != nullptr) throw PythonError();
    return Padding::of(value);
  }
  return {to_choice<Padding::Kind>(object, "padding",
                                   {{"zeros", Padding::Kind::kZeros},
                                    {"last", Padding::Kind::kLast},
                                    {"anything", Padding::Kind::kAnything}})};
}

InputOptions to_input(PyObject* dict) {
  InputOptions input;
  read_all(dict,
           {{"name", [&](PyObject* value) { input.name = to_text(value, "name"); }},
            {"static", [&](PyObject* value) { input.is_static = to_bool(value); }},
            {"mutated", [&](PyObject* value) { input.is_mutated = to_bool(value); }},
            {"alignment", [&](PyObject* value) { input.alignment = to_size(value, "alignment"); }},
            {"dynamic", [&](PyObject* value) { input.dynamic = to_dynamic(value); }},
            {"padding", [&](PyObject* value) { input.padding = to_padding(value); }}},
           "an input");
  return input;
}

OutputOptions to_output(PyObject* dict) {
  OutputOptions output;
  read_all(dict,
           {{"name", [&](PyObject* value) { output.name = to_text(value, "name"); }},
            {"dynamic", [&](PyObject* value) { output.dynamic = to_dynamic(value); }}},
           "an output");
  return output;
}

AxisOptions to_axis(PyObject* dict) {
  AxisOptions axis;
  read_all(dict,
           {{"name", [&](PyObject* v) { axis.name = to_text(v, "an axis' name"); }},
            {"policy",
             [&](PyObject* v) {
               axis.policy = to_choice<AxisPolicy>(v, "policy",
                                                   {{"exact", AxisPolicy::kExact},
                                                    {"allow_list", AxisPolicy::kAllowList},
                                                    {"skip", AxisPolicy::kSkip},
                                                    {"buckets", AxisPolicy::kBuckets}});
             }},
            {"sizes", [&](PyObject* v) { axis.sizes = to_integers(v, "a size"); }},
            {"max_sizes", [&](PyObject* v) { axis.max_sizes = to_size(v, "max_sizes"); }},
            {"at_max_sizes",
             [&](PyObject* v) {
               axis.at_max_sizes = to_choice<AtMaxSizes>(v, "at_max_sizes",
                                                         {{"run_eagerly", AtMaxSizes::kRunEagerly},
                                                          {"next_larger", AtMaxSizes::kNextLarger},
                                                          {"evict", AtMaxSizes::kEvict}});
             }},
            {"above_largest",
             [&](PyObject* v) {
               axis.above_largest = to_choice<AboveLargest>(
                   v, "above_largest",
                   {{"run_eagerly", AboveLargest::kRunEagerly}, {"throw", AboveLargest::kThrow}});
             }}},
           "an axis");
  return axis;
}

}  // namespace

std::vector<Buckets> to_buckets(PyObject* dict) {
  if (!PyDict_Check(dict)) {
    throw InvalidArgument("sizes of axes: expected a dict {axis: sizes in ascending order}");
  }
  std::vector<Buckets> buckets;
  // Reading a value may run code that changes the dict.
  const Reference copy = checked(PyDict_Copy(dict));
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  for (Py_ssize_t position = 0; PyDict_Next(copy.get(), &position, &key, &value) != 0;)
    buckets.push_back({to_text(key, "an axis' name"), to_integers(value, "a bucket")});
  return buckets;
}

ContextOptions to_context_options(PyObject* keywords) {
  ContextOptions options;
  const auto ignore = [](PyObject*) {};
  read_all(keywords,
           {{"device", ignore},
            {"stream", ignore},
            {"max_bytes", [&](PyObject* v) { options.max_bytes = to_size(v, "max_bytes"); }},
            {"pools_grow_in_place", [&](PyObject* v) { options.pools_grow_in_place = to_bool(v); }},
            {"max_recordings",
             [&](PyObject* v) { options.max_recordings = to_size(v, "max_recordings"); }},
            {"max_graph_bytes",
             [&](PyObject* v) { options.max_graph_bytes = to_size(v, "max_graph_bytes"); }},
            {"max_recording_time",
             [&](PyObject* v) {
               options.max_recording_time = to_microseconds(v, "max_recording_time");
             }},
            {"at_limit", [&](PyObject* v) { options.at_limit = to_at_limit(v); }},
            {"event_file", [&](PyObject* v) { options.event_file = to_text(v, "event_file"); }},
            {"event_file_has_replays",
             [&](PyObject* v) { options.event_file_has_replays = to_bool(v); }},
            {"checked", [&](PyObject* v) { options.checked = to_bool(v); }}},
           "a context");
  return options;
}

CompileOptions to_compile_options(PyObject* dict) {
  CompileOptions options;
  read_all(
      dict,
      {{"inputs",
        [&](PyObject* v) {
          for_each_item(v, [&](PyObject* input) { options.inputs.push_back(to_input(input)); });
        }},
       {"outputs",
        [&](PyObject* v) {
          for_each_item(v, [&](PyObject* output) { options.outputs.push_back(to_output(output)); });
        }},
       {"axes",
        [&](PyObject* v) {
          for_each_item(v, [&](PyObject* axis) { options.axes.push_back(to_axis(axis)); });
        }},
       {"buckets", [&](PyObject* v) { options.buckets = to_buckets(v); }},
       {"enabled", [&](PyObject* v) { options.enabled = to_bool(v); }},
       {"require_graph", [&](PyObject* v) { options.require_graph = to_bool(v); }},
       {"min_graph_nodes",
        [&](PyObject* v) { options.min_graph_nodes = to_size(v, "min_graph_nodes"); }},
       {"max_recordings",
        [&](PyObject* v) { options.max_recordings = to_size(v, "max_recordings"); }},
       {"max_static_changes",
        [&](PyObject* v) { options.max_static_changes = to_size(v, "max_static_changes"); }},
       {"at_limit", [&](PyObject* v) { options.at_limit = to_at_limit(v); }},
       {"pinned", [&](PyObject* v) { options.is_pinned = to_bool(v); }},
       {"on_mutated_input",
        [&](PyObject* v) {
          options.on_mutated_input =
              to_choice<OnMutatedInput>(v, "on_mutated_input",
                                        {{"copy_back", OnMutatedInput::kCopyBack},
                                         {"skip", OnMutatedInput::kSkip},
                                         {"skip_managed_too", OnMutatedInput::kSkipManagedToo},
                                         {"reject", OnMutatedInput::kReject}});
        }},
       {"on_static_change",
        [&](PyObject* v) {
          options.on_static_change = to_choice<OnStaticChange>(v, "on_static_change",
                                                               {{"record", OnStaticChange::kRecord},
                                                                {"demote", OnStaticChange::kDemote},
                                                                {"throw", OnStaticChange::kThrow}});
        }},
       {"while_missing",
        [&](PyObject* v) {
          options.while_missing =
              to_choice<WhileMissing>(v, "while_missing",
                                      {{"record", WhileMissing::kRecord},
                                       {"next_larger", WhileMissing::kNextLarger},
                                       {"run_eagerly", WhileMissing::kRunEagerly}});
        }}},
      "compile()");
  return options;
}

}  // namespace cgtree::python
