// Writes events, to the log and to the file.
#include "cgtree/tree/event_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"

namespace cgtree {
namespace {

using Json = nlohmann::ordered_json;

// Returns all mismatches in one line, for the log.
std::string text_of(const Explanation& why) {
  std::string text;
  for (const Mismatch& mismatch : why.mismatches)
    text += (text.empty() ? "" : ", ") + to_string(mismatch);
  return text;
}

}  // namespace

EventLog::EventLog(const ContextOptions& options)
    : path_(options.event_file),
      has_replays_(options.event_file_has_replays && !path_.empty()),
      warns_of_foreign_(options.on_foreign_pointer == OnForeignPointer::kWarn) {
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

void EventLog::warm_up(const FunctionState& function, const KeyState& key,
                       std::uint64_t generation) noexcept {
  tell(
      LogLevel::kInfo, "warm_up",
      [&] {
        return fmt::format("warm_up function={} inputs=\"{}\" generation={}", function.name,
                           key.signature.to_string(), generation);
      },
      [&]() -> Json {
        return {{"function", function.name},
                {"inputs", key.signature.to_string()},
                {"generation", generation}};
      });
}

void EventLog::launched_nothing(const FunctionState& function) noexcept {
  log_event(LogLevel::kWarn,
            "empty_recording function={} what=\"the step function launched nothing on "
            "current_stream(); work on other streams is no part of the recording\"",
            function.name);
  write("empty_recording", [&]() -> Json { return {{"function", function.name}}; });
}

void EventLog::record(const Node& node, std::uint64_t generation) noexcept {
  const Recording& recording = node.recording;
  const bool is_first = node.why.mismatches.empty();
  tell(
      is_first ? LogLevel::kInfo : LogLevel::kDebug, "record",
      [&] {
        return fmt::format(
            "record function={} node={} parent={} generation={} nodes={} bytes={} us={}{}",
            node.function->name, node.id, node.parent, generation, recording.costs.nodes,
            recording.footprint.bytes(), recording.costs.record_us,
            is_first ? "" : fmt::format(" because=\"{}\"", text_of(node.why)));
      },
      [&]() -> Json {
        const auto copied =
            std::count_if(recording.inputs.begin(), recording.inputs.end(),
                          [](const InputRecord& input) { return is_copied(input.treatment); });
        return {{"function", node.function->name},
                {"node", node.id},
                {"parent", node.parent},
                {"generation", generation},
                {"inputs", node.key->signature.to_string()},
                {"copied_inputs", copied},
                {"graph_nodes", recording.costs.nodes},
                {"bytes", recording.footprint.bytes()},
                {"us", recording.costs.record_us},
                {"cause", cause_json(node.why)}};
      });
}

void EventLog::foreign_pointers(const Node& node) noexcept {
  const Audit& audit = node.recording.audit;
  const LogLevel level = warns_of_foreign_ ? LogLevel::kWarn : LogLevel::kDebug;
  for (const ForeignPointer& pointer : audit.foreign) {
    try {
      if (!foreign_to_.insert(pointer.kernel).second) continue;
    } catch (const std::bad_alloc&) {  // it is told of once more
    }
    tell(
        level, "foreign_pointer",
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

void EventLog::replay(const Node& node) noexcept {
  log_event(LogLevel::kTrace, "replay function={} node={}", node.function->name, node.id);
  if (!has_replays_) return;
  write("replay", [&]() -> Json { return {{"function", node.function->name}, {"node", node.id}}; });
}

void EventLog::verify(const Node& node, const Divergence* divergence) noexcept {
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
  log_event(LogLevel::kDebug, "unverified function={} node={} reason={}", node.function->name,
            node.id, name(reason));
  write("verify", [&]() -> Json {
    return {{"function", node.function->name}, {"node", node.id}, {"left_out", name(reason)}};
  });
}

void EventLog::skip(const FunctionState& function, const Explanation& why, bool warns) noexcept {
  const SkipReason reason = *why.skip_reason;
  tell(
      skip_level(warns), "skip",
      [&] {
        const std::string mismatches = text_of(why);
        return fmt::format("skip function={} reason={} recordings={} what=\"{}{}{}\"",
                           function.name, name(reason), function.recordings.get(), explain(reason),
                           why.detail.empty() ? "" : "; " + why.detail,
                           mismatches.empty() ? "" : "; " + mismatches);
      },
      [&]() -> Json {
        return {{"function", function.name},
                {"reason", name(reason)},
                {"recordings", function.recordings.get()},
                {"what", why.detail},
                {"cause", cause_json(why)}};
      });
}

void EventLog::evict(const Node& node, SkipReason limit) noexcept {
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
  log_event(LogLevel::kInfo, "drop function={} node={} what=\"{}\"", node.function->name, node.id,
            what);
  write("drop", [&]() -> Json {
    return {{"function", node.function->name}, {"node", node.id}, {"what", what}};
  });
}

void EventLog::failure(const FunctionState& function, std::string_view what,
                       LogLevel level) noexcept {
  log_event(level, "call_failed function={} what=\"{}\"", function.name, what);
  write("failure", [&]() -> Json { return {{"function", function.name}, {"what", what}}; });
}

nlohmann::ordered_json cause_json(const Explanation& why) {
  Json changes = Json::array();
  for (const Mismatch& mismatch : why.mismatches) {
    Json entry = {{"kind", name(mismatch.kind)},
                  {"recorded", mismatch.recorded},
                  {"given", mismatch.given},
                  {"text", to_string(mismatch)}};
    if (mismatch.is_of_input()) {
      entry.update({{"input", mismatch.input}, {"name", mismatch.input_name}});
    }
    changes.push_back(std::move(entry));
  }
  return {{"nearest", why.nearest}, {"changes", std::move(changes)}};
}

}  // namespace cgtree
