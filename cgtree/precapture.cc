// Calls a function with each combination of the sizes of its dynamic axes.
#include "cgtree/precapture.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.h"
#include "cgtree/compile.h"
#include "cgtree/tree/tree_manager.h"

namespace cgtree {
namespace {

using Clock = std::chrono::steady_clock;
using Outcome = Precaptured::Outcome;

std::chrono::microseconds since(Clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
}

const std::vector<std::int64_t>& sizes_of(const FunctionState& function, const AxisOptions& axis,
                                          const PrecaptureOptions& options) {
  for (const PrecaptureOptions::Sizes& given : options.sizes) {
    if (given.axis == axis.name) return given.sizes;
  }
  if (!axis.sizes.empty()) return axis.sizes;
  throw InvalidArgument(
      fmt::format("precapture of '{}': axis '{}' has neither buckets nor a list of sizes; name "
                  "some in PrecaptureOptions::sizes",
                  function.name, axis.name));
}

double work(const CallSizes& sizes) {
  double work = 1;
  for (const CallSizes::Entry& entry : sizes.entries())
    work *= static_cast<double>(entry.size);
  return work;
}

// Returns all combinations, those with the most elements first.
std::vector<CallSizes> combinations(const FunctionState& function,
                                    const PrecaptureOptions& options) {
  for (const PrecaptureOptions::Sizes& given : options.sizes)
    (void)function.axes->find(given.axis);
  std::vector<std::vector<CallSizes::Entry>> lists = {{}};
  for (const AxisOptions& axis : function.axes->layout().axes) {
    std::vector<std::vector<CallSizes::Entry>> longer;
    for (const auto& list : lists) {
      for (const std::int64_t size : sizes_of(function, axis, options)) {
        longer.push_back(list);
        longer.back().push_back({axis.name, size});
      }
    }
    lists = std::move(longer);
  }
  std::vector<CallSizes> all;
  for (auto& list : lists)
    all.emplace_back(std::move(list));
  std::stable_sort(all.begin(), all.end(),
                   [](const CallSizes& a, const CallSizes& b) { return work(a) > work(b); });
  return all;
}

// Gives back what neither a recording nor an output uses, and what tables have left behind.
void give_back(TreeManager& manager) {
  (void)manager.trim();
  (void)manager.memory().pool(Region::kEager).trim();
}

// While a Precapturing lives, calls record what is missing.
class Precapturing {
 public:
  explicit Precapturing(FunctionState& function) : function_(function) {
    function_.is_precaptured.store(true, std::memory_order_relaxed);
  }
  ~Precapturing() { function_.is_precaptured.store(false, std::memory_order_relaxed); }
  Precapturing(const Precapturing&) = delete;
  Precapturing& operator=(const Precapturing&) = delete;

 private:
  FunctionState& function_;
};

// Calls the function until it would replay or, if it is only to be warmed up, would record: at most
// twice. Drops the outputs. Returns what the last call would do; `calls` is increased by the calls.
Explanation call_until_ready(const CompiledCore& core, const std::vector<Tensor>& inputs,
                             bool only_warms_up, int& calls) {
  for (int made = 0;; ++made) {
    Explanation explanation = core.explain(std::span(inputs));
    const bool goes_on = explanation.outcome == Explanation::Outcome::kWarmUp ||
                         (explanation.outcome == Explanation::Outcome::kRecord && !only_warms_up);
    if (!goes_on || made == 2) return explanation;
    TensorList outputs;
    core.call(std::span(inputs), outputs);
    ++calls;
  }
}

// Places is a recorder of combinations that puts the outputs of each into as many places as a
// caller needs that holds some of them, in the same places for all combinations.
//
// Example: with one output held there are two places, [0, 8) and [8, 16), where the largest
// combination puts its 8 bytes. One with 4 bytes is then recorded while [8, 16) is held, which puts
// its output to [0, 4), and again while [0, 8) is held, which puts it to [8, 12). So either of its
// recordings may follow either of the largest.
//
// If it only predicts, a combination is warmed up, and captured for each place, but the graph is
// not made. What was captured lasts as long as the Places.
class Places {
 public:
  Places(const CompiledCore& core, TreeManager& manager, FunctionState& function,
         std::size_t held_outputs, bool only_predicts)
      : core_(core),
        manager_(manager),
        function_(function),
        count_(held_outputs + 1),
        only_predicts_(only_predicts) {}

  void record(const std::vector<Tensor>& inputs, Precaptured& entry) {
    int calls = 0;
    std::vector<Place> places;
    while (places.size() < count_) {
      const std::vector<StorageRef> held = hold_others(places);
      const Explanation explanation = call_until_ready(core_, inputs, only_predicts_, calls);
      if (explanation.outcome == Explanation::Outcome::kReplay) {
        places.push_back({explanation.node});
        continue;
      }
      entry.why = to_string(explanation);
      if (!only_predicts_ || explanation.outcome != Explanation::Outcome::kRecord) return;
      auto rehearsal = manager_.rehearse(function_, InputList(inputs), &entry.why);
      if (rehearsal == nullptr) return;
      entry.graph_bytes += rehearsal->recording().costs.graph_bytes();
      places.push_back({0, rehearsal.get()});
      rehearsals_.push_back(std::move(rehearsal));
    }
    if (largest_.empty()) largest_ = std::move(places);
    entry.why.clear();
    entry.outcome = entry.graph_bytes > 0 ? Outcome::kPredicted
                    : calls == 0          ? Outcome::kAlreadyThere
                                          : Outcome::kRecorded;
  }

 private:
  // What a place holds the outputs of.
  struct Place {
    std::uint32_t node = 0;
    const Rehearsal* rehearsal = nullptr;  // if there is no such recording
  };

  // Holds all places but the next one, in which a combination is to be recorded after `places`.
  std::vector<StorageRef> hold_others(const std::vector<Place>& places) {
    std::vector<StorageRef> held;
    for (std::size_t place = 0; place < largest_.size(); ++place) {
      if (place != places.size()) hold(largest_[place], held);
    }
    for (const Place& place : places)
      hold(place, held);
    return held;
  }
  void hold(const Place& place, std::vector<StorageRef>& held) {
    if (place.rehearsal == nullptr) return manager_.hold_outputs(place.node, held);
    manager_.hold_outputs(*place.rehearsal, function_, held);
  }

  const CompiledCore& core_;
  TreeManager& manager_;
  FunctionState& function_;
  const std::size_t count_;
  const bool only_predicts_;
  std::vector<std::unique_ptr<Rehearsal>> rehearsals_;
  std::vector<Place> largest_;  // of the first combination
};

}  // namespace

std::int64_t CallSizes::operator[](std::string_view axis) const {
  for (const Entry& entry : entries_) {
    if (entry.axis == axis) return entry.size;
  }
  throw InvalidArgument(fmt::format("no dynamic axis '{}' among {}", axis, to_string(*this)));
}

std::string to_string(const CallSizes& sizes) {
  std::string text;
  for (const CallSizes::Entry& entry : sizes.entries())
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", entry.axis, entry.size);
  return text;
}

std::size_t PrecaptureReport::count(Outcome outcome) const noexcept {
  return static_cast<std::size_t>(
      std::count_if(entries.begin(), entries.end(),
                    [&](const Precaptured& entry) { return entry.outcome == outcome; }));
}

std::string to_string(const PrecaptureReport& report) {
  std::string text;
  for (const Precaptured& entry : report.entries) {
    constexpr const char* kOutcomes[] = {"recorded", "already there", "left out: ", "predicted"};
    text += fmt::format("{}: {}{}, {} bytes, {} of graphs, {} us\n", to_string(entry.sizes),
                        kOutcomes[static_cast<int>(entry.outcome)], entry.why, entry.bytes,
                        entry.graph_bytes, entry.time.count());
  }
  return text + fmt::format("{} bytes, {} of graphs, {} us", report.bytes, report.graph_bytes,
                            report.time.count());
}

PrecaptureReport CompiledCore::precapture(const PrecaptureOptions& options,
                                          const MakeInputs& make_inputs) const {
  return precapture(options, make_inputs, /*only_predicts=*/false);
}

// What was rehearsed is gone by the time that memory is given back.
PrecaptureReport CompiledCore::predict_memory(const PrecaptureOptions& options,
                                              const MakeInputs& make_inputs) const {
  PrecaptureReport report;
  try {
    report = precapture(options, make_inputs, /*only_predicts=*/true);
  } catch (...) {
    give_back(*manager_);
    throw;
  }
  give_back(*manager_);
  return report;
}

PrecaptureReport CompiledCore::precapture(const PrecaptureOptions& options,
                                          const MakeInputs& make_inputs, bool only_predicts) const {
  const char* const what = only_predicts ? "predict_memory" : "precapture";
  if (function_->axes == nullptr) {
    throw InvalidArgument(fmt::format("{} of '{}', which has no dynamic axes", what, name()));
  }
  if (is_frozen()) {
    throw InvalidArgument(
        fmt::format("{} of '{}', which is frozen: unfreeze() it first", what, name()));
  }
  manager_->check_idle();  // a step function that calls back would record nothing
  const auto begin = Clock::now();
  const auto memory = [&] {
    const ContextStats stats = manager_->stats();
    return std::pair(stats.pool_reserved_bytes, stats.graph_bytes);
  };
  const Precapturing precapturing(*function_);
  if (only_predicts) {  // what warming up needs for itself is given back first
    int calls = 0;
    for (const CallSizes& sizes : combinations(*function_, options)) {
      if (since(begin) >= options.max_time) break;
      (void)call_until_ready(*this, make_inputs(sizes), only_predicts, calls);
    }
    give_back(*manager_);
  }
  const std::size_t bytes_before = memory().first;
  Places places(*this, *manager_, *function_, options.held_outputs, only_predicts);
  PrecaptureReport report;
  for (CallSizes& sizes : combinations(*function_, options)) {
    const auto start = Clock::now();
    const auto [bytes, graph_bytes] = memory();
    Precaptured entry{.sizes = std::move(sizes)};
    if (since(begin) >= options.max_time) {
      entry.why = fmt::format("max_time, {} us, is over", options.max_time.count());
    } else if (bytes >= options.max_bytes) {
      entry.why = fmt::format("the pools hold {} bytes, max_bytes is {}", bytes, options.max_bytes);
    } else {
      places.record(make_inputs(entry.sizes), entry);
    }
    const auto [bytes_then, graph_bytes_then] = memory();
    entry.bytes = bytes_then - bytes;
    entry.graph_bytes += graph_bytes_then - graph_bytes;
    report.graph_bytes += entry.graph_bytes;
    entry.time = since(start);
    if (options.progress) options.progress(entry);
    report.entries.push_back(std::move(entry));
  }
  report.bytes = memory().first - bytes_before;
  report.time = since(begin);
  return report;
}

}  // namespace cgtree
