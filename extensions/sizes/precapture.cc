// Calls a function with each combination of the sizes of its dynamic axes and the values of its
// key.
#include "extensions/sizes/precapture.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/format.h"
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

// A Dimension is an axis, or a part of the key, with the values that are combined.
struct Dimension {
  std::string name;
  KeyValues values;
  const AxisRule* rule = nullptr;  // null for a part of the key without options
};

[[noreturn]] void refuse(const FunctionState& function, std::string_view what,
                         const std::string& name) {
  throw InvalidArgument(
      str_format("precapture of '{}': {} '{}' has neither buckets nor a list of sizes; name some "
                 "in PrecaptureOptions",
                 function.name, what, name));
}

KeyValues sizes_of_axis(const AxisRule& rule, const PrecaptureOptions& options) {
  const auto given = options.sizes.find(rule.name());
  const Sizes sizes = given != options.sizes.end() ? given->second : sizes_of(rule.options());
  return {sizes.begin(), sizes.end()};
}

// Returns the axes, then the parts of the key.
std::vector<Dimension> dimensions(const FunctionState& function, const PrecaptureOptions& options) {
  const AxisPlan* const plan = function.axes.get();
  for (const auto& [axis, sizes] : options.sizes) {
    if (plan == nullptr) refuse(function, "axis", axis);
    (void)plan->find(axis);
  }
  std::vector<Dimension> axes, key;
  for (const auto& [name, values] : options.key)
    key.push_back({name, values});
  for (std::size_t axis = 0; plan != nullptr && axis < plan->size(); ++axis) {
    const AxisRule& rule = plan->rule(axis);
    if (!rule.is_of_key()) {
      axes.push_back({rule.name(), sizes_of_axis(rule, options), &rule});
      continue;
    }
    if (options.key.empty()) key.push_back({rule.name()});
    const auto part = std::ranges::find(key, rule.name(), &Dimension::name);
    if (part == key.end()) continue;
    part->rule = &rule;
    if (part->values.empty()) part->values = sizes_of_axis(rule, options);
  }
  for (const Dimension& axis : axes)
    if (axis.values.empty()) refuse(function, "axis", axis.name);
  for (const Dimension& part : key)
    if (part.values.empty()) refuse(function, "the key's", part.name);
  std::ranges::move(key, std::back_inserter(axes));
  return axes;
}

// Calls are padded to these sizes from then on. The sizes of a learned axis are those that a
// learner, or the caller of precapture(), named.
void add_learned_sizes(Engine& engine, FunctionState& function,
                       std::span<const Dimension> dimensions) {
  const Entry entry(engine.gate);
  for (const Dimension& dimension : dimensions) {
    if (dimension.rule == nullptr || !dimension.rule->is_learned()) continue;
    const Sizes& known = dimension.rule->options().sizes;
    std::set<std::int64_t> sizes(known.begin(), known.end());
    for (const auto& value : dimension.values)
      if (const auto* const size = std::get_if<std::int64_t>(&value)) sizes.insert(*size);
    function.axes->set_sizes(function.axes->find(dimension.name), {sizes.begin(), sizes.end()});
  }
}

// A Combination has a value of each Dimension, whose texts it borrows.
struct Combination {
  std::vector<CallSizes::Entry> sizes;
  std::vector<Key::Part> key;
  double work = 1;
};

// Returns all combinations, those with the most work first.
std::vector<Combination> combine(std::span<const Dimension> dimensions) {
  std::vector<Combination> all(1);
  for (const Dimension& dimension : dimensions) {
    std::vector<Combination> longer;
    for (const Combination& combination : all) {
      for (const auto& value : dimension.values) {
        Combination& more = longer.emplace_back(combination);
        const auto* const number = std::get_if<std::int64_t>(&value);
        if (dimension.rule != nullptr && !dimension.rule->is_of_key()) {
          more.sizes.emplace_back(dimension.name, *number);
        } else if (number != nullptr) {
          more.key.emplace_back(dimension.name, *number);
        } else {
          more.key.emplace_back(dimension.name, std::get<std::string>(value));
        }
        if (dimension.rule != nullptr && number != nullptr)
          more.work *= static_cast<double>(std::max<std::int64_t>(*number, 1));
      }
    }
    all = std::move(longer);
  }
  std::ranges::stable_sort(all, std::ranges::greater(), &Combination::work);
  return all;
}

// Gives back memory that no recording and no output uses, and the remains of tables.
void give_back(Engine& engine) {
  (void)engine.trim();
  (void)engine.memory->pool(Region::kEager).trim();
}

// While a Precapturing lives, calls record missing recordings. There may be several: make_inputs()
// may precapture as well, and so may another thread. The function is not removed meanwhile, even if
// its handle is destroyed.
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

// Calls `run`, which is the caller's code. In a group all ranks do, and if it throws on one rank,
// or destroys the function's handle, all throw: a rank that left alone would be a call ahead of the
// others from then on.
template <typename Run>
void run_on_all_ranks(Engine& engine, const FunctionState& function, std::string_view what,
                      const Run& run) {
  std::exception_ptr thrown;
  try {
    run();
    if (function.is_removed.load()) {
      throw InvalidArgument(
          str_format("precapture of '{}': {} has destroyed the function; destroy it after the call",
                     function.name, what));
    }
  } catch (...) {
    thrown = std::current_exception();
  }
  if (engine.votes.agree(thrown == nullptr)) return;
  if (thrown) std::rethrow_exception(thrown);
  throw GroupError(
      str_format("precapture of '{}': {} has thrown on another rank", function.name, what));
}

// Returns all wanted combinations, on all ranks, those with the most work first.
std::vector<CallSizes> combinations(Engine& engine, FunctionState& function,
                                    const PrecaptureOptions& options) {
  const std::vector<Dimension> dimensions = cgtree::dimensions(function, options);
  if (function.axes != nullptr && function.axes->learns())
    add_learned_sizes(engine, function, dimensions);
  std::vector<CallSizes> all;
  for (Combination& combination : combine(dimensions)) {
    CallSizes sizes(std::move(combination.sizes), Key(std::span<const Key::Part>(combination.key)));
    bool is_wanted = true;
    if (options.wants) {
      run_on_all_ranks(engine, function, "wants", [&] { is_wanted = options.wants(sizes); });
      is_wanted = engine.votes.agree(is_wanted);
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

// Calls the function until it would replay or, if it only needs a warm-up, would record: at most
// twice. Drops the outputs. Returns the explanation of the last call. Adds to the entry the bytes
// of the new graphs, including graphs evicted since.
Explanation call_until_ready(Engine& engine, FunctionState& function, InputList inputs,
                             bool only_warms_up, Precaptured& entry) {
  for (int made = 0;; ++made) {
    Explanation explanation = engine.explain(function, inputs);
    const bool goes_on = explanation.outcome == Outcome::kWarmUp ||
                         (explanation.outcome == Outcome::kRecord && !only_warms_up);
    if (!goes_on || made == 2) return explanation;
    TensorList outputs;
    const std::uint32_t first = engine.tree.next_id();
    engine.call(function, inputs, outputs);
    entry.graph_bytes += graph_bytes_since(engine, first);
    if (entry.outcome == Precaptured::Outcome::kAlreadyThere)
      entry.outcome = Precaptured::Outcome::kRecorded;
  }
}

// A Rehearsal holds all memory of a recording except the executable graph: its tables, and the
// slots of its outputs, which keep their numbers. It is never replayed; the thread that is inside
// the context makes and destroys it.
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

// Captures the work that this call would record now; null if it would not, or could not, record,
// with the reason in `why`. Throws as CompiledCore::call().
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
  engine.votes.begin(decision, function, engine.present);
  CaptureResult result = CaptureFailure{};
  try {
    result = engine.recorder.rehearse(engine.present,
                                      function.find_or_add(engine.present).output_allocations);
    if (std::holds_alternative<Recorded>(result)) {
      engine.votes.settle(nullptr);
    } else {
      (void)engine.votes.end(result_of(std::get<CaptureFailure>(result)));
    }
  } catch (...) {
    engine.votes.leave(std::current_exception());
    throw;
  }
  if (auto* const recorded = std::get_if<Recorded>(&result)) {
    return std::make_unique<Rehearsal>(std::move(recorded->recording));
  }
  *why = std::get<CaptureFailure>(result).what;
  return nullptr;
}

// Adds to `held` a reference to each output of the recording, as if it had been replayed and the
// caller held it, except outputs that overlap held memory. Their contents are undefined. Must be
// called inside the context.
void hold_outputs(ContextMemory& memory, const Recording& recording, std::uint32_t function,
                  std::vector<StorageRef>& held) {
  memory.end_tracking();
  const std::vector<OutputRecord>& outputs = recording.outputs;
  held.reserve(held.size() + outputs.size());
  for (std::uint32_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].kind != OutputRecord::Kind::kSlot) continue;
    Slot& slot = *outputs[i].slot;
    // Memory that was short, or given back, may have been taken from a rehearsal, and may belong to
    // another pool by now.
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
// caller needs that holds some of them; the places are the same for all combinations.
//
// Example: with one output held there are two places, [0, 8) and [8, 16), where the largest
// combination puts its 8 bytes. A combination with 4 bytes is then recorded while [8, 16) is held,
// which puts its output to [0, 4), and again while [0, 8) is held, which puts it to [8, 12). So
// either of its recordings may follow either of the largest.
//
// For a prediction, a combination is warmed up, and captured for each place, but the graph is not
// made. The captures live as long as the Places.
class Places {
 public:
  Places(Engine& engine, FunctionState& function, std::size_t held_outputs, bool only_predicts)
      : engine_(engine),
        function_(function),
        count_(held_outputs + 1),
        only_predicts_(only_predicts) {}
  // Inside the gate, because upkeep on another thread changes slots and tables, too.
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
    entry.outcome = Precaptured::Outcome::kAlreadyThere;
    std::vector<Place> places;
    while (places.size() < count_) {
      const std::vector<StorageRef> held = hold_others(places);
      const Explanation explanation =
          call_until_ready(engine_, function_, inputs, only_predicts_, entry);
      if (explanation.outcome == Outcome::kReplay) {
        places.push_back({explanation.node});
        continue;
      }
      std::string why = to_string(explanation);
      std::unique_ptr<Rehearsal> rehearsal;
      if (only_predicts_ && explanation.outcome == Outcome::kRecord)
        rehearsal = rehearse(engine_, function_, inputs, &why);
      if (rehearsal == nullptr) {
        entry.outcome = Precaptured::Outcome::kLeftOut;
        entry.why = std::move(why);
        return;
      }
      entry.outcome = Precaptured::Outcome::kPredicted;
      entry.graph_bytes +=
          estimate_graph_bytes(rehearsal->recording(), engine_.memory->stream().graphs());
      places.push_back({0, rehearsal.get()});
      rehearsals_.push_back(std::move(rehearsal));
    }
    if (largest_.empty()) largest_ = std::move(places);
  }

 private:
  // A Place holds outputs of a recording or, without a recording, of its rehearsal.
  struct Place {
    std::uint32_t node = 0;
    Rehearsal* rehearsal = nullptr;  // if there is no recording
  };

  // Holds all places except the next one, in which a combination is to be recorded after `places`.
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
  for (const auto& [name, size] : entries_)
    if (name == axis) return size;
  if (key_.has(axis)) return key_.number(axis);
  throw InvalidArgument(str_format("no dynamic axis '{}' among {}", axis, to_string(*this)));
}

std::string to_string(const CallSizes& sizes) {
  std::string text;
  for (const auto& [axis, size] : sizes.entries())
    text += str_format("{}{} = {}", text.empty() ? "" : ", ", axis, size);
  if (sizes.key().empty()) return text;
  return text + str_format("{}key [{}]", text.empty() ? "" : ", ", sizes.key().text());
}

std::size_t PrecaptureReport::count(Precaptured::Outcome outcome) const noexcept {
  return static_cast<std::size_t>(std::ranges::count(entries, outcome, &Precaptured::outcome));
}

std::string to_string(const PrecaptureReport& report) {
  std::string text;
  for (const Precaptured& entry : report.entries) {
    constexpr const char* kOutcomes[] = {"recorded", "already there", "left out: ", "predicted"};
    text += str_format("{}: {}{}, {} bytes, {} of graphs, {} us\n", to_string(entry.sizes),
                       kOutcomes[static_cast<int>(entry.outcome)], entry.why, entry.bytes,
                       entry.graph_bytes, entry.time.count());
  }
  return text + str_format("{} bytes, {} of graphs, {} us", report.bytes, report.graph_bytes,
                           report.time.count());
}

namespace {

// make_inputs may destroy `core`.
PrecaptureReport precapture(const CompiledCore& core, const PrecaptureOptions& options,
                            const MakeInputs& make_inputs, bool only_predicts) {
  FunctionState& function = core.state();
  const char* const what = only_predicts ? "predict_memory" : "precapture";
  if (function.axes == nullptr && options.key.empty()) {
    throw InvalidArgument(str_format("{} of '{}', which has no dynamic axes, and no key is given",
                                     what, core.name()));
  }
  if (core.is_frozen()) {
    throw InvalidArgument(
        str_format("{} of '{}', which is frozen: unfreeze() it first", what, core.name()));
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
  if (only_predicts) {  // memory that warming up needs for itself is given back first
    Precaptured unused;
    for (const CallSizes& sizes : combinations(*engine, function, options)) {
      if (!engine->votes.agree(since(begin) < options.max_time)) break;
      const std::vector<Tensor> inputs = made_inputs(sizes);
      (void)call_until_ready(*engine, function, keyed(inputs, sizes), only_predicts, unused);
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
    if (!engine->votes.agree(since(begin) < options.max_time)) {
      entry.why = str_format("max_time, {} us, is over", options.max_time.count());
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

// Rehearsals must be destroyed before memory is given back.
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

Sizes suggest_buckets(const CompiledCore& function, std::string_view axis, std::size_t max_buckets,
                      const SizeCost& cost) {
  std::map<std::int64_t, std::uint64_t> counts = function.histogram(axis);
  counts.erase(0);
  return suggest_buckets(counts, max_buckets, cost);
}

std::vector<Buckets> suggest_buckets(const CompiledCore& function, const BucketLimits& limits,
                                     std::span<const SizeCost> costs) {
  const std::map<Sizes, std::uint64_t> histogram = function.histogram();
  if (histogram.empty()) return {};
  const AxisPlan& plan = *function.state().axes;
  Sizes smallest;
  for (std::size_t axis = 0; axis < plan.size(); ++axis) {
    const auto counts = plan.histogram(axis).counts();
    const auto positive = counts.upper_bound(0);
    smallest.push_back(positive == counts.end() ? 1 : positive->first);
  }
  std::map<Sizes, std::uint64_t> counts;
  for (const auto& [sizes, count] : histogram) {
    Sizes positive = sizes;
    for (std::size_t axis = 0; axis < plan.size(); ++axis)
      if (sizes[axis] == 0) positive[axis] = smallest[axis];
    counts[positive] += count;
  }
  std::vector<Sizes> lists = suggest_buckets(counts, limits, costs);
  std::vector<Buckets> suggested;
  for (std::size_t axis = 0; axis < plan.size(); ++axis)
    suggested.push_back({plan.rule(axis).name(), std::move(lists[axis])});
  return suggested;
}

}  // namespace cgtree
