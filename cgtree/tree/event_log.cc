// Writes events.
#include "cgtree/tree/event_log.h"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"

namespace cgtree {
namespace {

using Json = nlohmann::ordered_json;

std::int64_t now_us() {
  using std::chrono::microseconds;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<microseconds>(now).count();
}

Json to_json(const Cause& cause) {
  Json changes = Json::array();
  for (const Change& change : cause.changes) {
    Json json = {
        {"kind", name(change.kind)}, {"recorded", change.recorded}, {"given", change.given}};
    if (change.is_of_input()) json.update({{"input", change.input}, {"name", change.input_name}});
    changes.push_back(std::move(json));
  }
  return {{"nearest", cause.nearest}, {"changes", std::move(changes)}};
}

// One line, for the log.
std::string text_of(const Cause& cause) {
  std::string text;
  for (const Change& change : cause.changes)
    text += (text.empty() ? "" : ", ") + to_string(change);
  return text;
}

}  // namespace

EventLog::EventLog(const ContextOptions& options)
    : path_(options.event_file), has_replays_(options.event_file_has_replays && !path_.empty()) {
  if (path_.empty()) return;
  file_.open(path_, std::ios::app);
  if (!file_) {
    throw InvalidArgument(
        fmt::format("ContextOptions::event_file '{}' cannot be opened: {}; name a file in a folder "
                    "that exists and may be written to",
                    path_, std::strerror(errno)));
  }
}

template <typename Fields>
void EventLog::write(std::string_view event, Fields&& fields) noexcept {
  if (path_.empty()) return;
  try {
    Json line = {{"event", event}, {"time_us", now_us()}};
    line.update(fields());
    // Text that is not UTF-8, such as a message in another encoding, must not lose the line.
    file_ << line.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n' << std::flush;
    if (file_) return;
  } catch (...) {  // no memory: counted below
  }
  file_.clear();
  if (lost_lines_++ > 0) return;
  log_event(LogLevel::kWarn, "events_lost file=\"{}\" what=\"{}\"", path_, std::strerror(errno));
}

void EventLog::warm_up(const FunctionState& function, const KeyState& key,
                       std::uint64_t generation) {
  log_event(LogLevel::kInfo, "warm_up function={} inputs=\"{}\" generation={}", function.name,
            key.signature.to_string(), generation);
  write("warm_up", [&]() -> Json {
    return {{"function", function.name},
            {"inputs", key.signature.to_string()},
            {"generation", generation}};
  });
}

void EventLog::record(const Node& node, std::uint64_t generation) {
  const Recording& recording = node.recording;
  const std::string because = text_of(node.cause);
  log_event(because.empty() ? LogLevel::kInfo : LogLevel::kDebug,
            "record function={} node={} parent={} generation={} nodes={} bytes={} us={}{}",
            node.function->name, node.id, node.parent->id, generation, recording.costs.nodes,
            recording.footprint.bytes(), recording.costs.record_us,
            because.empty() ? "" : fmt::format(" because=\"{}\"", because));
  write("record", [&]() -> Json {
    std::size_t copied = 0;
    for (const InputRecord& input : recording.inputs)
      copied += input.treatment == Treatment::kCopied;
    Json json = {{"function", node.function->name},
                 {"node", node.id},
                 {"parent", node.parent->id},
                 {"generation", generation},
                 {"inputs", node.key->signature.to_string()},
                 {"copied_inputs", copied},
                 {"graph_nodes", recording.costs.nodes},
                 {"bytes", recording.footprint.bytes()},
                 {"us", recording.costs.record_us}};
    json["cause"] = to_json(node.cause);
    return json;
  });
}

void EventLog::write_replay(const Node& node) {
  log_event(LogLevel::kTrace, "replay function={} node={}", node.function->name, node.id);
  if (!has_replays_) return;
  write("replay", [&]() -> Json { return {{"function", node.function->name}, {"node", node.id}}; });
}

void EventLog::skip(const FunctionState& function, SkipReason reason, const std::string& what,
                    bool warns, const Cause& cause) {
  const std::string because = text_of(cause);
  log_event(warns ? LogLevel::kWarn : LogLevel::kDebug,
            "skip function={} reason={} what=\"{}{}{}\"", function.name, name(reason),
            explain(reason), what.empty() ? "" : "; " + what,
            because.empty() ? "" : "; " + because);
  write("skip", [&]() -> Json {
    Json json = {{"function", function.name}, {"reason", name(reason)}, {"what", what}};
    json["cause"] = to_json(cause);
    return json;
  });
}

void EventLog::evict(const Node& node, SkipReason limit) {
  log_event(LogLevel::kInfo, "evict function={} node={} limit={} replays={}", node.function->name,
            node.id, name(limit), node.recording.costs.replays);
  write("evict", [&]() -> Json {
    return {{"function", node.function->name},
            {"node", node.id},
            {"limit", name(limit)},
            {"replays", node.recording.costs.replays}};
  });
}

void EventLog::failure(const FunctionState& function, std::string_view what) {
  log_event(LogLevel::kWarn, "call_failed function={} what=\"{}\"", function.name, what);
  write("failure", [&]() -> Json { return {{"function", function.name}, {"what", what}}; });
}

}  // namespace cgtree
