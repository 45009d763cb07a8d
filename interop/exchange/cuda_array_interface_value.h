// InterfaceValue, InterfaceEntries: what a producer wrote into its CUDA Array Interface, unchecked.
//
// Python's dicts and JSON both map to it, so that one parser holds all the rules.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace cgtree {

struct InterfaceValue;
using InterfaceList = std::vector<InterfaceValue>;

struct InterfaceValue {
  struct None {
    bool operator==(const None&) const = default;
  };
  // What the protocol has no use for: a float, an object, an integer of more than 64 bits.
  struct Other {
    std::string text;  // how to name it in a message

    bool operator==(const Other&) const = default;
  };

  // An integer is a uint64 only where an int64 cannot hold it. Tuples and lists are lists.
  std::variant<None, bool, std::int64_t, std::uint64_t, std::string, InterfaceList, Other> value;

  bool is_none() const noexcept { return std::holds_alternative<None>(value); }
  bool operator==(const InterfaceValue&) const = default;
};

// As Python would write it; long lists and strings are cut short. For messages.
std::string to_string(const InterfaceValue& value);

// Source: CUDA Array Interface, version 3. Other keys have no place here: they are ignored.
struct InterfaceEntries {
  std::optional<InterfaceValue> shape;
  std::optional<InterfaceValue> typestr;
  std::optional<InterfaceValue> data;
  std::optional<InterfaceValue> version;
  std::optional<InterfaceValue> strides;
  std::optional<InterfaceValue> descr;
  std::optional<InterfaceValue> mask;
  std::optional<InterfaceValue> stream;

  bool operator==(const InterfaceEntries&) const = default;
};

}  // namespace cgtree
