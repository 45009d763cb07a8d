// Describes the events of a context, and writes them.
#include "extensions/watch/event_log.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/format.h"
#include "base/log_event.h"
#include "cgtree/tree/words.h"
#include "cgtree/values/group.h"
#include "extensions/audit/audit.h"
#include "extensions/scopes/nvtx_scopes.h"
#include "extensions/scopes/scope_stack.h"
#include "extensions/verify/verification.h"
#include "extensions/watch/spelling.h"

namespace cgtree {
namespace {

using Json = nlohmann::ordered_json;

std::string_view host_name(std::array<char, 256>& name) {
  name = {};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string advice_on(const Explanation& why) {
  return spelled(advice(why), Spelling::kNames);
}

// A RunScopes lives while the caller's code runs as the work of a call, and closes the scopes that
// it leaves open.
class RunScopes {
 public:
  // `has_warned`: borrowed. `range`: kept as long as this.
  RunScopes(const FunctionState& function, std::atomic<bool>& has_warned,
            std::shared_ptr<const void> range) noexcept
      : function_(function), has_warned_(has_warned), range_(std::move(range)) {}
  ~RunScopes() {
    ScopeStack& scopes = of_thread<ScopeStack>();
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
  const ScopeStack::Mark begin_ = of_thread<ScopeStack>().mark();
  const std::shared_ptr<const void> range_;
};

}  // namespace

ExtensionFactory watch(WatchOptions options) {
  return [options = std::move(options)](Engine& engine) {
    return std::make_unique<EventLog>(options, engine);
  };
}

EventLog::EventLog(const WatchOptions& options, Engine& engine)
    : engine_(engine),
      memory_(*engine.memory),
      path_(options.event_file),
      context_(engine.options.name.empty() ? to_string(memory_.device()) : engine.options.name),
      process_(getpid()),
      has_replays_(options.event_file_has_replays && !path_.empty()),
      timer_(options.time_every_nth_replay, memory_) {
  connect_nvtx_scopes();
  const std::string device = to_string(memory_.device());
  std::array<char, 256> host;
  const Group* const group = engine.options.group.get();
  FlightRecorder::Header header = {.time_us = now_us(),
                                   .process = process_,
                                   .context = ShortText<128>(context_),
                                   .device = ShortText<64>(device),
                                   .host = ShortText<256>(host_name(host))};
  if (group != nullptr) {
    header.rank = static_cast<std::uint32_t>(group->rank());
    header.ranks = static_cast<std::uint32_t>(group->size());
  }
  recorder_.reset(&FlightRecorder::take(header));
  if (path_.empty()) return;
  file_.open(path_, std::ios::app);
  if (!file_) {
    throw InvalidArgument(
        str_format("WatchOptions::event_file '{}' cannot be opened: {}; name a file in a folder "
                   "that exists and may be written to",
                   path_, std::strerror(errno)));
  }
  write(EventRecord("open", {{"device", device},
                             {"host", host_name(host)},
                             {"has_replays", has_replays_},
                             {"rank", group == nullptr ? EventValue() : group->rank()},
                             {"ranks", group == nullptr ? EventValue() : group->size()}}));
}

void EventLog::write(const EventRecord& event) noexcept {
  if (path_.empty()) return;
  try {
    Json line = {
        {"event", event.name}, {"time_us", now_us()}, {"context", context_}, {"process", process_}};
    add_fields(line, event);
    // Text that is not UTF-8, such as a message in another encoding, must not lose the line.
    file_ << line.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n' << std::flush;
    if (file_) return;
  } catch (...) {  // out of memory: counted below
  }
  file_.clear();
  if (lost_lines_++ > 0) return;
  log_event(LogLevel::kWarn, "events_lost file=\"{}\" what=\"{}\"", path_, std::strerror(errno));
}

void EventLog::say(const EventRecord& event) noexcept {
  log_fields(event);
  write(event);
}

void EventLog::tell(const EventRecord& event) noexcept {
  const auto* const kept = std::ranges::find(kFlightNames, event.name, &FlightNames::event);
  if (kept != std::end(kFlightNames)) {
    const auto kind = static_cast<FlightEvent>(kept - std::begin(kFlightNames));
    recorder_->add(flight_entry(kind, event, memory_.generation()));
    if (kept->ends_call) recorder_->clear_running();
  }
  say(event);
}

template <typename Notes>
void EventLog::warn_once(bool& was_told, std::string_view event, const FunctionState& function,
                         Notes&& notes) noexcept try {
  if (was_told) return;
  const std::vector<std::string> all = notes();
  if (all.empty()) return;
  was_told = true;
  say(EventRecord(LogLevel::kWarn, event, function, {{"what", all[0]}}));
} catch (const std::bad_alloc&) {  // the next recording is looked at again
}

std::vector<AxisInUse> EventLog::sizes_of(const FunctionState& function,
                                          const CallAxes& axes) const noexcept try {
  if (function.axes == nullptr || path_.empty()) return {};
  return function.axes->in_use(axes, /*is_graphed=*/true);
} catch (const std::bad_alloc&) {  // the line has no text
  return {};
}

std::shared_ptr<const void> EventLog::open_range(std::string_view what,
                                                 const FunctionState& function,
                                                 std::uint64_t recording, const InputList* inputs,
                                                 std::optional<SkipReason> reason) const noexcept
    try {
  if (what == "breaks") {  // of a replay, which has a range; it is not an event
    return std::make_shared<const RunScopes>(function, has_warned_of_scopes_, nullptr);
  }
  if (what != "evict" && what != "replay") {
    const EventValue why = reason ? EventValue(name(*reason)) : EventValue();
    FlightEntry running = flight_entry(
        FlightEvent::kRunning,
        EventRecord(LogLevel::kOff, "running", function, {{"call", what}, {"reason", why}}),
        memory_.generation());
    running.node = static_cast<std::uint32_t>(recording);
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
    about = str_format(": {}", name(*reason));
  } else if (inputs != nullptr && what != "replay") {
    about = str_format("; {}", Signature(*inputs).to_string());
  } else if (inputs != nullptr && !inputs->key().empty()) {
    about = str_format(" {}", inputs->key());
  }
  return std::shared_ptr<const void>(
      new ProfilerRange(true, recording, "{} {}{}", what, function.name, about));
}

void EventLog::explain(Explanation& why, const FunctionState& function, const Call& call) const {
  if (why.outcome == Outcome::kWarmUp && why.nearest == 0 && !why.made_again)
    why.changed = causes_.change(function, call.inputs());
}

void EventLog::after(const CallEvent& event) noexcept {
  switch (event.kind) {
    case CallEvent::kWarmUp:
      return warm_up(event);
    case CallEvent::kRecord:
      return record(*event.node, *event.axes);
    case CallEvent::kReplay:
      return replay(*event.node, *event.axes, event.time);
    case CallEvent::kVerify:
      return verify(*event.node, event.divergence);
    case CallEvent::kUnverified:
      return tell(EventRecord(LogLevel::kDebug, "verify", *event.node,
                              {{"left_out", name(event.unverified)}}));
    case CallEvent::kBeginReplay:
    case CallEvent::kPatchRefused:
      return;
    case CallEvent::kSkipBegins:
      return announce_skip(event);
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
    case CallEvent::kDeviceError:
      if (watch_ != nullptr && is_sticky(static_cast<Code>(event.code)))
        watch_->tell_device_failure(event.what);
      return;
    case CallEvent::kCounters:
      return write(EventRecord("counters", {{"recordings", event.tree->nodes().size()},
                                            {"graph_bytes", event.tree->spent.graph_bytes.get()},
                                            {"live_outputs", memory_.live_outputs()},
                                            {"live_bytes", memory_.live_bytes()},
                                            {"pool_bytes", &memory_}}));
  }
}

// Warns once of an effect of zeros that the caller did not choose.
void EventLog::warn_of_padding(FunctionState& function, const CallAxes& axes,
                               const Recording* recording) noexcept {
  warn_once(function.warned_of_padding, "padding_not_chosen", function,
            [&] { return notes_on_padding(function, axes, recording); });
}

void EventLog::warm_up(const CallEvent& event) noexcept {
  FunctionState& function = *event.function;
  const auto time = std::chrono::duration_cast<std::chrono::microseconds>(event.time);
  timer_.note_eager(function.name, time);
  warn_of_padding(function, *event.axes, /*recording=*/nullptr);
  const Signature& inputs = event.key->signature;
  const CallCauses::WarmUp warm_up = causes_.note_warm_up(function, inputs);
  const bool has_changed = warm_up.changed.kind != Mismatch::Kind::kNone;
  const std::vector<AxisInUse> axes = sizes_of(function, *event.axes);
  tell(EventRecord(LogLevel::kInfo, "warm_up", function,
                   {{"inputs", &inputs},
                    {"generation", memory_.generation()},
                    {"us", time.count()},
                    {"reason", name(cause_of(warm_up.changed.kind))},
                    {"changed", has_changed ? &warm_up.changed : nullptr},
                    {"axes", &axes}}));
  never_recorded(function, warm_up);
}

// Each call has other inputs than the call before, so that none is the second of its kind.
void EventLog::never_recorded(const FunctionState& function,
                              const CallCauses::WarmUp& last) noexcept try {
  constexpr std::uint64_t kMany = 16;
  if (last.count != kMany || last.changed.kind == Mismatch::Kind::kNone) return;
  if (function.precaptures.load() > 0) return;
  Explanation why{.outcome = Outcome::kWarmUp};
  why.changed = last.changed;
  if (function.axes != nullptr) why.axes.resize(function.axes->size());
  say(EventRecord(
      LogLevel::kWarn, "never_recorded", function,
      {{"warm_ups", last.count}, {"what", difference(why)}, {"advice", advice_on(why)}}));
} catch (const std::bad_alloc&) {  // it is not told
}

// Many recordings were made for one cause, and are hardly replayed.
void EventLog::recorded_again(const Node& last, std::uint64_t recordings) noexcept try {
  // Loops that hold a fixed number of outputs settle on fewer.
  constexpr std::uint64_t kMany = 12;
  constexpr std::uint64_t kReplaysOfOne = 10;  // replays that make a recording worth its cost
  const FunctionState& function = *last.function;
  if (recordings != kMany || function.precaptures.load() > 0) return;
  const Cause cause = cause_of(last.why);
  const bool is_of_axes = cause == Cause::kShape && function.axes != nullptr;
  const bool is_of_key = cause == Cause::kKey || cause == Cause::kGuard;
  if (cause == Cause::kFirst || is_of_key || is_of_axes) return;
  if (cause == Cause::kOutputHeld && memory_.generation() > 0) return;
  if (function.counters.replays >= kReplaysOfOne * recordings) return;
  const bool is_held = cause == Cause::kOutputHeld;
  say(EventRecord(LogLevel::kWarn, is_held ? "held_outputs" : "recorded_again", function,
                  {{"recordings", recordings},
                   {"cause", name(cause)},
                   {"what", difference(last.why)},
                   {"advice", advice_on(last.why)}}));
} catch (const std::bad_alloc&) {  // it is not told
}

// Warns once that calls of the function copy their outputs, with the reason.
void EventLog::copied_outputs(const Node& node) noexcept try {
  FunctionState& function = *node.function;
  if (!node.recording.copies_outputs() || std::exchange(function.warned_of_copies, true)) return;
  say(EventRecord(LogLevel::kWarn, "held_outputs", function,
                  {{"recordings", function.counters.recordings.get()},
                   {"what", difference(node.why) + "; from now on its calls copy their outputs"},
                   {"advice", advice_on(node.why)}}));
} catch (const std::bad_alloc&) {  // it is not told
}

void EventLog::record(const Node& node, const CallAxes& call) noexcept {
  if (progress_ != nullptr) progress_->keep_within_graph_bytes();
  FunctionState& function = *node.function;
  const Recording& recording = node.recording;
  const auto copied = std::ranges::count_if(
      recording.inputs, [](const InputRecord& input) { return is_copied(input.treatment); });
  const std::vector<AxisInUse> axes = sizes_of(function, call);
  tell(EventRecord(node.why.mismatches.empty() ? LogLevel::kInfo : LogLevel::kDebug, "record", node,
                   {{"parent", node.parent},
                    {"generation", memory_.generation()},
                    {"inputs", &node.key->signature},
                    {"copied_inputs", copied},
                    {"graph_nodes", recording.costs.nodes},
                    {"bytes", recording.footprint.bytes()},
                    {"us", recording.costs.record_us},
                    {"reason", name(cause_of(node.why))},
                    {"cause", &node.why},
                    {"axes", &axes}}));
  foreign_pointers(node);
  host_memory(node);
  warn_once(function.warned_of_unsliced, "unsliced_output", function,
            [&] { return notes_on_outputs(function, call, recording); });
  recorded_again(node, causes_.note_recording(node));
  copied_outputs(node);
  warn_of_padding(function, call, &recording);
  if (recording.costs.step_nodes > 0) return;
  warn_once(function.warned_of_nothing, "empty_recording", function, [&] {
    return std::vector{str_format(
        "{} launched nothing on current_stream(); work on other streams is no part of the "
        "recording",
        function.is_callers_work ? "the work between begin() and end()" : "the step function")};
  });
}

void EventLog::foreign_pointers(const Node& node) noexcept try {
  const Audit& audit = audit_of(node.recording);
  FunctionState& function = *node.function;
  for (const ForeignPointer& pointer : audit.foreign) {
    if (!foreign_to_.insert(pointer.kernel).second) continue;
    // An engine with an unbound arena has many.
    const bool warns = audit.warns_of_foreign || (function.is_callers_work &&
                                                  !std::exchange(function.warned_of_foreign, true));
    const UsedMemory& memory = audit.memory[pointer.memory];
    say(EventRecord(warns ? LogLevel::kWarn : LogLevel::kDebug, "foreign_pointer", node,
                    {{"what", to_string(pointer, audit)},
                     {"kernel", pointer.kernel},
                     {"place", pointer.place},
                     {"address", pointer.address},
                     {"memory", memory.text},
                     {"memory_address", memory.range.address},
                     {"memory_bytes", memory.range.bytes}}));
  }
} catch (const std::bad_alloc&) {  // they are not told
}

// Warns in spite of the options for foreign memory: pageable memory is usually a temporary.
void EventLog::host_memory(const Node& node) noexcept try {
  const std::optional<HostMemoryUse>& use = audit_of(node.recording).host_memory;
  if (!use || !has_host_memory_.insert(node.function->id).second) return;
  say(EventRecord(LogLevel::kWarn, "host_memory", node,
                  {{"what", to_string(*use)},
                   {"graph_node", use->node},
                   {"address", use->range.address},
                   {"bytes", use->range.bytes},
                   {"is_written", use->is_written}}));
} catch (const std::bad_alloc&) {  // it is not told
}

void EventLog::write_replay_times() noexcept try {
  const auto in_us = [](std::chrono::nanoseconds taken) {
    return std::chrono::duration<double, std::micro>(taken).count();
  };
  for (const ReplayTimer::Sample& sample : timer_.collect()) {
    write(EventRecord("device_time", {{"function", sample.function},
                                      {"node", sample.node},
                                      {"began_us", sample.began_us},
                                      {"us", in_us(sample.device)},
                                      {"host_us", in_us(sample.host)},
                                      {"found_idle", sample.found_idle}}));
  }
} catch (const std::exception&) {  // out of memory: they are lost
}

void EventLog::replay(const Node& node, const CallAxes& call,
                      std::chrono::nanoseconds time) noexcept {
  if (progress_ != nullptr) progress_->close();
  if (timer_.close(node, time)) write_replay_times();
  if (!has_replays_) return log_fields(EventRecord(LogLevel::kTrace, "replay", node, {}));
  const std::vector<AxisInUse> axes = sizes_of(*node.function, call);
  say(EventRecord(LogLevel::kTrace, "replay", node,
                  {{"generation", memory_.generation()},
                   {"us", static_cast<double>(time.count()) / 1000},
                   {"live_outputs", memory_.live_outputs()},
                   {"live_bytes", memory_.live_bytes()},
                   {"axes", &axes}}));
}

void EventLog::verify(const Node& node, const Divergence* divergence) noexcept {
  const std::uint64_t replay = node.recording.costs.replays;
  if (divergence == nullptr) {
    recorder_->clear_running();
    return say(
        EventRecord(LogLevel::kDebug, "verify", node, {{"replay", replay}, {"differs", false}}));
  }
  tell(EventRecord(LogLevel::kWarn, "verify", node,
                   {{"replay", replay},
                    {"differs", true},
                    {"what", divergence->what},
                    {"position", &divergence->position},
                    {"replayed", divergence->replayed},
                    {"eager", divergence->eager},
                    {"differing", divergence->differing},
                    {"elements", divergence->elements},
                    {"suspects", &divergence->suspects}}));
}

// A line of the file follows when the skip has ended.
void EventLog::announce_skip(const CallEvent& event) noexcept {
  log_fields(EventRecord(event.level, "skip", *event.function,
                         {{"reason", name(event.skip->reason)},
                          {"recordings", event.function->recordings.get()},
                          {"cause", &*event.skip->why}}));
}

void EventLog::skip(const FunctionState& function, const AnnouncedSkip& skip) noexcept {
  const auto time = std::chrono::steady_clock::now() - skip.begin;
  timer_.note_eager(function.name, time);
  const Explanation* const why = skip.why ? &*skip.why : nullptr;
  tell(EventRecord(LogLevel::kOff, "skip", function,
                   {{"reason", name(skip.reason)},
                    {"recordings", function.recordings.get()},
                    {"what", why == nullptr ? EventValue() : EventValue(why->detail)},
                    {"us", std::chrono::duration_cast<std::chrono::microseconds>(time).count()},
                    {"cause", why},
                    {"axes", why == nullptr ? nullptr : &why->axes}}));
}

void EventLog::evict(const Node& node, SkipReason limit) noexcept {
  if (progress_ != nullptr) progress_->forget(node);
  tell(EventRecord(LogLevel::kInfo, "evict", node,
                   {{"limit", name(limit)}, {"replays", node.recording.costs.replays.get()}}));
}

void EventLog::demote(const FunctionState& function, const Mismatch& last) noexcept {
  tell(EventRecord(LogLevel::kInfo, "demote", function,
                   {{"input", last.input},
                    {"name", last.input_name},
                    {"changes", function.static_changes[last.input]}}));
}

void EventLog::drop(const Node& node, std::string_view what) noexcept {
  if (progress_ != nullptr) progress_->forget(node);
  tell(EventRecord(LogLevel::kInfo, "drop", node, {{"what", what}}));
}

void EventLog::failure(const FunctionState& function, std::string_view what,
                       LogLevel level) noexcept {
  if (progress_ != nullptr) progress_->abandon();
  // A function that always throws must not fill the log.
  const bool is_told = std::has_single_bit(causes_.note_failure(function, what));
  tell(EventRecord(is_told ? level : LogLevel::kDebug, "failure", function,
                   {{"failures", function.counters.failures.get()}, {"what", what}}));
}

EventLog& event_log_of(const Engine& engine) {
  auto* const log = engine.extensions.find<EventLog>();
  CGTREE_CHECK(log != nullptr);
  return *log;
}

}  // namespace cgtree
