// Targets as values. Text becomes JSON, and JSON becomes options, keys and features, which the
// schema of the kind checks.
#include "targets/target.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/format.h"

namespace cgtree {

namespace {

using nlohmann::json;
using DataPtr = std::shared_ptr<const TargetData>;

constexpr std::string_view kFeature = "feature.";
constexpr int kMaxHosts = 4;               // maximum depth of nested hosts
constexpr std::size_t kMaxText = 1 << 16;  // bytes

std::string text_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

[[noreturn]] void refuse(std::string_view option, std::string_view wanted, const json& given) {
  throw InvalidArgument(
      str_format("option '{}' is a {}, and was given {}", option, wanted, text_of(given)));
}

json parse(std::string_view text) {
  if (text.size() > kMaxText) {
    throw InvalidArgument(
        str_format("a target of {} bytes: at most {} are read", text.size(), kMaxText));
  }
  // The depth is checked while parsing, before anything is built.
  const auto bounded = [](int depth, json::parse_event_t, json&) {
    if (depth <= kMaxHosts + 2) return true;
    throw InvalidArgument("a target's JSON is nested too deeply");
  };
  try {
    json object = json::parse(text, bounded);
    if (object.is_object()) return object;
    throw InvalidArgument(str_format("a target is a JSON object, not {}", text_of(object)));
  } catch (const json::exception& error) {
    throw InvalidArgument(str_format("a target's text is no JSON: {}", error.what()));
  }
}

std::string string_of(std::string_view option, const json& value) {
  if (!value.is_string()) refuse(option, "string", value);
  return value.get<std::string>();
}

std::int64_t int_of(std::string_view option, const json& value) {
  const bool fits =
      value.is_number_integer() &&
      (!value.is_number_unsigned() || value.get<std::uint64_t>() <= std::uint64_t{INT64_MAX});
  if (!fits) refuse(option, "whole number of 64 bits, a string, a bool or a list", value);
  return value.get<std::int64_t>();
}

OptionValue list_of(std::string_view option, const json& value) {
  if (value.empty() || value[0].is_number()) {
    std::vector<std::int64_t> numbers;
    for (const json& element : value)
      numbers.push_back(int_of(option, element));
    return numbers;
  }
  std::vector<std::string> texts;
  for (const json& element : value)
    texts.push_back(string_of(option, element));
  return texts;
}

OptionValue value_of(std::string_view option, const json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) return list_of(option, value);
  if (!value.is_object()) return int_of(option, value);
  std::map<std::string, std::string, std::less<>> map;
  for (const auto& [key, text] : value.items())
    map.emplace(key, string_of(option, text));
  return map;
}

std::vector<std::string> strings_of(std::string_view option, const json& value) {
  if (!value.is_array()) refuse(option, "list of string", value);
  std::vector<std::string> texts;
  for (const json& element : value)
    texts.push_back(string_of(option, element));
  return texts;
}

void add_once(std::vector<std::string>* texts, const std::string& text) {
  if (std::ranges::find(*texts, text) == texts->end()) texts->push_back(text);
}

// Queries the device for options that are not given.
void ask_device(const TargetKind& kind, const json& id, Options* options) {
  const std::int64_t number = int_of("from_device", id);
  if (number < 0 || number > INT32_MAX) refuse("from_device", "number of a device", id);
  const Device device{kind.device_type, static_cast<std::int32_t>(number)};
  static_cast<void>(device_api(device));  // throws if it does not exist
  if (kind.ask_device == nullptr) return;
  for (auto& [name, value] : kind.ask_device(device))
    options->emplace(name, std::move(value));
}

// Returns the tag's object, updated by the entries beside the tag.
json with_tag(const json& object) {
  const std::string tag = string_of("tag", object["tag"]);
  const std::string_view text = find_target_tag(tag);
  if (text.empty()) {
    throw InvalidArgument(str_format("target tag '{}' is unknown; there are {}", tag,
                                     joined(list_target_tags(), ", ")));
  }
  json merged = json::parse(text);
  merged.update(object);
  return merged;
}

DataPtr read_object(const json& given, int depth);

// The form of the text decides whether it is JSON, a tag or a kind.
DataPtr read_text(std::string_view text, int depth) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) throw InvalidArgument("a target was asked of an empty text");
  if (text[begin] == '{') return read_object(parse(text), depth);
  if (!find_target_tag(text).empty()) {
    return read_object(json::object({{"tag", std::string(text)}}), depth);
  }
  if (text.find_first_of(" \t\r\n") != std::string_view::npos) {
    throw InvalidArgument(
        str_format("target '{}' is no kind, tag or JSON; options are written as JSON, e.g. {}",
                   text, R"({"kind": "cuda", "arch": "sm_90"})"));
  }
  return read_object(json::object({{"kind", std::string(text)}}), depth);
}

DataPtr read_host(const json& value, int depth) {
  if (depth > kMaxHosts) {
    throw InvalidArgument(
        str_format("a target's host has a host, and so on: at most {} are read", kMaxHosts));
  }
  if (value.is_object()) return read_object(value, depth);
  return read_text(string_of("host", value), depth);
}

void read_entry(const std::string& name, const json& value, int depth, TargetData* data) {
  if (name == "kind" || name == "from_device") return;
  if (name == "tag") {
    data->tag = string_of(name, value);
  } else if (name == "keys") {
    for (const std::string& key : strings_of(name, value))
      add_once(&data->keys, key);
  } else if (name == "host") {
    data->host = read_host(value, depth + 1);
  } else if (name.starts_with(kFeature)) {
    if (!value.is_boolean()) refuse(name, "bool", value);
    if (value.get<bool>()) data->features.push_back(name.substr(kFeature.size()));
  } else {
    data->options.emplace(name, value_of(name, value));
  }
}

DataPtr read_object(const json& given, int depth) {
  // The output of to_json() has both; it is complete, and the tag is only a name.
  const json object = given.contains("tag") && !given.contains("kind") ? with_tag(given) : given;
  if (!object.contains("kind")) {
    throw InvalidArgument(str_format("target {} has no \"kind\"; there are {}", text_of(object),
                                     joined(list_target_kinds(), ", ")));
  }
  auto data = std::make_shared<TargetData>();
  data->kind = &target_kind(string_of("kind", object["kind"]));
  for (const auto& [name, value] : object.items())
    read_entry(name, value, depth, data.get());
  Options& options = data->options;
  if (object.contains("from_device")) ask_device(*data->kind, object["from_device"], &options);
  try {
    options = data->kind->options.resolve(std::move(options));
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(str_format("target of kind '{}': {}", data->kind->name, error.message()));
  }
  if (!object.contains("keys")) data->keys = data->kind->default_keys;
  if (const auto device = options.find("device"); device != options.end()) {
    if (const auto* text = std::get_if<std::string>(&device->second)) add_once(&data->keys, *text);
  }
  return data;
}

json json_of(const Target& target) {
  json object;
  object["kind"] = target.kind().name;
  if (!target.tag().empty()) object["tag"] = target.tag();
  object["keys"] = std::vector<std::string>(target.keys().begin(), target.keys().end());
  for (const auto& [name, value] : target.options())
    object[name] = std::visit([](const auto& v) { return json(v); }, value);
  for (const std::string& feature : target.features())
    object["feature." + feature] = true;
  if (const auto host = target.host()) object["host"] = json_of(*host);
  return object;
}

std::string kind_for(DeviceType type) {
  for (const std::string& name : list_target_kinds()) {
    if (target_kind(name).device_type == type) return name;
  }
  throw InvalidArgument(str_format("there is no kind of target for {}; there are {}",
                                   to_string(Device{type, 0}), joined(list_target_kinds(), ", ")));
}

}  // namespace

Target::Target(std::string_view text) : data_(read_text(text, 0)) {
}

Target Target::from_device(Device device) {
  const json object = {{"kind", kind_for(device.type)}, {"from_device", device.id}};
  return Target(object.dump());
}

const OptionValue* Target::find(std::string_view name, OptionType type) const {
  const OptionSpec* const spec = kind().options.find(name);
  if (spec == nullptr || spec->type != type) {
    throw InvalidArgument(
        str_format("option '{}' of target kind '{}' {}, and was asked for as {}", name, kind().name,
                   spec == nullptr ? std::string("is unknown")
                                   : str_format("is of type {}", cgtree::name(spec->type)),
                   cgtree::name(type)));
  }
  const auto found = data_->options.find(name);
  return found == data_->options.end() ? nullptr : &found->second;
}

std::optional<Target> Target::host() const {
  return data_->host == nullptr ? std::nullopt : std::optional<Target>(Target(data_->host));
}

std::string Target::to_json() const {
  return text_of(json_of(*this));
}

}  // namespace cgtree
