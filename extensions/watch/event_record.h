// EventRecord: the description of an event, from which its line in the log, its line in the event
// file and its entry in the flight recorder are made.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/log.h"
#include "cgtree/tree/tree.h"
#include "extensions/watch/flight_recorder.h"

namespace cgtree {

// An EventValue is the value of a field. Texts and pointers are borrowed. An event has no field
// whose value is std::monostate, a null pointer or no axes.
struct EventValue
    : std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string_view,
                   const Signature*, const Mismatch*, const Explanation*,
                   const std::vector<AxisInUse>*, const std::vector<std::int64_t>*,
                   const std::vector<std::string>*, const ContextMemory*> {
  EventValue() = default;
  template <std::integral Number>
  EventValue(Number number)
      : variant(
            static_cast<std::conditional_t<
                std::same_as<Number, bool>, bool,
                std::conditional_t<std::unsigned_integral<Number>, std::uint64_t, std::int64_t>>>(
                number)) {}
  template <typename Value>
  EventValue(const Value& value) requires(!std::integral<Value>) : variant(value) {}
};

struct EventField {
  std::string_view name;
  EventValue value;
};

// An EventRecord lives no longer than the expression in which it is made.
struct EventRecord {
  using Fields = std::initializer_list<EventField>;

  EventRecord(LogLevel level, std::string_view name, const FunctionState& function, Fields fields)
      : level(level), name(name), function(&function), fields(fields) {}
  EventRecord(LogLevel level, std::string_view name, const Node& node, Fields fields)
      : level(level), name(name), function(node.function), node(node.id), fields(fields) {}
  // For the file alone.
  EventRecord(std::string_view name, Fields fields) : name(name), fields(fields) {}

  LogLevel level = LogLevel::kOff;
  std::string_view name;                    // as in docs/events.md
  const FunctionState* function = nullptr;  // null: no function
  std::uint32_t node = 0;                   // 0: no recording
  Fields fields;
};

// Logs `event key=value key="some text"`, without empty texts, axes and pools, if the level is
// enabled.
void log_fields(const EventRecord& event) noexcept;
// Adds the fields to a line of the event file.
void add_fields(nlohmann::ordered_json& line, const EventRecord& event);
// Returns the entry; kFlightNames names the fields for its `reason` and `what`. Does not allocate.
// Requires: the event has a function.
FlightEntry flight_entry(FlightEvent kind, const EventRecord& event,
                         std::uint64_t generation) noexcept;

// Adds "cause", {"nearest", "changes"}: the mismatches that kept the nearest recording from being
// replayed; and "advice", "" for a recording without differences.
void add_cause(nlohmann::ordered_json& line, const Explanation& why);
// Returns {"kind", "recorded", "given", "text"} of two warm-ups, with number and name for an input.
nlohmann::ordered_json changed_json(const Mismatch& changed);

}  // namespace cgtree
