// OptionSchema: the options a kind of target has, their types, defaults and rules.
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

struct OptionSpec {
  std::string name;
  OptionType type = OptionType::kString;
  std::string help;
  std::optional<OptionValue> default_value;  // none: the option is not there unless given
  bool is_required = false;
  // What is wrong with a value of the right type, e.g. "must start with sm_"; empty if nothing is.
  std::function<std::string(const OptionValue&)> problem;
};

// Threads: const verbs from any.
class OptionSchema {
 public:
  // Works out options from others, once all are there and checked, and may refuse with
  // InvalidArgument. What it returns is checked again, against the types.
  using Canonicalize = std::function<Options(Options)>;

  // Throws InvalidArgument for a name that is taken, and for a default value that does not fit.
  OptionSchema& add(OptionSpec spec);
  OptionSchema& set_canonicalize(Canonicalize canonicalize);

  // `given` with defaults and canonicalised. An empty list is one of either type. Throws
  // InvalidArgument that names the option, and lists the known ones if it is unknown.
  Options resolve(Options given) const;

  const std::vector<OptionSpec>& specs() const noexcept { return specs_; }  // as added
  const OptionSpec* find(std::string_view name) const noexcept;             // null if unknown

 private:
  void check(std::string_view name, OptionValue* value) const;

  std::vector<OptionSpec> specs_;
  Canonicalize canonicalize_;
};

}  // namespace cgtree
