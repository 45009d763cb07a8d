// Checks options one by one, and adds defaults.
#include "targets/option_schema.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"

namespace cgtree {

std::string_view name(OptionType type) noexcept {
  constexpr std::string_view kNames[] = {"bool",           "int",          "string", "list of int",
                                         "list of string", "map of string"};
  return kNames[static_cast<int>(type)];
}

std::string to_json(const OptionValue& value) {
  // The text of a user may be invalid UTF-8.
  return std::visit([](const auto& v) { return nlohmann::json(v); }, value)
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

namespace {

// Gives an empty list, which is untyped, the type of the option.
void adopt_type(OptionType type, OptionValue* value) {
  const auto* const ints = std::get_if<std::vector<std::int64_t>>(value);
  if (ints != nullptr && ints->empty() && type == OptionType::kStrings) {
    *value = std::vector<std::string>();
  }
}

}  // namespace

OptionSchema& OptionSchema::add(OptionSpec spec) {
  if (find(spec.name) != nullptr) {
    throw InvalidArgument(str_format("option '{}' is declared twice", spec.name));
  }
  specs_.push_back(std::move(spec));
  OptionSpec& added = specs_.back();
  if (!added.default_value) return *this;
  try {
    check(added.name, &*added.default_value);
  } catch (...) {
    specs_.pop_back();
    throw;
  }
  return *this;
}

const OptionSpec* OptionSchema::find(std::string_view name) const noexcept {
  for (const OptionSpec& spec : specs_) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

void OptionSchema::check(std::string_view name, OptionValue* value) const {
  const OptionSpec* const spec = find(name);
  if (spec == nullptr) {
    std::string known;
    for (const OptionSpec& other : specs_)
      known += (known.empty() ? "" : ", ") + other.name;
    throw InvalidArgument(
        str_format("option '{}' is unknown; known are {}", name, known.empty() ? "none" : known));
  }
  adopt_type(spec->type, value);
  if (type_of(*value) != spec->type) {
    throw InvalidArgument(str_format("option '{}' is of type {}, and was given {}, of type {}",
                                     name, cgtree::name(spec->type), to_json(*value),
                                     cgtree::name(type_of(*value))));
  }
  const std::string problem = spec->problem ? spec->problem(*value) : std::string();
  if (problem.empty()) return;
  throw InvalidArgument(
      str_format("option '{}' was given {}, and it {}", name, to_json(*value), problem));
}

Options OptionSchema::resolve(Options given) const {
  for (auto& [name, value] : given)
    check(name, &value);
  for (const OptionSpec& spec : specs_) {
    if (spec.default_value) given.emplace(spec.name, *spec.default_value);
  }
  return given;
}

}  // namespace cgtree
