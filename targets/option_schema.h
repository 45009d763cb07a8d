// OptionSchema: the options of a kind of target, with types, defaults and rules; Options: their
// values.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace cgtree {

// The alternatives are in the order of OptionType.
using OptionValue =
    std::variant<bool, std::int64_t, std::string, std::vector<std::int64_t>,
                 std::vector<std::string>, std::map<std::string, std::string, std::less<>>>;

enum class OptionType { kBool, kInt, kString, kInts, kStrings, kMap };

// Options are sorted by name, so that their text is always the same.
using Options = std::map<std::string, OptionValue, std::less<>>;

inline OptionType type_of(const OptionValue& value) noexcept {
  return static_cast<OptionType>(value.index());
}

// Returns "bool", "int", "string", "list of int", "list of string" or "map of string".
std::string_view name(OptionType type) noexcept;

// Returns the value as JSON, on one line.
std::string to_json(const OptionValue& value);

struct OptionSpec {
  std::string name;
  OptionType type = OptionType::kString;
  std::string help;
  std::optional<OptionValue> default_value;  // empty: there is no value unless given
  // Returns the error of a value of the right type, e.g. "must start with sm_"; empty if it is
  // valid.
  std::function<std::string(const OptionValue&)> problem;
};

// Thread safety: const functions may be called from any thread.
class OptionSchema {
 public:
  // Throws InvalidArgument for a duplicate name, and for an invalid default value.
  OptionSchema& add(OptionSpec spec);

  // Returns `given` with defaults. An empty list fits either type of list. Throws
  // InvalidArgument that names the option, and lists the known ones if it is unknown.
  Options resolve(Options given) const;

  const std::vector<OptionSpec>& specs() const noexcept { return specs_; }  // as added
  const OptionSpec* find(std::string_view name) const noexcept;             // null if unknown

 private:
  void check(std::string_view name, OptionValue* value) const;

  std::vector<OptionSpec> specs_;
};

}  // namespace cgtree
