// Calls a function with each combination of the sizes of its dynamic axes and the values of its
// key.
#include "extensions/sizes/precapture.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/log_event.h"
#include "cgtree/compile.h"
#include "cgtree/tree/engine.h"
#include "extensions/audit/graph_estimate.h"

namespace cgtree {
namespace {

using Clock = std::chrono::steady_clock;

std::chrono::microseconds since(Clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
}

using Values = std::vector<std::variant<std::int64_t, std::string>>;

// A Dimension is an axis, or a part of the key, with the values that are combined.
struct Dimension {
  std::string name;
  Values values;
  bool is_axis = false;
  bool is_size = false;  // it counts in the work
};

[[noreturn]] void refuse(const FunctionState& function, std::string_view what,
                         const std::string& name) {
  throw InvalidArgument(
      fmt::format("precapture of '{}': {} '{}' has neither buckets nor a list of sizes; name some "
                  "in PrecaptureOptions",
                  function.name, what, name));
}

Values sizes_of_axis(const AxisOptions& axis, const PrecaptureOptions& options) {
  for (const PrecaptureOptions::Sizes& given : options.sizes) {
    if (given.axis == axis.name) return {given.sizes.begin(), given.sizes.end()};
  }
  const std::vector<std::int64_t> sizes = sizes_of(axis);
  return {sizes.begin(), sizes.end()};
}

// Returns the axes, then the parts of the key.
std::vector<Dimension> dimensions(const FunctionState& function, const PrecaptureOptions& options) {
  std::vector<Dimension> all;
  std::vector<PrecaptureOptions::KeyValues> key = options.key;
  const auto known = function.axes == nullptr ? std::span<const AxisOptions>()
                                              : std::span(function.axes->layout().axes);
  const std::size_t keys = function.axes == nullptr ? 0 : function.axes->layout().keys;
  for (const PrecaptureOptions::Sizes& given : options.sizes) {
    if (function.axes == nullptr) refuse(function, "axis", given.axis);
    (void)function.axes->find(given.axis);
  }
  for (const AxisOptions& axis : known.first(known.size() - keys)) {
    all.push_back({axis.name, sizes_of_axis(axis, options), true, true});
    if (all.back().values.empty()) refuse(function, "axis", axis.name);
  }
  const auto rules = known.last(keys);
  if (key.empty()) {
    for (const AxisOptions& rule : rules)
      key.push_back({rule.name, {}});
  }
  for (PrecaptureOptions::KeyValues& part : key) {
    const auto rule = std::find_if(rules.begin(), rules.end(),
                                   [&](const AxisOptions& one) { return one.name == part.name; });
    if (part.values.empty() && rule != rules.end()) part.values = sizes_of_axis(*rule, options);
    if (part.values.empty()) refuse(function, "the key's", part.name);
    all.push_back({part.name, part.values, false, rule != rules.end()});
  }
  return all;
}

// Calls are padded to these sizes from then on. The sizes of an axis that is learned are those that
// a learner has named, or the caller of precapture().
void add_learned_sizes(Engine& engine, FunctionState& function,
                       std::span<const Dimension> dimensions) {
  const Entry entry(engine.gate);
  for (std::size_t axis = 0; axis < function.axes->size(); ++axis) {
    const AxisRule& rule = function.axes->rule(axis);
    const auto named = std::ranges::find(dimensions, rule.name(), &Dimension::name);
    if (!rule.is_learned() || named == dimensions.end()) continue;
    std::vector<std::int64_t> sizes = rule.options().sizes;
    for (const auto& value : named->values)
      if (const auto* const size = std::get_if<std::int64_t>(&value)) sizes.push_back(*size);
    std::ranges::sort(sizes);
    sizes.erase(std::ranges::unique(sizes).begin(), sizes.end());
    function.axes->set_sizes(axis, std::move(sizes));
  }
}

struct Combination {
  std::vector<std::size_t> at;  // by dimension: the number of the value
  double work = 1;
};

CallSizes call_sizes(const std::vector<Dimension>& dimensions, const Combination& combination) {
  std::vector<CallSizes::Entry> entries;
  std::vector<Key::Part> parts;
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    const auto& value = dimensions[i].values[combination.at[i]];
    const auto* const number = std::get_if<std::int64_t>(&value);
    if (dimensions[i].is_axis) {
      entries.push_back({dimensions[i].name, *number});
    } else if (number != nullptr) {
      parts.emplace_back(dimensions[i].name, *number);
    } else {
      parts.emplace_back(dimensions[i].name, std::get<std::string>(value));
    }
  }
  return CallSizes(std::move(entries), Key(std::span<const Key::Part>(parts)));
}

// Gives back what neither a recording nor an output uses, and what tables have left behind.
void give_back(Engine& engine) {
  (void)engine.trim();
  (void)engine.memory->pool(Region::kEager).trim();
}

// While a Precapturing lives, calls record what is missing. There may be several: make_inputs() may
// precapture as well, and so may another thread. The function is not removed meanwhile, whatever
// becomes of its handle.
class Precapturing {
 public:
  Precapturing(Engine& engine, FunctionState& function) : engine_(engine), function_(function) {
    function_.precaptures.fetch_add(1, std::memory_order_relaxed);
  }
  ~Precapturing() {
    function_.precaptures.fetch_sub(1, std::memory_order_relaxed);
    engine_.gate.request_upkeep();
  }
  Precapturing(const Precapturing&) = delete;
  Precapturing& operator=(const Precapturing&) = delete;

 private:
  Engine& engine_;
  FunctionState& function_;
};

// Calls `run`, which is the caller's. In a group all ranks do, and if it throws on one, or destroys
// the function's handle, all throw: a rank that left alone would be a call ahead of the others from
// then on.
template <typename Run>
void run_on_all_ranks(Engine& engine, const FunctionState& function, std::string_view what,
                      const Run& run) {
  std::exception_ptr thrown;
  try {
    run();
    if (function.is_removed.load()) {
      throw InvalidArgument(fmt::format(
          "precapture of '{}': {} has destroyed the function; destroy it after the call",
          function.name, what));
    }
  } catch (...) {
    thrown = std::current_exception();
  }
  if (engine.attempts.agree(thrown == nullptr)) return;
  if (thrown) std::rethrow_exception(thrown);
  throw GroupError(
      fmt::format("precapture of '{}': {} has thrown on another rank", function.name, what));
}

// Returns all combinations that are wanted, on all ranks, those with the most work first.
std::vector<CallSizes> combinations(Engine& engine, FunctionState& function,
                                    const PrecaptureOptions& options) {
  const std::vector<Dimension> dimensions = cgtree::dimensions(function, options);
  if (function.axes != nullptr && function.axes->learns())
    add_learned_sizes(engine, function, dimensions);
  std::vector<Combination> lists = {{}};
  for (const Dimension& dimension : dimensions) {
    std::vector<Combination> longer;
    for (const Combination& list : lists) {
      for (std::size_t i = 0; i < dimension.values.size(); ++i) {
        Combination& more = longer.emplace_back(list);
        more.at.push_back(i);
        const auto* const number = std::get_if<std::int64_t>(&dimension.values[i]);
        if (!dimension.is_size || number == nullptr) continue;
        more.work *= static_cast<double>(std::max<std::int64_t>(*number, 1));
      }
    }
    lists = std::move(longer);
  }
  std::stable_sort(lists.begin(), lists.end(),
                   [](const Combination& a, const Combination& b) { return a.work > b.work; });
  std::vector<CallSizes> all;
  for (const Combination& list : lists) {
    CallSizes sizes = call_sizes(dimensions, list);
    bool is_wanted = true;
    if (options.wants) {
      run_on_all_ranks(engine, function, "wants", [&] { is_wanted = options.wants(sizes); });
      is_wanted = engine.attempts.agree(is_wanted);
    }
    if (is_wanted) all.push_back(std::move(sizes));
  }
  return all;
}

// Both are borrowed.
InputList keyed(const std::vector<Tensor>& inputs, const CallSizes& sizes) {
  return InputList(std::span<const Tensor>(inputs)).with_key(sizes.key().text());
}

// Returns the bytes of the graphs of recordings from this number on.
std::size_t graph_bytes_since(Engine& engine, std::uint32_t first) {
  const Entry entry(engine.gate);
  std::size_t bytes = 0;
  for (const auto& node : engine.tree.nodes())
    bytes += node->id >= first ? node->recording.costs.graph_bytes : 0;
  return bytes;
}

// How often a function was called, and what its calls have made.
struct Calls {
  int count = 0;
  std::size_t graph_bytes = 0;  // also of what was evicted since
};

// Calls the function until it would replay or, if it is only to be warmed up, would record: at most
// twice. Drops the outputs. Returns what the last call would do, and adds to `calls`.
Explanation call_until_ready(Engine& engine, FunctionState& function, InputList inputs,
                             bool only_warms_up, Calls& calls) {
  for (int made = 0;; ++made) {
    Explanation explanation = engine.explain(function, inputs);
    const bool goes_on = explanation.outcome == Outcome::kWarmUp ||
                         (explanation.outcome == Outcome::kRecord && !only_warms_up);
    if (!goes_on || made == 2) return explanation;
    TensorList outputs;
    const std::uint32_t first = engine.tree.next_id();
    engine.call(function, inputs, outputs);
    ++calls.count;
    calls.graph_bytes += graph_bytes_since(engine, first);
  }
}

// A Rehearsal holds what a recording would hold, but for the executable graph: its tables, and the
// slots of its outputs, which keep their numbers. It is never replayed, and made and destroyed by
// the thread that is inside the context.
class Rehearsal {
 public:
  explicit Rehearsal(Recording recording) noexcept : recording_(std::move(recording)) {
    count_users(+1);
  }
  ~Rehearsal() { count_users(-1); }
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

  Recording& recording() noexcept { return recording_; }

 private:
  void count_users(int count) noexcept {
    for (const OutputRecord& output : recording_.outputs) {
      if (output.slot != nullptr) output.slot->recordings += static_cast<std::uint32_t>(count);
    }
  }

  Recording recording_;
};

// Captures what such a call would record now; null if it would not, or could not, and `why` says
// so. Throws as CompiledCore::call().
std::unique_ptr<Rehearsal> rehearse(Engine& engine, FunctionState& function, InputList inputs,
                                    std::string* why) {
  Entry entry(engine.gate);
  entry.begin();
  engine.catch_up();
  if (function.axes != nullptr) function.axes->read(inputs, engine.present.axes());
  engine.present.begin(function, *engine.memory, inputs);
  engine.present.check();
  const Decision decision = decide(engine.decision_input(function), engine.present);
  if (decision.outcome != Outcome::kRecord) {
    *why = to_string(engine.explain(decision, function));
    return nullptr;
  }
  const HeldInputs held(engine.present.inputs());
  engine.present.hold(held);
  engine.attempts.begin(decision, function, engine.present);
  CaptureResult result = CaptureFailure{};
  try {
    result = engine.recorder.rehearse(engine.present,
                                      function.find_or_add(engine.present).output_allocations);
    if (std::holds_alternative<Recorded>(result)) {
      engine.attempts.settle(nullptr);
    } else {
      (void)engine.attempts.end(result_of(std::get<CaptureFailure>(result)));
    }
  } catch (...) {
    engine.attempts.leave(std::current_exception());
    throw;
  }
  if (auto* const recorded = std::get_if<Recorded>(&result)) {
    return std::make_unique<Rehearsal>(std::move(recorded->recording));
  }
  *why = std::get<CaptureFailure>(result).what;
  return nullptr;
}

// Adds to `held` a reference to each output of the recording, as if it had been replayed and the
// caller held it, except for those that lie where something is held already. Their contents are
// undefined. Must be called inside the context.
void hold_outputs(ContextMemory& memory, const Recording& recording, std::uint32_t function,
                  std::vector<StorageRef>& held) {
  memory.end_tracking();
  const std::vector<OutputRecord>& outputs = recording.outputs;
  held.reserve(held.size() + outputs.size());
  for (std::uint32_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].kind != OutputRecord::Kind::kSlot) continue;
    Slot& slot = *outputs[i].slot;
    // Memory that was short, or given back, may have been taken from a rehearsal, and may be
    // another pool's by now.
    const std::vector<Range> segments = memory.pool(slot.region).segments();
    bool is_taken = std::ranges::none_of(
        segments, [&](const Range& segment) { return segment.contains(slot.range); });
    memory.live().for_each([&](std::uint32_t number) {
      is_taken = is_taken || memory.slot(number).range.overlaps(slot.range);
    });
    if (!is_taken) held.push_back(memory.revive(slot, function, i, memory.generation()));
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
  Places(Engine& engine, FunctionState& function, std::size_t held_outputs, bool only_predicts)
      : engine_(engine),
        function_(function),
        count_(held_outputs + 1),
        only_predicts_(only_predicts) {}
  // Inside the gate, because upkeep on another thread changes slots and tables too.
  ~Places() {
    try {
      const Entry entry(engine_.gate);
      rehearsals_.clear();
    } catch (const std::exception& error) {
      log_event(LogLevel::kError, "rehearsals_not_ended error=\"{}\"", error.what());
    }
  }
  Places(const Places&) = delete;
  Places& operator=(const Places&) = delete;

  void record(InputList inputs, Precaptured& entry) {
    Calls calls;
    try_to_record(inputs, entry, calls);
    entry.graph_bytes += calls.graph_bytes;
  }

 private:
  // What a place holds the outputs of.
  struct Place {
    std::uint32_t node = 0;
    Rehearsal* rehearsal = nullptr;  // if there is no such recording
  };

  void try_to_record(InputList inputs, Precaptured& entry, Calls& calls) {
    std::vector<Place> places;
    while (places.size() < count_) {
      const std::vector<StorageRef> held = hold_others(places);
      const Explanation explanation =
          call_until_ready(engine_, function_, inputs, only_predicts_, calls);
      if (explanation.outcome == Outcome::kReplay) {
        places.push_back({explanation.node});
        continue;
      }
      entry.why = to_string(explanation);
      if (!only_predicts_ || explanation.outcome != Outcome::kRecord) return;
      auto rehearsal = rehearse(engine_, function_, inputs, &entry.why);
      if (rehearsal == nullptr) return;
      entry.graph_bytes +=
          estimate_graph_bytes(rehearsal->recording(), engine_.memory->stream().graphs());
      places.push_back({0, rehearsal.get()});
      rehearsals_.push_back(std::move(rehearsal));
    }
    if (largest_.empty()) largest_ = std::move(places);
    entry.why.clear();
    entry.outcome = entry.graph_bytes > 0 ? Precaptured::Outcome::kPredicted
                    : calls.count == 0    ? Precaptured::Outcome::kAlreadyThere
                                          : Precaptured::Outcome::kRecorded;
  }

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
    const Entry entry(engine_.gate);
    const Node* const node = engine_.tree.find(place.node);
    if (place.rehearsal == nullptr && node == nullptr) return;  // it was evicted
    const Recording& recording =
        place.rehearsal != nullptr ? place.rehearsal->recording() : node->recording;
    hold_outputs(*engine_.memory, recording, function_.id, held);
  }

  Engine& engine_;
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
  if (key_.has(axis)) return key_.number(axis);
  throw InvalidArgument(fmt::format("no dynamic axis '{}' among {}", axis, to_string(*this)));
}

std::string to_string(const CallSizes& sizes) {
  std::string text;
  for (const CallSizes::Entry& entry : sizes.entries())
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", entry.axis, entry.size);
  if (sizes.key().empty()) return text;
  return text + fmt::format("{}key [{}]", text.empty() ? "" : ", ", sizes.key().text());
}

std::size_t PrecaptureReport::count(Precaptured::Outcome outcome) const noexcept {
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

namespace {

// `core` may be destroyed by make_inputs.
PrecaptureReport precapture(const CompiledCore& core, const PrecaptureOptions& options,
                            const MakeInputs& make_inputs, bool only_predicts) {
  FunctionState& function = core.state();
  const char* const what = only_predicts ? "predict_memory" : "precapture";
  if (function.axes == nullptr && options.key.empty()) {
    throw InvalidArgument(fmt::format("{} of '{}', which has no dynamic axes, and no key is given",
                                      what, core.name()));
  }
  if (core.is_frozen()) {
    throw InvalidArgument(
        fmt::format("{} of '{}', which is frozen: unfreeze() it first", what, core.name()));
  }
  const std::shared_ptr<Engine> engine = core.engine();
  engine->check_idle();  // a step function that calls back would record nothing
  const auto begin = Clock::now();
  const auto pool_bytes = [&] { return engine->stats().pool_reserved_bytes; };
  const auto growth = [&](std::size_t before) {
    const std::size_t now = pool_bytes();
    return now > before ? now - before : 0;
  };
  const Precapturing precapturing(*engine, function);
  const auto made_inputs = [&](const CallSizes& sizes) {
    std::vector<Tensor> inputs;
    run_on_all_ranks(*engine, function, "make_inputs", [&] { inputs = make_inputs(sizes); });
    return inputs;
  };
  if (only_predicts) {  // what warming up needs for itself is given back first
    Calls calls;
    for (const CallSizes& sizes : combinations(*engine, function, options)) {
      if (!engine->attempts.agree(since(begin) < options.max_time)) break;
      const std::vector<Tensor> inputs = made_inputs(sizes);
      (void)call_until_ready(*engine, function, keyed(inputs, sizes), only_predicts, calls);
    }
    give_back(*engine);
  }
  const std::size_t bytes_before = pool_bytes();
  Places places(*engine, function, options.held_outputs, only_predicts);
  PrecaptureReport report;
  for (CallSizes& sizes : combinations(*engine, function, options)) {
    const auto start = Clock::now();
    const std::size_t bytes = pool_bytes();
    Precaptured entry{.sizes = std::move(sizes)};
    if (!engine->attempts.agree(since(begin) < options.max_time)) {
      entry.why = fmt::format("max_time, {} us, is over", options.max_time.count());
    } else {
      const std::vector<Tensor> inputs = made_inputs(entry.sizes);
      places.record(keyed(inputs, entry.sizes), entry);
    }
    entry.bytes = growth(bytes);
    report.graph_bytes += entry.graph_bytes;
    entry.time = since(start);
    run_on_all_ranks(*engine, function, "progress", [&] {
      if (options.progress) options.progress(entry);
    });
    report.entries.push_back(std::move(entry));
  }
  report.bytes = growth(bytes_before);
  report.time = since(begin);
  return report;
}

}  // namespace

PrecaptureReport precapture(const CompiledCore& function, const PrecaptureOptions& options,
                            const MakeInputs& make_inputs) {
  return precapture(function, options, make_inputs, /*only_predicts=*/false);
}

// What was rehearsed is gone by the time that memory is given back.
PrecaptureReport predict_memory(const CompiledCore& function, const PrecaptureOptions& options,
                                const MakeInputs& make_inputs) {
  const std::shared_ptr<Engine> engine = function.engine();
  PrecaptureReport report;
  try {
    report = precapture(function, options, make_inputs, /*only_predicts=*/true);
  } catch (...) {
    give_back(*engine);
    throw;
  }
  give_back(*engine);
  return report;
}

std::vector<std::int64_t> suggest_buckets(const CompiledCore& function, std::string_view axis,
                                          std::size_t max_buckets, const BucketCost& cost) {
  std::vector<SizeCount> counts = function.histogram(axis);
  std::erase_if(counts, [](const SizeCount& count) { return count.size == 0; });
  return suggest_buckets(counts, max_buckets, cost);
}

std::vector<Buckets> suggest_buckets(const CompiledCore& function, const BucketLimits& limits,
                                     std::span<const BucketCost> costs) {
  std::vector<SizesCount> counts = function.histogram();
  if (counts.empty()) return {};
  const std::vector<AxisOptions>& axes = function.state().axes->layout().axes;
  for (std::size_t axis = 0; axis < axes.size(); ++axis) {
    std::int64_t smallest = INT64_MAX;
    for (const SizesCount& entry : counts) {
      if (entry.sizes[axis] > 0) smallest = std::min(smallest, entry.sizes[axis]);
    }
    for (SizesCount& entry : counts) {
      if (entry.sizes[axis] == 0) entry.sizes[axis] = smallest == INT64_MAX ? 1 : smallest;
    }
  }
  auto lists = suggest_buckets(counts, limits, costs);
  std::vector<Buckets> suggested;
  for (std::size_t axis = 0; axis < axes.size(); ++axis)
    suggested.push_back({axes[axis].name, std::move(lists[axis])});
  return suggested;
}

}  // namespace cgtree
