// Calls a function with each combination of the sizes of its dynamic axes.
#include "cgtree/precapture.h"

#include <fmt/format.h>

#include <algorithm>

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

// Calls the function until it would replay, at most twice. Drops the outputs. Returns what the last
// call would do; `calls` is increased by the calls.
Explanation call_until_replay(const CompiledCore& core, const std::vector<Tensor>& inputs,
                              int& calls) {
  for (int made = 0;; ++made) {
    Explanation explanation = core.explain(std::span(inputs));
    const bool records = explanation.outcome == Explanation::Outcome::kWarmUp ||
                         explanation.outcome == Explanation::Outcome::kRecord;
    if (!records || made == 2) return explanation;
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
class Places {
 public:
  Places(const CompiledCore& core, TreeManager& manager, std::size_t held_outputs)
      : core_(core), manager_(manager), count_(held_outputs + 1) {}

  Outcome record(const std::vector<Tensor>& inputs, std::string* why) {
    int calls = 0;
    std::vector<std::uint32_t> nodes;
    while (nodes.size() < count_) {
      const std::vector<StorageRef> held = hold_others(nodes);
      const Explanation explanation = call_until_replay(core_, inputs, calls);
      if (explanation.outcome != Explanation::Outcome::kReplay) {
        *why = to_string(explanation);
        return Outcome::kLeftOut;
      }
      nodes.push_back(explanation.node);
    }
    if (largest_.empty()) largest_ = std::move(nodes);
    return calls == 0 ? Outcome::kAlreadyThere : Outcome::kRecorded;
  }

 private:
  // Holds all places but the next one, in which a combination is to be recorded after `nodes`.
  std::vector<StorageRef> hold_others(const std::vector<std::uint32_t>& nodes) {
    std::vector<StorageRef> held;
    for (std::size_t place = 0; place < largest_.size(); ++place) {
      if (place != nodes.size()) manager_.hold_outputs(largest_[place], held);
    }
    for (const std::uint32_t node : nodes)
      manager_.hold_outputs(node, held);
    return held;
  }

  const CompiledCore& core_;
  TreeManager& manager_;
  const std::size_t count_;
  std::vector<std::uint32_t> largest_;  // by place: the recording of the first combination
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
    const char* const outcome = entry.outcome == Outcome::kRecorded       ? "recorded"
                                : entry.outcome == Outcome::kAlreadyThere ? "already there"
                                                                          : "left out: ";
    text += fmt::format("{}: {}{}, {} bytes, {} us\n", to_string(entry.sizes), outcome, entry.why,
                        entry.bytes, entry.time.count());
  }
  return text + fmt::format("{} bytes, {} us", report.bytes, report.time.count());
}

PrecaptureReport CompiledCore::precapture(const PrecaptureOptions& options,
                                          const MakeInputs& make_inputs) const {
  if (function_->axes == nullptr) {
    throw InvalidArgument(fmt::format("precapture of '{}', which has no dynamic axes", name()));
  }
  if (is_frozen()) {
    throw InvalidArgument(
        fmt::format("precapture of '{}', which is frozen: unfreeze() it first", name()));
  }
  manager_->check_idle();  // a step function that calls back would record nothing
  const auto begin = Clock::now();
  const std::size_t bytes_before = manager_->stats().pool_reserved_bytes;
  const Precapturing precapturing(*function_);
  Places places(*this, *manager_, options.held_outputs);
  PrecaptureReport report;
  for (CallSizes& sizes : combinations(*function_, options)) {
    const auto start = Clock::now();
    const std::size_t bytes = manager_->stats().pool_reserved_bytes;
    Precaptured entry{.sizes = std::move(sizes)};
    if (since(begin) >= options.max_time) {
      entry.why = fmt::format("max_time, {} us, is over", options.max_time.count());
    } else if (bytes >= options.max_bytes) {
      entry.why = fmt::format("the pools hold {} bytes, max_bytes is {}", bytes, options.max_bytes);
    } else {
      entry.outcome = places.record(make_inputs(entry.sizes), &entry.why);
    }
    entry.bytes = manager_->stats().pool_reserved_bytes - bytes;
    entry.time = since(start);
    if (options.progress) options.progress(entry);
    report.entries.push_back(std::move(entry));
  }
  report.bytes = manager_->stats().pool_reserved_bytes - bytes_before;
  report.time = since(begin);
  return report;
}

}  // namespace cgtree
