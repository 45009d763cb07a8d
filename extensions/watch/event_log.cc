// Writes events, to the log and to the file.
#include "extensions/watch/event_log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/log_event.h"
#include "cgtree/tree/words.h"
#include "cgtree/values/group.h"
#include "cgtree/values/verification.h"
#include "extensions/audit/audit.h"
#include "extensions/scopes/nvtx_scopes.h"
#include "extensions/scopes/scope_stack.h"
#include "extensions/watch/spelling.h"

namespace cgtree {
namespace {

using Json = nlohmann::ordered_json;

// Returns all mismatches in one line, for the log.
std::string mismatches_of(const Explanation& why) {
  std::string text;
  for (const Mismatch& mismatch : why.mismatches)
    text += (text.empty() ? "" : ", ") + to_string(mismatch);
  return text;
}

std::string host_name() {
  std::array<char, 256> name = {};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

Json axes_json(const std::vector<AxisInUse>& axes) {
  Json sizes = Json::object();
  for (const AxisInUse& axis : axes)
    sizes[axis.name] = {{"actual", axis.actual}, {"padded", std::max(axis.actual, axis.padded)}};
  return sizes;
}

// A RunScopes lives while code of the caller's runs as the work of a call, and closes the scopes
// that it leaves open.
class RunScopes {
 public:
  // `has_warned`: borrowed. `range`: lasts as long as this.
  RunScopes(const FunctionState& function, std::atomic<bool>& has_warned,
            std::shared_ptr<const void> range) noexcept
      : function_(function), has_warned_(has_warned), range_(std::move(range)) {}
  ~RunScopes() {
    ScopeStack& scopes = ScopeStack::of_thread();
    const std::size_t left = scopes.open_since(begin_);
    if (left == 0) return;
    log_event(has_warned_.exchange(true) ? LogLevel::kDebug : LogLevel::kWarn,
              "scopes_left_open function={} scopes={} path=\"{}\" advice=\"close each scope before "
              "the step function returns, or before end()\"",
              function_.name, left, scopes.path());
    scopes.close_since(begin_);
  }
  RunScopes(const RunScopes&) = delete;
  RunScopes& operator=(const RunScopes&) = delete;

 private:
  const FunctionState& function_;
  std::atomic<bool>& has_warned_;
  const ScopeStack::Mark begin_ = ScopeStack::of_thread().mark();
  const std::shared_ptr<const void> range_;
};

// Adds the sizes of a call with a graph, if the function has dynamic axes.
void add_axes(Json& line, const FunctionState& function, const CallAxes& axes) {
  if (function.axes == nullptr) return;
  line["axes"] = axes_json(function.axes->in_use(axes, /*is_graphed=*/true));
}

}  // namespace

EventLog::EventLog(Engine& engine)
    : engine_(engine),
      memory_(*engine.memory),
      path_(engine.options.event_file),
      context_(engine.options.name.empty() ? to_string(memory_.device()) : engine.options.name),
      process_(getpid()),
      has_replays_(engine.options.event_file_has_replays && !path_.empty()),
      warns_of_foreign_(engine.options.on_foreign_pointer == OnForeignPointer::kWarn),
      timer_(engine.options.time_every_nth_replay, memory_) {
  const ContextOptions& options = engine.options;
  connect_nvtx_scopes();
  recorder_.reset(&FlightRecorder::take({.time_us = now_us(),
                                         .process = process_,
                                         .context = ShortText<128>(context_),
                                         .fields = ShortText<512>(about(options))}));
  if (path_.empty()) return;
  file_.open(path_, std::ios::app);
  if (!file_) {
    throw InvalidArgument(
        fmt::format("ContextOptions::event_file '{}' cannot be opened: {}; name a file in a folder "
                    "that exists and may be written to",
                    path_, std::strerror(errno)));
  }
  write("open", [&]() -> Json {
    Json line = {{"device", to_string(memory_.device())},
                 {"host", host_name()},
                 {"has_replays", has_replays_}};
    if (options.group != nullptr) {
      line.update({{"rank", options.group->rank()}, {"ranks", options.group->size()}});
    }
    return line;
  });
}

// Returns what the first line of the last events says of the context. Without the library for JSON,
// which ends the process where host memory runs out.
std::string EventLog::about(const ContextOptions& options) const {
  std::string host = host_name();
  std::erase_if(host, [](char c) { return c < ' ' || c == '"' || c == '\\'; });
  std::string text = fmt::format(R"("device":"{}","host":"{}","has_replays":false)",
                                 to_string(memory_.device()), host);
  if (options.group != nullptr) {
    text += fmt::format(R"(,"rank":{},"ranks":{})", options.group->rank(), options.group->size());
  }
  return text;
}

FlightEntry EventLog::entry(FlightEvent event, const FunctionState& function) const noexcept {
  return {.time_us = now_us(),
          .generation = memory_.generation(),
          .replays = function.counters.replays,
          .function = ShortText<48>(function.name),
          .event = event};
}

FlightEntry EventLog::entry(FlightEvent event, const Node& node) const noexcept {
  FlightEntry one = entry(event, *node.function);
  one.node = node.id;
  return one;
}

void EventLog::note_end(const FlightEntry& entry) noexcept {
  recorder_->add(entry);
  recorder_->clear_running();
}

template <typename Fields>
void EventLog::write(std::string_view event, Fields&& fields) noexcept {
  if (path_.empty()) return;
  try {
    Json line = {
        {"event", event}, {"time_us", now_us()}, {"context", context_}, {"process", process_}};
    line.update(fields());
    // Text that is not UTF-8, such as a message in another encoding, must not lose the line.
    file_ << line.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n' << std::flush;
    if (file_) return;
  } catch (...) {  // out of memory: counted below
  }
  file_.clear();
  if (lost_lines_++ > 0) return;
  log_event(LogLevel::kWarn, "events_lost file=\"{}\" what=\"{}\"", path_, std::strerror(errno));
}

template <typename Line, typename Fields>
void EventLog::tell(LogLevel level, std::string_view event, Line&& line, Fields&& fields) noexcept {
  if (log_enabled(level)) {
    try {
      log_line(level, line());
    } catch (...) {
      log_line(level, "log event lost: formatting failed");
    }
  }
  write(event, fields);
}

std::shared_ptr<const void> EventLog::open_range(std::string_view what,
                                                 const FunctionState& function,
                                                 std::uint64_t recording, const InputList* inputs,
                                                 std::optional<SkipReason> reason) const noexcept
    try {
  if (what == "breaks") {  // of a replay, which has a range, and is no event that runs
    return std::make_shared<const RunScopes>(function, has_warned_of_scopes_, nullptr);
  }
  if (what != "evict" && what != "replay") {
    FlightEntry running = entry(FlightEvent::kRunning, function);
    running.node = static_cast<std::uint32_t>(recording);
    running.reason = ShortText<32>(what);
    if (reason) running.what = ShortText<96>(name(*reason));
    recorder_->set_running(running);
    return std::make_shared<const RunScopes>(
        function, has_warned_of_scopes_, profiler_range(what, function, recording, inputs, reason));
  }
  return profiler_range(what, function, recording, inputs, reason);
} catch (const std::bad_alloc&) {
  return nullptr;
}

std::shared_ptr<const void> EventLog::profiler_range(std::string_view what,
                                                     const FunctionState& function,
                                                     std::uint64_t recording,
                                                     const InputList* inputs,
                                                     std::optional<SkipReason> reason) const {
  if (!is_profiled_) return nullptr;
  std::string about;
  if (reason) {
    about = fmt::format(": {}", name(*reason));
  } else if (inputs != nullptr && what != "replay") {
    about = fmt::format("; {}", Signature(*inputs).to_string());
  } else if (inputs != nullptr && !inputs->key().empty()) {
    about = fmt::format(" {}", inputs->key());
  }
  return std::shared_ptr<const void>(
      new ProfilerRange(true, recording, "{} {}{}", what, function.name, about));
}

void EventLog::explain(Explanation& why, const FunctionState& function, const Call& call) const {
  if (why.outcome == Outcome::kWarmUp && why.nearest == 0 && !why.made_again)
    why.changed = causes_.change(function, call.inputs());
}

void EventLog::after(const CallEvent& event) noexcept {
  using std::chrono::duration_cast, std::chrono::microseconds;
  switch (event.kind) {
    case CallEvent::kWarmUp:
      return warm_up(*event.function, *event.key, *event.axes,
                     duration_cast<microseconds>(event.time));
    case CallEvent::kRecord:
      return record(*event.node, *event.axes);
    case CallEvent::kReplay:
      return replay(*event.node, *event.axes, event.time);
    case CallEvent::kVerify:
      return verify(*event.node, event.divergence);
    case CallEvent::kUnverified:
      return unverified(*event.node, event.unverified);
    case CallEvent::kBeginReplay:
    case CallEvent::kPatchRefused:
      return;
    case CallEvent::kSkipBegins:
      return announce_skip(*event.function, *event.skip->why, event.level);
    case CallEvent::kSkip:
      return skip(*event.function, *event.skip);
    case CallEvent::kEvict:
      return evict(*event.node, event.limit);
    case CallEvent::kDemote:
      return demote(*event.function, *event.mismatch);
    case CallEvent::kDrop:
      return drop(*event.node, event.what);
    case CallEvent::kFailure:
      return failure(*event.function, event.what, event.level);
    case CallEvent::kCounters:
      return counters(*event.tree);
  }
}

void EventLog::warm_up(FunctionState& function, const KeyState& key, const CallAxes& axes,
                       std::chrono::microseconds us) noexcept {
  timer_.note_eager(function.name, us);
  padding_not_chosen(function, axes, /*recording=*/nullptr);
  FlightEntry noted = entry(FlightEvent::kWarmUp, function);
  noted.us = us.count();
  note_end(noted);
  const CallCauses::WarmUp warm_up = causes_.note_warm_up(function, key.signature);
  tell(
      LogLevel::kInfo, "warm_up",
      [&] {
        return fmt::format("warm_up function={} inputs=\"{}\" generation={}", function.name,
                           key.signature.to_string(), memory_.generation());
      },
      [&]() -> Json {
        Json line = {{"function", function.name},
                     {"inputs", key.signature.to_string()},
                     {"generation", memory_.generation()},
                     {"us", us.count()},
                     {"reason", name(cause_of(warm_up.changed.kind))}};
        if (warm_up.changed.kind != Mismatch::Kind::kNone)
          line["changed"] = changed_json(warm_up.changed);
        add_axes(line, function, axes);
        return line;
      });
  never_recorded(function, warm_up);
}

void EventLog::launched_nothing(const FunctionState& function) noexcept {
  log_event(LogLevel::kWarn,
            "empty_recording function={} what=\"{} launched nothing on current_stream(); work on "
            "other streams is no part of the recording\"",
            function.name,
            function.is_callers_work ? "what runs between begin() and end()" : "the step function");
  write("empty_recording", [&]() -> Json { return {{"function", function.name}}; });
}

// Warns once of what zeros may do that the caller has not chosen.
void EventLog::padding_not_chosen(FunctionState& function, const CallAxes& axes,
                                  const Recording* recording) noexcept try {
  if (function.warned_of_padding) return;
  const std::vector<std::string> notes = cgtree::notes_on_padding(function, axes, recording);
  if (notes.empty()) return;
  function.warned_of_padding = true;
  log_event(LogLevel::kWarn, "padding_not_chosen function={} what=\"{}\"", function.name, notes[0]);
  write("padding_not_chosen", [&]() -> Json {
    return {{"function", function.name}, {"what", notes[0]}};
  });
} catch (const std::bad_alloc&) {  // the next recording is looked at again
}

// Warns once of an output that is handed out with the padded size.
void EventLog::unsliced_output(FunctionState& function, const Recording& recording,
                               const CallAxes& axes) noexcept try {
  if (function.warned_of_unsliced) return;
  const std::vector<std::string> notes = cgtree::notes_on_outputs(function, axes, recording);
  if (notes.empty()) return;
  function.warned_of_unsliced = true;
  log_event(LogLevel::kWarn, "unsliced_output function={} what=\"{}\"", function.name, notes[0]);
  write("unsliced_output", [&]() -> Json {
    return {{"function", function.name}, {"what", notes[0]}};
  });
} catch (const std::bad_alloc&) {  // the next recording is looked at again
}

// Each call has other inputs than the one before, so that none is the second of its kind.
void EventLog::never_recorded(const FunctionState& function,
                              const CallCauses::WarmUp& last) noexcept try {
  constexpr std::uint64_t kMany = 16;
  if (last.count != kMany || last.changed.kind == Mismatch::Kind::kNone) return;
  if (function.precaptures.load() > 0) return;
  Explanation why{.outcome = Outcome::kWarmUp};
  why.changed = last.changed;
  if (function.axes != nullptr) why.axes.resize(function.axes->size());
  const std::string to_do = spelled(advice(why), Spelling::kNames);
  tell(
      LogLevel::kWarn, "never_recorded",
      [&] {
        return fmt::format("never_recorded function={} warm_ups={} what=\"{}\" advice=\"{}\"",
                           function.name, last.count, difference(why), to_do);
      },
      [&]() -> Json {
        return {{"function", function.name},
                {"warm_ups", last.count},
                {"what", difference(why)},
                {"advice", to_do}};
      });
} catch (const std::bad_alloc&) {  // it is not told
}

// Many recordings were made for one cause, and are hardly replayed.
void EventLog::recorded_again(const Node& last, std::uint64_t recordings) noexcept try {
  // Loops that hold what they need settle on fewer.
  constexpr std::uint64_t kMany = 12;
  constexpr std::uint64_t kReplaysOfOne = 10;  // that make a recording worth its cost
  const FunctionState& function = *last.function;
  if (recordings != kMany || function.precaptures.load() > 0) return;
  const Cause cause = cause_of(last.why);
  const bool is_of_axes = cause == Cause::kShape && function.axes != nullptr;
  if (cause == Cause::kFirst || cause == Cause::kKey || is_of_axes) return;
  if (cause == Cause::kOutputHeld && memory_.generation() > 0) return;
  if (function.counters.replays >= kReplaysOfOne * recordings) return;
  const std::string to_do = spelled(advice(last.why), Spelling::kNames);
  const std::string_view event = cause == Cause::kOutputHeld ? "held_outputs" : "recorded_again";
  tell(
      LogLevel::kWarn, event,
      [&] {
        return fmt::format("{} function={} recordings={} cause=\"{}\" what=\"{}\" advice=\"{}\"",
                           event, function.name, recordings, cgtree::explain(cause),
                           difference(last.why), to_do);
      },
      [&]() -> Json {
        return {{"function", function.name},
                {"recordings", recordings},
                {"cause", name(cause)},
                {"what", difference(last.why)},
                {"advice", to_do}};
      });
} catch (const std::bad_alloc&) {  // it is not told
}

// Warns once that calls of the function copy their outputs, and why.
void EventLog::copied_outputs(const Node& node) noexcept try {
  FunctionState& function = *node.function;
  if (!node.recording.copies_outputs() || std::exchange(function.warned_of_copies, true)) return;
  const std::uint64_t recordings = function.counters.recordings;
  const std::string to_do = spelled(advice(node.why), Spelling::kNames);
  tell(
      LogLevel::kWarn, "held_outputs",
      [&] {
        return fmt::format(
            "held_outputs function={} recordings={} what=\"{}; from now on its calls copy their "
            "outputs\" advice=\"{}\"",
            function.name, recordings, difference(node.why), to_do);
      },
      [&]() -> Json {
        return {{"function", function.name},
                {"recordings", recordings},
                {"what", difference(node.why)},
                {"advice", to_do}};
      });
} catch (const std::bad_alloc&) {  // it is not told
}

void EventLog::record(const Node& node, const CallAxes& axes) noexcept {
  if (progress_ != nullptr) progress_->keep_within_graph_bytes();
  const Recording& recording = node.recording;
  const bool is_first = node.why.mismatches.empty();
  FlightEntry noted = entry(FlightEvent::kRecord, node);
  noted.us = recording.costs.record_us;
  for (const Mismatch& mismatch : node.why.mismatches) {
    if (!noted.what.view().empty()) noted.what += ", ";
    noted.what += name(mismatch.kind);
    if (!mismatch.is_of_input()) continue;
    std::array<char, 24> input;
    *fmt::format_to_n(input.data(), input.size() - 1, " of input {}", mismatch.input).out = '\0';
    (noted.what += input.data()) += mismatch.input_name.empty() ? "" : " ";
    noted.what += mismatch.input_name;
  }
  note_end(noted);
  tell(
      is_first ? LogLevel::kInfo : LogLevel::kDebug, "record",
      [&] {
        return fmt::format(
            "record function={} node={} parent={} generation={} nodes={} bytes={} us={}{}",
            node.function->name, node.id, node.parent, memory_.generation(), recording.costs.nodes,
            recording.footprint.bytes(), recording.costs.record_us,
            is_first ? "" : fmt::format(" because=\"{}\"", mismatches_of(node.why)));
      },
      [&]() -> Json {
        const auto copied =
            std::count_if(recording.inputs.begin(), recording.inputs.end(),
                          [](const InputRecord& input) { return is_copied(input.treatment); });
        Json line = {
            {"function", node.function->name},
            {"node", node.id},
            {"parent", node.parent},
            {"generation", memory_.generation()},
            {"inputs", node.key->signature.to_string()},
            {"copied_inputs", copied},
            {"graph_nodes", recording.costs.nodes},
            {"bytes", recording.footprint.bytes()},
            {"us", recording.costs.record_us},
            {"reason", name(cause_of(node.why))},
            {"advice",
             node.why.mismatches.empty() ? "" : spelled(advice(node.why), Spelling::kNames)},
            {"cause", cause_json(node.why)}};
        add_axes(line, *node.function, axes);
        return line;
      });
  foreign_pointers(node);
  host_memory(node);
  unsliced_output(*node.function, recording, axes);
  recorded_again(node, causes_.note_recording(node));
  copied_outputs(node);
  padding_not_chosen(*node.function, axes, &recording);
  if (recording.costs.step_nodes == 0 && !std::exchange(node.function->warned_of_nothing, true)) {
    launched_nothing(*node.function);
  }
}

void EventLog::foreign_pointers(const Node& node) noexcept {
  const Audit& audit = audit_of(node.recording);
  FunctionState& function = *node.function;
  for (const ForeignPointer& pointer : audit.foreign) {
    try {
      if (!foreign_to_.insert(pointer.kernel).second) continue;
    } catch (const std::bad_alloc&) {  // it is told of once more
    }
    // An engine whose arena is not bound has many.
    const bool warns = warns_of_foreign_ || (function.is_callers_work &&
                                             !std::exchange(function.warned_of_foreign, true));
    tell(
        warns ? LogLevel::kWarn : LogLevel::kDebug, "foreign_pointer",
        [&] {
          return fmt::format("foreign_pointer function={} node={} what=\"{}\"", node.function->name,
                             node.id, to_string(pointer, audit));
        },
        [&]() -> Json {
          const UsedMemory& memory = audit.memory[pointer.memory];
          return {{"function", node.function->name},
                  {"node", node.id},
                  {"kernel", pointer.kernel},
                  {"place", pointer.place},
                  {"address", pointer.address},
                  {"memory", memory.text},
                  {"memory_address", memory.range.address},
                  {"memory_bytes", memory.range.bytes},
                  {"what", to_string(pointer, audit)}};
        });
  }
}

// Whatever the options say of foreign memory: pageable memory is a temporary more often than not.
void EventLog::host_memory(const Node& node) noexcept {
  const std::optional<HostMemoryUse>& use = audit_of(node.recording).host_memory;
  if (!use) return;
  try {
    if (!has_host_memory_.insert(node.function->id).second) return;
  } catch (const std::bad_alloc&) {  // it is told of once more
  }
  tell(
      LogLevel::kWarn, "host_memory",
      [&] {
        return fmt::format("host_memory function={} node={} what=\"{}\"", node.function->name,
                           node.id, to_string(*use));
      },
      [&]() -> Json {
        return {{"function", node.function->name}, {"node", node.id},
                {"graph_node", use->node},         {"address", use->range.address},
                {"bytes", use->range.bytes},       {"is_written", use->is_written},
                {"what", to_string(*use)}};
      });
}

void EventLog::write_replay_times() noexcept try {
  const auto in_us = [](std::chrono::nanoseconds taken) {
    return std::chrono::duration<double, std::micro>(taken).count();
  };
  for (const ReplayTimer::Sample& sample : timer_.collect()) {
    write("device_time", [&]() -> Json {
      return {{"function", sample.function},   {"node", sample.node},
              {"began_us", sample.began_us},   {"us", in_us(sample.device)},
              {"host_us", in_us(sample.host)}, {"found_idle", sample.found_idle}};
    });
  }
} catch (const std::exception&) {  // out of memory: they are lost
}

void EventLog::replay(const Node& node, const CallAxes& axes,
                      std::chrono::nanoseconds time) noexcept {
  if (progress_ != nullptr) progress_->close();
  if (timer_.close(node, time)) write_replay_times();
  log_event(LogLevel::kTrace, "replay function={} node={}", node.function->name, node.id);
  if (!has_replays_) return;
  write("replay", [&]() -> Json {
    Json line = {
        {"function", node.function->name},        {"node", node.id},
        {"generation", memory_.generation()},     {"us", static_cast<double>(time.count()) / 1000},
        {"live_outputs", memory_.live_outputs()}, {"live_bytes", memory_.live_bytes()}};
    add_axes(line, *node.function, axes);
    return line;
  });
}

void EventLog::verify(const Node& node, const Divergence* divergence) noexcept {
  if (divergence != nullptr) {
    FlightEntry noted = entry(FlightEvent::kVerify, node);
    noted.what = ShortText<96>(divergence->what);
    recorder_->add(noted);
  }
  recorder_->clear_running();
  log_event(divergence == nullptr ? LogLevel::kDebug : LogLevel::kWarn,
            "verify function={} node={} differs={}", node.function->name, node.id,
            divergence != nullptr);
  write("verify", [&]() -> Json {
    Json line = {{"function", node.function->name},
                 {"node", node.id},
                 {"replay", node.recording.costs.replays.get()},
                 {"differs", divergence != nullptr}};
    if (divergence != nullptr) {
      line.update({{"what", divergence->what},
                   {"position", divergence->position},
                   {"replayed", divergence->replayed},
                   {"eager", divergence->eager},
                   {"differing", divergence->differing},
                   {"elements", divergence->elements},
                   {"suspects", divergence->suspects}});
    }
    return line;
  });
}

void EventLog::unverified(const Node& node, UnverifiedReason reason) noexcept {
  FlightEntry noted = entry(FlightEvent::kVerify, node);
  noted.reason = ShortText<32>(name(reason));
  note_end(noted);
  log_event(LogLevel::kDebug, "unverified function={} node={} reason={}", node.function->name,
            node.id, name(reason));
  write("verify", [&]() -> Json {
    return {{"function", node.function->name}, {"node", node.id}, {"left_out", name(reason)}};
  });
}

void EventLog::announce_skip(const FunctionState& function, const Explanation& why,
                             LogLevel level) noexcept {
  if (!log_enabled(level)) return;
  try {
    log_line(level,
             fmt::format("skip function={} reason={} recordings={} what=\"{}\" advice=\"{}\"",
                         function.name, name(*why.skip_reason), function.recordings.get(),
                         spelled(difference(why), Spelling::kNames),
                         spelled(advice(why), Spelling::kNames)));
  } catch (...) {
    log_line(level, "log event lost: formatting failed");
  }
}

void EventLog::skip(const FunctionState& function, const AnnouncedSkip& skip) noexcept {
  using std::chrono::microseconds;
  const auto time = std::chrono::steady_clock::now() - skip.begin;
  timer_.note_eager(function.name, time);
  FlightEntry noted = entry(FlightEvent::kSkip, function);
  noted.us = std::chrono::duration_cast<microseconds>(time).count();
  const std::optional<CallOutcome> outcome = function.last_outcome.get();
  if (outcome && outcome->skip_reason) noted.reason = ShortText<32>(name(*outcome->skip_reason));
  if (skip.why) noted.what = ShortText<96>(skip.why->detail);
  note_end(noted);
  if (!skip.why) return;
  write("skip", [&]() -> Json {
    Json line = {{"function", function.name},
                 {"reason", name(*skip.why->skip_reason)},
                 {"recordings", function.recordings.get()},
                 {"what", skip.why->detail},
                 {"advice", spelled(advice(*skip.why), Spelling::kNames)},
                 {"us", std::chrono::duration_cast<microseconds>(time).count()},
                 {"cause", cause_json(*skip.why)}};
    if (!skip.why->axes.empty()) line["axes"] = axes_json(skip.why->axes);
    return line;
  });
}

void EventLog::evict(const Node& node, SkipReason limit) noexcept {
  if (progress_ != nullptr) progress_->forget(node);
  FlightEntry noted = entry(FlightEvent::kEvict, node);
  noted.replays = node.recording.costs.replays;
  noted.reason = ShortText<32>(name(limit));
  recorder_->add(noted);
  log_event(LogLevel::kInfo, "evict function={} node={} limit={} replays={}", node.function->name,
            node.id, name(limit), node.recording.costs.replays.get());
  write("evict", [&]() -> Json {
    return {{"function", node.function->name},
            {"node", node.id},
            {"limit", name(limit)},
            {"replays", node.recording.costs.replays.get()}};
  });
}

void EventLog::demote(const FunctionState& function, const Mismatch& last) noexcept {
  FlightEntry noted = entry(FlightEvent::kDemote, function);
  noted.what = ShortText<96>(last.input_name);
  recorder_->add(noted);
  log_event(LogLevel::kInfo, "demote function={} input={} name=\"{}\" changes={}", function.name,
            last.input, last.input_name, function.static_changes[last.input]);
  write("demote", [&]() -> Json {
    return {{"function", function.name},
            {"input", last.input},
            {"name", last.input_name},
            {"changes", function.static_changes[last.input]}};
  });
}

void EventLog::drop(const Node& node, std::string_view what) noexcept {
  if (progress_ != nullptr) progress_->forget(node);
  FlightEntry noted = entry(FlightEvent::kDrop, node);
  noted.what = ShortText<96>(what);
  recorder_->add(noted);
  log_event(LogLevel::kInfo, "drop function={} node={} what=\"{}\"", node.function->name, node.id,
            what);
  write("drop", [&]() -> Json {
    return {{"function", node.function->name}, {"node", node.id}, {"what", what}};
  });
}

void EventLog::failure(const FunctionState& function, std::string_view what,
                       LogLevel level) noexcept {
  if (progress_ != nullptr) progress_->abandon();
  FlightEntry noted = entry(FlightEvent::kFailure, function);
  noted.what = ShortText<96>(what);
  note_end(noted);
  // A function that always throws must not fill the log.
  const bool is_told = std::has_single_bit(causes_.note_failure(function, what));
  tell(
      is_told ? level : LogLevel::kDebug, "failure",
      [&] {
        return fmt::format("call_failed function={} failures={} what=\"{}\"", function.name,
                           function.counters.failures.get(), spelled(what, Spelling::kNames));
      },
      [&]() -> Json {
        return {{"function", function.name}, {"what", what}};
      });
}

void EventLog::counters(const Tree& tree) noexcept {
  write("counters", [&]() -> Json {
    Json pools = Json::object();
    for (const Region region : {Region::kOutput, Region::kScratch, Region::kEager}) {
      const Pool& pool = memory_.pool(region);
      pools[pool.options().name] = pool.statistics().reserved_bytes.current;
    }
    return {{"recordings", tree.nodes().size()},
            {"graph_bytes", tree.spent.graph_bytes.get()},
            {"live_outputs", memory_.live_outputs()},
            {"live_bytes", memory_.live_bytes()},
            {"pool_bytes", std::move(pools)}};
  });
}

EventLog& event_log_of(const Engine& engine) {
  auto* const log = engine.extensions.find<EventLog>();
  CGTREE_CHECK(log != nullptr);
  return *log;
}

nlohmann::ordered_json change_json(const Mismatch& mismatch) {
  Json entry = {{"kind", name(mismatch.kind)},
                {"recorded", mismatch.recorded},
                {"given", mismatch.given},
                {"text", to_string(mismatch)}};
  if (mismatch.is_of_input()) {
    entry.update({{"input", mismatch.input}, {"name", mismatch.input_name}});
  }
  return entry;
}

nlohmann::ordered_json changed_json(const Mismatch& changed) {
  Json entry = change_json(changed);
  entry["text"] = sides_of_change(changed);
  return entry;
}

nlohmann::ordered_json cause_json(const Explanation& why) {
  Json changes = Json::array();
  for (const Mismatch& mismatch : why.mismatches)
    changes.push_back(change_json(mismatch));
  return {{"nearest", why.nearest}, {"changes", std::move(changes)}};
}

}  // namespace cgtree
