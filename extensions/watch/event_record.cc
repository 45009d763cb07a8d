// Makes lines and entries of events.
#include "extensions/watch/event_record.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "cgtree/memory/context_memory.h"
#include "extensions/watch/call_causes.h"
#include "extensions/watch/spelling.h"

namespace cgtree {
namespace {

using Json = nlohmann::ordered_json;

// A recording without differences is the first of its function, or is made again.
bool has_cause(const Explanation& why) {
  return !why.mismatches.empty() || why.skip_reason.has_value();
}

// Returns "" for a value that the log leaves out.
std::string text_of(const EventValue& value) {
  return std::visit(
      [](const auto& known) -> std::string {
        using Value = std::remove_cvref_t<decltype(known)>;
        if constexpr (std::same_as<Value, const Signature*>) {
          return known->to_string();
        } else if constexpr (std::same_as<Value, const Mismatch*>) {
          return known == nullptr ? "" : sides_of_change(*known);
        } else if constexpr (std::same_as<Value, const std::vector<std::int64_t>*>) {
          return str_format("{}", joined(*known, ","));
        } else if constexpr (std::same_as<Value, const std::vector<std::string>*>) {
          return str_format("{}", joined(*known, "; "));
        } else if constexpr (std::is_pointer_v<Value> || std::same_as<Value, std::monostate>) {
          return "";
        } else {
          return str_format("{}", known);
        }
      },
      value);
}

Json change_json(const Mismatch& mismatch, std::string text) {
  Json entry = {{"kind", name(mismatch.kind)},
                {"recorded", mismatch.recorded},
                {"given", mismatch.given},
                {"text", std::move(text)}};
  if (mismatch.is_of_input()) {
    entry.update({{"input", mismatch.input}, {"name", mismatch.input_name}});
  } else if (mismatch.kind == Mismatch::Kind::kGuard) {
    entry["name"] = mismatch.input_name;
  }
  return entry;
}

Json json_of(const std::vector<AxisInUse>& axes) {
  Json sizes = Json::object();
  for (const AxisInUse& axis : axes)
    sizes[axis.name] = {{"actual", axis.actual}, {"padded", std::max(axis.actual, axis.padded)}};
  return sizes;
}

Json json_of(const ContextMemory& memory) {
  Json pools = Json::object();
  for (const Region region : {Region::kOutput, Region::kScratch, Region::kEager}) {
    const Pool& pool = memory.pool(region);
    pools[pool.options().name] = pool.statistics().reserved_bytes.current;
  }
  return pools;
}

Json json_of(const Signature& signature) {
  return signature.to_string();
}

Json json_of(const Mismatch& changed) {
  return changed_json(changed);
}

template <typename Element>
Json json_of(const std::vector<Element>& list) {
  return list;
}

void add_field(Json& line, const std::string& name, const EventValue& value) {
  std::visit(
      [&](const auto& known) {
        using Value = std::remove_cvref_t<decltype(known)>;
        if constexpr (std::same_as<Value, const Explanation*>) {
          if (known != nullptr) add_cause(line, *known);
        } else if constexpr (std::same_as<Value, const std::vector<AxisInUse>*>) {
          if (known != nullptr && !known->empty()) line[name] = json_of(*known);
        } else if constexpr (std::is_pointer_v<Value>) {
          if (known != nullptr) line[name] = json_of(*known);
        } else if constexpr (!std::same_as<Value, std::monostate>) {
          line[name] = known;
        }
      },
      value);
}

std::string line_of(const EventRecord& event) {
  std::string line(event.name);
  const auto add = [&](std::string_view name, std::string_view text) {
    if (text.empty()) return;
    const bool is_word = text.find(' ') == std::string_view::npos;
    line += is_word ? str_format(" {}={}", name, text) : str_format(" {}=\"{}\"", name, text);
  };
  if (event.function != nullptr) add("function", event.function->name);
  if (event.node != 0) add("node", std::to_string(event.node));
  for (const EventField& field : event.fields) {
    if (const auto* const why = std::get_if<const Explanation*>(&field.value)) {
      if (*why == nullptr || !has_cause(**why)) continue;
      add("what", spelled(difference(**why), Spelling::kNames));
      add("advice", spelled(advice(**why), Spelling::kNames));
    } else {
      add(field.name, spelled(text_of(field.value), Spelling::kNames));
    }
  }
  return line;
}

// Adds "static_address of input 1 weights, footprint".
void append_kinds(ShortText<96>& text, const Explanation& why) noexcept {
  for (const Mismatch& mismatch : why.mismatches) {
    if (!text.view().empty()) text += ", ";
    text += name(mismatch.kind);
    if (!mismatch.is_of_input()) continue;
    char input[24];
    format_list_into(input, sizeof input, " of input {}", {mismatch.input});
    (text += input) += mismatch.input_name.empty() ? "" : " ";
    text += mismatch.input_name;
  }
}

}  // namespace

void log_fields(const EventRecord& event) noexcept {
  if (!log_enabled(event.level)) return;
  try {
    log_line(event.level, line_of(event));
  } catch (...) {
    log_line(event.level, "log event lost: formatting failed");
  }
}

void add_fields(Json& line, const EventRecord& event) {
  if (event.function != nullptr) line["function"] = event.function->name;
  if (event.node != 0) line["node"] = event.node;
  for (const EventField& field : event.fields)
    add_field(line, std::string(field.name), field.value);
}

FlightEntry flight_entry(FlightEvent kind, const EventRecord& event,
                         std::uint64_t generation) noexcept {
  const FlightNames& names = names_of(kind);
  FlightEntry entry;
  entry.time_us = now_us();
  entry.generation = generation;
  entry.replays = event.function->counters.replays;
  entry.node = event.node;
  entry.function = ShortText<48>(event.function->name);
  entry.event = kind;
  for (const auto& [name, value] : event.fields) {
    const auto* const text = std::get_if<std::string_view>(&value);
    if (text != nullptr && name == names.reason) entry.reason = ShortText<32>(*text);
    if (text != nullptr && name == names.what) entry.what = ShortText<96>(*text);
    const auto* const why = std::get_if<const Explanation*>(&value);
    if (why != nullptr && kind == FlightEvent::kRecord) append_kinds(entry.what, **why);
    if (name == "us") entry.us = std::get<std::int64_t>(value);
    if (name == "replays") entry.replays = std::get<std::uint64_t>(value);
  }
  return entry;
}

void add_cause(Json& line, const Explanation& why) {
  Json changes = Json::array();
  for (const Mismatch& mismatch : why.mismatches)
    changes.push_back(change_json(mismatch, to_string(mismatch)));
  line["advice"] = has_cause(why) ? spelled(advice(why), Spelling::kNames) : "";
  line["cause"] = {{"nearest", why.nearest}, {"changes", std::move(changes)}};
}

Json changed_json(const Mismatch& changed) {
  return change_json(changed, sides_of_change(changed));
}

}  // namespace cgtree
