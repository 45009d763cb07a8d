// Histograms, suggested buckets and precapture. Callbacks run with the lock, and what they raise
// leaves the call unchanged.
#include "python/extension/context.h"

#include <array>
#include <string>
#include <vector>

#include "base/error.h"
#include "extensions/sizes/precapture.h"
#include "python/extension/import.h"
#include "python/extension/python.h"
#include "python/extension/values.h"

namespace cgtree::python {
namespace {

// Requires: `function` outlives the result, which takes the lock.
BucketCost to_cost(PyObject* function) {
  if (function == nullptr) return {};
  return [function](std::int64_t size) {
    const GilAcquire gil;
    const Reference number = checked(PyLong_FromLongLong(size));
    const Reference cost = call_python(function, checked(PyTuple_Pack(1, number.get())).get());
    return to_double(cost.get());
  };
}

Reference list_of(const std::vector<std::int64_t>& values) {
  return checked(PySequence_List(from_integers(values).get()));
}

std::vector<SizeCount> to_histogram(PyObject* object) {
  std::vector<SizeCount> counts;
  for_each_entry(object, "suggest_buckets(): expected a dict {size: how often it came}",
                 [&](PyObject* key, PyObject* value) {
                   counts.push_back({to_int64(key, "a size"), to_size(value, "a count")});
                 });
  return counts;
}

// The arguments, by position or by name.
struct Suggestion {
  PyObject* of;
  std::size_t max_buckets;
  BucketCost cost;
};

Suggestion read_suggestion(PyObject* arguments, PyObject* keywords, const char* first) {
  const auto [of, max_buckets, cost] = read_arguments<3>(
      arguments, keywords, {"suggest_buckets", {first, "max_buckets", "cost"}, 2});
  return {of, to_size(max_buckets, "max_buckets"), to_cost(cost)};
}

Reference dict_of(const CallSizes& sizes) {
  Reference dict = checked(PyDict_New());
  for (const CallSizes::Entry& entry : sizes.entries()) {
    const Reference name = from_text(entry.axis);
    const Reference size = checked(PyLong_FromLongLong(entry.size));
    check_status(PyDict_SetItem(dict.get(), name.get(), size.get()));
  }
  add_key(dict.get(), sizes.key());
  return dict;
}

double seconds(std::chrono::microseconds time) {
  return static_cast<double>(time.count()) * 1e-6;
}

Reference dict_of(const Precaptured& entry) {
  static constexpr std::array kOutcomes = {"recorded", "already_there", "left_out", "predicted"};
  const Reference sizes = dict_of(entry.sizes);
  return checked(Py_BuildValue("{s:O,s:s,s:s,s:n,s:n,s:d}", "sizes", sizes.get(), "outcome",
                               kOutcomes[static_cast<std::size_t>(entry.outcome)], "why",
                               entry.why.c_str(), "bytes", static_cast<Py_ssize_t>(entry.bytes),
                               "graph_bytes", static_cast<Py_ssize_t>(entry.graph_bytes), "seconds",
                               seconds(entry.time)));
}

Reference dict_of(const PrecaptureReport& report) {
  const Reference entries =
      new_list(report.entries.size(), [&](std::size_t i) { return dict_of(report.entries[i]); });
  const std::string text = to_string(report);
  return checked(Py_BuildValue("{s:O,s:n,s:n,s:d,s:s}", "entries", entries.get(), "bytes",
                               static_cast<Py_ssize_t>(report.bytes), "graph_bytes",
                               static_cast<Py_ssize_t>(report.graph_bytes), "seconds",
                               seconds(report.time), "text", text.c_str()));
}

std::vector<PrecaptureOptions::Sizes> to_sizes(PyObject* dict) {
  std::vector<PrecaptureOptions::Sizes> all;
  for (Buckets& named : to_buckets(dict))
    all.push_back({std::move(named.axis), std::move(named.sizes)});
  return all;
}

// Reads {name: values}, where None means the values of the options.
std::vector<PrecaptureOptions::KeyValues> to_key_values(PyObject* dict) {
  std::vector<PrecaptureOptions::KeyValues> parts;
  constexpr const char* kExpected = "precapture(): expected a dict {name: values} as `key`";
  for_each_entry(dict, kExpected, [&](PyObject* key, PyObject* values) {
    auto& part = parts.emplace_back();
    part.name = to_text(key, "a name in the key");
    if (values == Py_None) return;
    for_each_item(values, [&](PyObject* item) {
      if (PyUnicode_Check(item)) {
        part.values.emplace_back(to_text(item, part.name.c_str()));
      } else {
        part.values.emplace_back(to_int64(item, part.name.c_str()));
      }
    });
  });
  return parts;
}

// Callbacks calls the Python functions of one precapture, on its thread, which has released the
// lock.
class Callbacks {
 public:
  Callbacks(const Context& context, PyObject* make_inputs, PyObject* progress)
      : context_(context), make_inputs_(make_inputs), progress_(progress) {}

  std::vector<Tensor> inputs(const CallSizes& sizes) {
    const GilAcquire gil;
    const Reference dict = dict_of(sizes);
    const Reference given = call_python(make_inputs_, checked(PyTuple_Pack(1, dict.get())).get());
    const bool is_list = PyTuple_Check(given.get()) || PyList_Check(given.get());
    const Reference items = is_list ? items_of(given.get()) : checked(PyTuple_Pack(1, given.get()));
    std::vector<Tensor> tensors;
    for_each_item(items.get(), [&](PyObject* item) {
      tensors.push_back(import_object(item, {.consumer = context_.stream(), .on_any_device = true},
                                      &needs_wait_));
    });
    if (needs_wait_) kept_.insert(kept_.end(), tensors.begin(), tensors.end());
    return tensors;
  }
  void done(const Precaptured& entry) const {
    const GilAcquire gil;
    (void)call_python(progress_, checked(PyTuple_Pack(1, dict_of(entry).get())).get());
  }
  // Waits if nothing else makes the producers wait for our work. Requires: the lock is released.
  void settle() {
    if (needs_wait_) context_.synchronize();
    kept_.clear();
  }

 private:
  const Context& context_;
  PyObject* make_inputs_;
  PyObject* progress_;
  std::vector<Tensor> kept_;
  bool needs_wait_ = false;
};

}  // namespace

Reference size_counts(const CompiledCore& core, PyObject* axis) {
  Reference dict = checked(PyDict_New());
  const std::string named = to_text(axis, "axis");
  for (const SizeCount& entry : without_gil([&] { return core.histogram(named); })) {
    const Reference size = checked(PyLong_FromLongLong(entry.size));
    const Reference count = checked(PyLong_FromUnsignedLongLong(entry.count));
    check_status(PyDict_SetItem(dict.get(), size.get(), count.get()));
  }
  return dict;
}

Reference suggest_for(const CompiledCore& core, PyObject* arguments, PyObject* keywords) {
  const Suggestion given = read_suggestion(arguments, keywords, "axis");
  const std::string axis = to_text(given.of, "axis");
  return list_of(without_gil(
      [&] { return cgtree::suggest_buckets(core, axis, given.max_buckets, given.cost); }));
}

Reference suggest_all_for(const CompiledCore& core, PyObject* max_combinations) {
  const std::size_t most = to_size(max_combinations, "max_combinations");
  Reference dict = checked(PyDict_New());
  for (const Buckets& axis :
       without_gil([&] { return cgtree::suggest_buckets(core, {.max_combinations = most}); })) {
    check_status(PyDict_SetItem(dict.get(), from_text(axis.axis).get(), list_of(axis.sizes).get()));
  }
  return dict;
}

Reference suggest_buckets_of(PyObject*, PyObject* arguments, PyObject* keywords) {
  const Suggestion given = read_suggestion(arguments, keywords, "histogram");
  return list_of(suggest_buckets(to_histogram(given.of), given.max_buckets, given.cost));
}

Reference precapture(const CompiledCore& core, const Context& context, PyObject* arguments,
                     PyObject* keywords, bool only_predicts) {
  const char* const what = only_predicts ? "predict_memory" : "precapture";
  const auto [make_inputs, sizes, key, time, progress, held] = read_arguments<6>(
      arguments, keywords,
      {what, {"make_inputs", "sizes", "key", "max_time", "progress", "held_outputs"}, 1, 1});
  if (PyCallable_Check(make_inputs) == 0) {
    throw InvalidArgument(
        std::string(what) +
        "(make_inputs, ...): expected a function of {axis: size} that makes the inputs of a call");
  }
  PrecaptureOptions options;
  if (sizes != nullptr) options.sizes = to_sizes(sizes);
  if (key != nullptr) options.key = to_key_values(key);
  if (time != nullptr) options.max_time = to_microseconds(time, "max_time");
  if (held != nullptr) options.held_outputs = to_size(held, "held_outputs");
  Callbacks callbacks(context, make_inputs, progress);
  if (progress != nullptr) {
    options.progress = [&](const Precaptured& entry) { callbacks.done(entry); };
  }
  PrecaptureReport report;
  without_gil([&] {
    and_settle(callbacks, [&] {
      const MakeInputs make = [&](const CallSizes& sizes) { return callbacks.inputs(sizes); };
      report = only_predicts ? cgtree::predict_memory(core, options, make)
                             : cgtree::precapture(core, options, make);
    });
  });
  return dict_of(report);
}

}  // namespace cgtree::python
