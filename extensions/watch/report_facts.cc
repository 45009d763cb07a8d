// Reads snapshots (docs/snapshot.md) and events (docs/events.md); fields that are missing count 0.
#include "extensions/watch/report_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"

namespace cgtree {
namespace {

using FactsJson = nlohmann::json;

[[noreturn]] void refuse(const char* key, const FactsJson& value, std::string_view expected) {
  std::string given = value.dump(-1, ' ', false, FactsJson::error_handler_t::replace);
  if (given.size() > 40) given = given.substr(0, 37) + "...";
  throw InvalidArgument(
      fmt::format("a report cannot be made of this: \"{}\" is {}, and {} is "
                  "expected",
                  key, given, expected));
}

// The next three return the member, or 0, "" or an empty list for one that is not there. They throw
// InvalidArgument for a member of another type.
std::uint64_t number_at(const FactsJson& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return 0;
  if (!found->is_number_unsigned()) refuse(key, *found, "a number that is not negative");
  return found->get<std::uint64_t>();
}

std::string text_at(const FactsJson& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return {};
  if (!found->is_string()) refuse(key, *found, "a string");
  return found->get<std::string>();
}

const FactsJson& list_at(const FactsJson& object, const char* key) {
  static const FactsJson kNone = FactsJson::array();
  const auto found = object.find(key);
  if (found == object.end()) return kNone;
  if (!found->is_structured()) refuse(key, *found, "a list or an object");
  return *found;
}

// Returns what of `count` values has this name.
template <typename Named>
std::optional<Named> named(std::string_view sought, int count) {
  for (int i = 0; i < count; ++i) {
    if (name(static_cast<Named>(i)) == sought) return static_cast<Named>(i);
  }
  return std::nullopt;
}

Mismatch change_of(const FactsJson& change) {
  const auto kind = named<Mismatch::Kind>(text_at(change, "kind"),
                                          static_cast<int>(Mismatch::Kind::kFootprint) + 1);
  if (!kind) return {};
  return {.kind = *kind,
          .input = static_cast<std::uint32_t>(number_at(change, "input")),
          .input_name = text_at(change, "name"),
          .recorded = text_at(change, "recorded"),
          .given = text_at(change, "given")};
}

// Returns the first difference that is known.
Mismatch first_change(const FactsJson& object) {
  for (const FactsJson& change : list_at(list_at(object, "cause"), "changes")) {
    Mismatch known = change_of(change);
    if (known.kind != Mismatch::Kind::kNone) return known;
  }
  return {};
}

void add_causes(std::array<std::uint64_t, kCauseCount>& causes, const FactsJson& counts) {
  for (const auto& [cause, count] : counts.items()) {
    const auto known = named<Cause>(cause, kCauseCount);
    if (known) causes[static_cast<std::size_t>(*known)] += count.get<std::uint64_t>();
  }
}

void add_cause(std::array<std::uint64_t, kCauseCount>& causes, const FactsJson& event) {
  const auto known = named<Cause>(text_at(event, "reason"), kCauseCount);
  if (known) ++causes[static_cast<std::size_t>(*known)];
}

AxisFacts axis_facts(const FactsJson& axis) {
  AxisFacts facts{
      text_at(axis, "axis"), number_at(axis, "actual"), number_at(axis, "padded"), {}, {}};
  for (const FactsJson& bucket : list_at(axis, "buckets"))
    facts.buckets.push_back(bucket.get<std::int64_t>());
  for (const FactsJson& size : list_at(axis, "sizes"))
    facts.sizes.push_back({size.at(0).get<std::int64_t>(), size.at(1).get<std::uint64_t>()});
  return facts;
}

FunctionFacts function_facts(const FactsJson& function) {
  FunctionFacts facts;
  facts.name = text_at(function, "name");
  FunctionStats& stats = facts.stats;
  stats.calls = number_at(function, "calls");
  stats.warm_ups = number_at(function, "warm_ups");
  stats.recordings = number_at(function, "recordings");
  stats.replays = number_at(function, "replays");
  stats.failures = number_at(function, "failures");
  stats.evictions = number_at(function, "evictions");
  for (const auto& [reason, count] : list_at(function, "skips").items()) {
    const auto known = named<SkipReason>(reason, kSkipReasonCount);
    if (known) stats.skips[static_cast<std::size_t>(*known)] = count.get<std::uint64_t>();
  }
  add_causes(facts.causes.warm_ups, list_at(function, "warm_up_causes"));
  add_causes(facts.causes.recordings, list_at(function, "recording_causes"));
  facts.causes.changed = change_of(list_at(function, "changed"));
  facts.causes.last_failure = text_at(function, "last_failure");
  for (const FactsJson& axis : list_at(function, "axes"))
    facts.axes.push_back(axis_facts(axis));
  return facts;
}

RecordingFacts recording_facts(const FactsJson& node) {
  RecordingFacts facts;
  facts.us = number_at(node, "record_us");
  facts.footprint_bytes = number_at(node, "footprint_bytes");
  facts.graph_bytes = number_at(node, "estimated_graph_bytes");
  facts.replays = number_at(node, "replays");
  facts.has_moved = number_at(node, "root_patches") > 0;
  facts.cause = first_change(node);
  std::uint32_t input = 0;
  for (const FactsJson& one : list_at(node, "inputs")) {
    if (text_at(one, "treatment") == "copied")
      facts.copied.push_back({input, number_at(one, "bytes")});
    ++input;
  }
  for (const FactsJson& one : list_at(list_at(node, "audit"), "foreign"))
    facts.foreign.push_back(text_at(one, "what"));
  return facts;
}

ReplayTimes times_of(const FactsJson& object) {
  const auto time_at = [&](const char* key) {
    return std::chrono::nanoseconds(static_cast<std::int64_t>(number_at(object, key)));
  };
  ReplayTimes times;
  times.count = number_at(object, "count");
  times.found_idle = number_at(object, "found_idle");
  times.device = time_at("device_ns");
  times.device_min = time_at("device_ns_min");
  times.device_max = time_at("device_ns_max");
  times.host = time_at("host_ns");
  times.eager = time_at("eager_ns");
  return times;
}

// Of a call that has run without a graph.
void add_eager(ReplayTimes& times, const FactsJson& event) {
  const std::chrono::microseconds us(static_cast<std::int64_t>(number_at(event, "us")));
  if (us.count() == 0) return;
  times.eager = times.eager.count() == 0 ? us : std::min<std::chrono::nanoseconds>(times.eager, us);
}

// Of one replay that an event tells of.
void add_time(ReplayTimes& times, const FactsJson& event) {
  const auto time_at = [&](const char* key) {
    const std::chrono::duration<double, std::micro> us(event.value(key, 0.0));
    return std::chrono::duration_cast<std::chrono::nanoseconds>(us);
  };
  const std::chrono::nanoseconds device = time_at("us");
  times.device_min = times.count == 0 ? device : std::min(times.device_min, device);
  times.device_max = std::max(times.device_max, device);
  ++times.count;
  times.found_idle += event.value("found_idle", false);
  times.device += device;
  times.host += time_at("host_us");
}

ReportFacts snapshot_facts(const FactsJson& snapshot) {
  if (number_at(snapshot, "version") != 1) {
    throw InvalidArgument(fmt::format("a snapshot of version {} is there, this reads version 1",
                                      number_at(snapshot, "version")));
  }
  ReportFacts facts;
  facts.context = text_at(snapshot, "context");
  facts.device = text_at(snapshot, "device");
  facts.generations = number_at(snapshot, "generation");
  facts.live_outputs = number_at(snapshot, "live_outputs");
  facts.live_bytes = number_at(snapshot, "live_bytes");
  facts.pool_bytes = number_at(snapshot, "reserved_bytes");
  std::map<std::uint64_t, std::size_t> indices;  // by id
  for (const FactsJson& function : list_at(snapshot, "functions")) {
    indices[number_at(function, "id")] = facts.functions.size();
    facts.functions.push_back(function_facts(function));
  }
  std::map<std::uint64_t, std::string> held;  // by slot
  for (const FactsJson& node : list_at(snapshot, "nodes")) {
    const auto function = indices.find(number_at(node, "function_id"));
    if (function == indices.end()) continue;  // it went while the snapshot was taken
    RecordingFacts& one = facts.recordings.emplace_back(recording_facts(node));
    one.function = function->second;
    facts.graph_bytes += one.graph_bytes;
    for (const FactsJson& output : list_at(node, "outputs")) {
      if (!output.contains("holds")) continue;
      held[number_at(output, "slot")] = text_at(output["holds"], "function");
    }
  }
  for (const auto& [slot, function] : held)
    ++facts.held[function];
  for (const FactsJson& one : list_at(snapshot, "replay_times"))
    facts.times[text_at(one, "function")] = times_of(one);
  return facts;
}

// The facts of one context as its events are read.
class EventFacts {
 public:
  void add(const FactsJson& event) {
    facts_.context = text_at(event, "context");
    const std::string kind = text_at(event, "event");
    facts_.generations = std::max(facts_.generations, number_at(event, "generation"));
    if (event.contains("live_outputs")) {
      facts_.live_outputs = number_at(event, "live_outputs");
      facts_.live_bytes = number_at(event, "live_bytes");
    }
    if (kind == "open") {
      facts_.device = text_at(event, "device");
      facts_.has_replays = event.value("has_replays", false);
    } else if (kind == "counters") {
      add_counters(event);
    } else if (event.contains("function")) {
      add_of_function(kind, event);
    }
  }
  ReportFacts take() {
    std::erase_if(facts_.times, [](const auto& one) { return one.second.count == 0; });
    return std::move(facts_);
  }

 private:
  void add_counters(const FactsJson& event) {
    facts_.graph_bytes = number_at(event, "graph_bytes");
    facts_.pool_bytes = 0;
    for (const FactsJson& bytes : list_at(event, "pool_bytes"))
      facts_.pool_bytes += bytes.get<std::uint64_t>();
  }

  void add_of_function(const std::string& kind, const FactsJson& event) {
    const std::size_t index = index_of_function(text_at(event, "function"));
    FunctionFacts& function = facts_.functions[index];
    FunctionStats& stats = function.stats;
    if (kind == "record") {
      ++stats.recordings;
      nodes_[number_at(event, "node")] = facts_.recordings.size();
      RecordingFacts& one = facts_.recordings.emplace_back();
      one.function = index;
      one.us = number_at(event, "us");
      one.footprint_bytes = number_at(event, "bytes");
      one.cause = first_change(event);
      add_cause(function.causes.recordings, event);
    } else if (kind == "foreign_pointer") {
      if (RecordingFacts* const one = recording(event)) {
        one->foreign.push_back(text_at(event, "what"));
      }
    } else if (kind == "replay") {
      ++stats.replays;
      if (RecordingFacts* const one = recording(event)) ++one->replays;
    } else if (kind == "device_time") {
      add_time(facts_.times[function.name], event);
    } else if (kind == "skip") {
      const auto reason = named<SkipReason>(text_at(event, "reason"), kSkipReasonCount);
      if (reason) ++stats.skips[static_cast<std::size_t>(*reason)];
      add_eager(facts_.times[function.name], event);
    } else if (kind == "evict") {
      ++stats.evictions;
      if (RecordingFacts* const one = recording(event)) one->replays = number_at(event, "replays");
    } else if (kind == "warm_up") {
      ++stats.warm_ups;
      add_cause(function.causes.warm_ups, event);
      if (event.contains("changed")) function.causes.changed = change_of(event["changed"]);
      add_eager(facts_.times[function.name], event);
    } else if (kind == "failure") {
      ++stats.failures;
      function.causes.last_failure = text_at(event, "what");
    }
    stats.calls =
        stats.recordings + stats.replays + stats.warm_ups + stats.failures + stats.skipped();
    for (const auto& [axis, size] : list_at(event, "axes").items())
      add_axis(function, axis, size);
  }

  static void add_axis(FunctionFacts& function, const std::string& name, const FactsJson& size) {
    const auto found = std::ranges::find(function.axes, name, &AxisFacts::axis);
    AxisFacts& axis =
        found != function.axes.end() ? *found : function.axes.emplace_back(AxisFacts{.axis = name});
    const std::uint64_t actual = number_at(size, "actual");
    const std::uint64_t padded = number_at(size, "padded");
    axis.actual += actual;
    axis.padded += padded;
    const auto signed_size = static_cast<std::int64_t>(actual);
    const auto known = std::ranges::find(axis.sizes, signed_size, &SizeCount::size);
    if (known != axis.sizes.end()) {
      ++known->count;
    } else if (axis.sizes.size() < kMostSizes) {
      axis.sizes.push_back({signed_size, 1});
    }
    if (padded > actual && !std::ranges::count(axis.buckets, static_cast<std::int64_t>(padded))) {
      axis.buckets.push_back(static_cast<std::int64_t>(padded));
    }
  }

  std::size_t index_of_function(const std::string& name) {
    const auto [found, is_new] = functions_.emplace(name, facts_.functions.size());
    if (is_new) facts_.functions.emplace_back().name = name;
    return found->second;
  }

  RecordingFacts* recording(const FactsJson& event) {
    const auto found = nodes_.find(number_at(event, "node"));
    return found == nodes_.end() ? nullptr : &facts_.recordings[found->second];
  }

  static constexpr std::size_t kMostSizes = 256;

  ReportFacts facts_;
  std::map<std::string, std::size_t> functions_;  // by name: the index in facts_
  std::map<std::uint64_t, std::size_t> nodes_;    // by number: the index in facts_
};

FactsJson parsed(std::string_view text) {
  return FactsJson::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::vector<ReportFacts> event_facts(std::string_view text) {
  std::vector<std::pair<std::string, EventFacts>> contexts;  // by process and name
  std::uint64_t left_out = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const FactsJson event = parsed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!event.is_object() || text_at(event, "event").empty() || !event.contains("context")) {
      ++left_out;
      continue;
    }
    std::string key = fmt::format("{} {}", number_at(event, "process"), text_at(event, "context"));
    auto found = std::ranges::find(contexts, key, &decltype(contexts)::value_type::first);
    if (found == contexts.end()) {
      contexts.emplace_back(std::move(key), EventFacts());
      found = std::prev(contexts.end());
    }
    found->second.add(event);
  }
  std::vector<ReportFacts> all;
  for (auto& [key, facts] : contexts)
    all.push_back(facts.take());
  if (!all.empty()) all.front().left_out = left_out;
  return all;
}

}  // namespace

std::vector<ReportFacts> read_facts(std::string_view text) try {
  const FactsJson whole = parsed(text);
  if (text_at(whole.is_object() ? whole : FactsJson::object(), "schema") == "cgtree.snapshot") {
    return {snapshot_facts(whole)};
  }
  std::vector<ReportFacts> facts = event_facts(text);
  if (!facts.empty()) return facts;
  if (text.find("\"cgtree.snapshot\"") != std::string_view::npos) {
    throw InvalidArgument(
        "a report is made of a whole snapshot: the text is cut, or was changed, and is no JSON");
  }
  throw InvalidArgument(
      "a report is made of Context::snapshot_json(), or of the lines of an event file: the text is "
      "neither");
} catch (const FactsJson::exception& error) {
  throw InvalidArgument(fmt::format("a report cannot be made of this: {}", error.what()));
}

}  // namespace cgtree
