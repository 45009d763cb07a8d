// Maps JSON to what a Python dict maps to, and back.
#include "tests/support/cuda_array_interface_json.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/error.h"

namespace cgtree {
namespace {

using Json = nlohmann::json;
using Field = std::optional<InterfaceValue> InterfaceEntries::*;

constexpr std::array<std::pair<const char*, Field>, 8> kFields{{
    {"shape", &InterfaceEntries::shape},
    {"typestr", &InterfaceEntries::typestr},
    {"data", &InterfaceEntries::data},
    {"version", &InterfaceEntries::version},
    {"strides", &InterfaceEntries::strides},
    {"descr", &InterfaceEntries::descr},
    {"mask", &InterfaceEntries::mask},
    {"stream", &InterfaceEntries::stream},
}};

InterfaceValue value_of(const Json& json) {
  if (json.is_null()) return {};
  if (json.is_boolean()) return {json.get<bool>()};
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX) {
    return {json.get<std::uint64_t>()};
  }
  if (json.is_number_integer()) return {json.get<std::int64_t>()};
  if (json.is_string()) return {json.get<std::string>()};
  if (!json.is_array()) return {InterfaceValue::Other{fmt::format("a {}", json.type_name())}};
  InterfaceList list;
  list.reserve(json.size());
  for (const Json& item : json)
    list.push_back(value_of(item));
  return {std::move(list)};
}

struct Writer {
  Json operator()(InterfaceValue::None) const { return nullptr; }
  Json operator()(const InterfaceValue::Other& value) const { return {{"other", value.text}}; }
  Json operator()(const InterfaceList& list) const {
    Json array = Json::array();
    for (const InterfaceValue& item : list)
      array.push_back(std::visit(*this, item.value));
    return array;
  }
  template <typename T>
  Json operator()(const T& value) const {
    return value;
  }
};

}  // namespace

InterfaceEntries entries_of_json(const Json& json) {
  if (!json.is_object()) {
    throw BoundaryError(
        BoundaryFault::kWrongType,
        fmt::format("a CUDA array interface is a {}: expected an object", json.type_name()));
  }
  InterfaceEntries entries;
  for (const auto& [key, field] : kFields) {
    const auto found = json.find(key);
    if (found != json.end()) entries.*field = value_of(*found);
  }
  return entries;
}

Json json_of_entries(const InterfaceEntries& entries) {
  Json json = Json::object();
  for (const auto& [key, field] : kFields) {
    const std::optional<InterfaceValue>& value = entries.*field;
    if (value) json[key] = std::visit(Writer(), value->value);
  }
  return json;
}

}  // namespace cgtree
