// Histograms, suggested buckets and precapture. Callbacks run with the lock held, and their errors
// leave the call unchanged.
#include "python/extension/context.h"

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "extensions/sizes/precapture.h"
#include "python/extension/compiled.h"
#include "python/extension/import.h"
#include "python/extension/module.h"

namespace cgtree::python {
namespace {

// Requires: the function outlives the result, which takes the lock.
SizeCost to_cost(std::optional<Callable> cost) {
  if (!cost) return {};
  return [function = cost->object](std::int64_t size) {
    const GilAcquire gil;
    return to_double(call_with(function, size).get(), "what cost() returns");
  };
}

Reference dict_of(const CallSizes& sizes) {
  Reference dict = new_dict();
  for (const auto& [axis, size] : sizes.entries())
    put(dict, axis, size);
  add_key(dict.get(), sizes.key());
  return dict;
}

double seconds(std::chrono::microseconds time) {
  return static_cast<double>(time.count()) * 1e-6;
}

Reference dict_of(const Precaptured& entry) {
  static constexpr std::array kOutcomes = {"recorded", "already_there", "left_out", "predicted"};
  return new_dict("sizes", dict_of(entry.sizes), "outcome",
                  kOutcomes[static_cast<std::size_t>(entry.outcome)], "why", entry.why, "bytes",
                  entry.bytes, "graph_bytes", entry.graph_bytes, "seconds", seconds(entry.time));
}

Reference dict_of(const PrecaptureReport& report) {
  const Reference entries =
      new_list(report.entries.size(), [&](std::size_t i) { return dict_of(report.entries[i]); });
  return new_dict("entries", entries.get(), "bytes", report.bytes, "graph_bytes",
                  report.graph_bytes, "seconds", seconds(report.time), "text", to_string(report));
}

// None among the values of a key means the values of the options.
using ValuesOfKey = std::vector<std::pair<std::string, std::optional<KeyValues>>>;

// Callbacks calls the Python functions of one precapture, on its thread, which has released the
// lock.
class Callbacks {
 public:
  Callbacks(const Context& context, PyObject* make_inputs, PyObject* progress)
      : context_(context), make_inputs_(make_inputs), progress_(progress) {}

  std::vector<Tensor> inputs(const CallSizes& sizes) {
    const GilAcquire gil;
    const Reference given = call_with(make_inputs_, dict_of(sizes));
    const Reference items =
        is_tuple_or_list(given.get()) ? items_of(given.get()) : pack(given.get());
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
    (void)call_with(progress_, dict_of(entry));
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

Reference histogram(Compiled& compiled, const std::string& axis) {
  const Bound bound = python::bound(compiled);
  Reference dict = new_dict();
  for (const auto& [size, count] : without_gil([&] { return bound.core->histogram(axis); }))
    put(dict, size, count);
  return dict;
}

Sizes suggest(Compiled& compiled, const std::string& axis, std::size_t max_buckets,
              std::optional<Callable> cost) {
  const Bound bound = python::bound(compiled);
  return without_gil(
      [&] { return cgtree::suggest_buckets(*bound.core, axis, max_buckets, to_cost(cost)); });
}

Reference suggest_all(Compiled& compiled, std::size_t max_combinations) {
  const Bound bound = python::bound(compiled);
  const std::vector<Buckets> all = without_gil(
      [&] { return cgtree::suggest_buckets(*bound.core, {.max_combinations = max_combinations}); });
  Reference dict = new_dict();
  for (const Buckets& axis : all)
    put(dict, axis.axis, axis.sizes);
  return dict;
}

Sizes suggest_of(const std::vector<std::pair<std::int64_t, std::size_t>>& histogram,
                 std::size_t max_buckets, std::optional<Callable> cost) {
  std::map<std::int64_t, std::uint64_t> counts;
  for (const auto& [size, count] : histogram)
    counts[size] += count;
  return suggest_buckets(counts, max_buckets, to_cost(cost));
}

template <bool only_predicts>
Reference precapture_of(Compiled& compiled, Callable make_inputs, PyObject* sizes,
                        const ValuesOfKey& key, std::optional<std::chrono::microseconds> max_time,
                        std::optional<Callable> progress, std::optional<std::size_t> held_outputs) {
  PrecaptureOptions options;
  if (sizes != nullptr) {
    for (Buckets& axis : to_buckets(sizes))
      options.sizes[axis.axis] = std::move(axis.sizes);
  }
  for (const auto& [name, values] : key)
    options.key.emplace_back(name, values.value_or(KeyValues()));
  options.max_time = max_time.value_or(options.max_time);
  options.held_outputs = held_outputs.value_or(options.held_outputs);
  const Bound bound = python::bound(compiled);
  // Another thread may close the context meanwhile.
  const std::shared_ptr<Context> context =
      (bound.kept != nullptr ? bound.kept : compiled.context)->open();
  Callbacks callbacks(*context, make_inputs.object, progress ? progress->object : nullptr);
  if (progress) options.progress = [&](const Precaptured& entry) { callbacks.done(entry); };
  PrecaptureReport report;
  without_gil([&] {
    and_settle(callbacks, [&] {
      const MakeInputs make = [&](const CallSizes& sizes) { return callbacks.inputs(sizes); };
      report = only_predicts ? predict_memory(*bound.core, options, make)
                             : precapture(*bound.core, options, make);
    });
  });
  Reference dict = dict_of(report);
  throw_raised_in_launch();
  return dict;
}

}  // namespace

std::vector<Method> size_methods() {
  return {bind<&histogram>("histogram"), bind<&suggest>("suggest_buckets"),
          bind<&suggest_all>("suggest_all_buckets"), bind<&precapture_of<false>>("precapture"),
          bind<&precapture_of<true>>("predict_memory")};
}

void add_sizes(PyObject* module) {
  add_functions(module, {bind_function<&suggest_of>("suggest_buckets")});
}

}  // namespace cgtree::python
