// OptionValue: the value of a target's option, and its type.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace cgtree {

// In the order of OptionType.
using OptionValue =
    std::variant<bool, std::int64_t, std::string, std::vector<std::int64_t>,
                 std::vector<std::string>, std::map<std::string, std::string, std::less<>>>;

enum class OptionType { kBool, kInt, kString, kInts, kStrings, kMap };

// By name; in the order of their names, so that a text of them is the same each time.
using Options = std::map<std::string, OptionValue, std::less<>>;

inline OptionType type_of(const OptionValue& value) noexcept {
  return static_cast<OptionType>(value.index());
}

// "bool", "int", "string", "list of int", "list of string", "map of string".
std::string_view name(OptionType type) noexcept;

// As JSON, on one line.
std::string to_json(const OptionValue& value);

}  // namespace cgtree
