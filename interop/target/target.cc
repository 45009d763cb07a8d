// Targets as values, and the current target of a thread.
#include "interop/target/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "interop/device/device.h"
#include "interop/target/target_reader.h"

namespace cgtree {
namespace {

nlohmann::json json_of(const Target& target) {
  nlohmann::json object;
  object["kind"] = target.kind().name;
  if (!target.tag().empty()) object["tag"] = target.tag();
  object["keys"] = std::vector<std::string>(target.keys().begin(), target.keys().end());
  for (const auto& [name, value] : target.options())
    object[name] = std::visit([](const auto& v) { return nlohmann::json(v); }, value);
  for (const std::string& feature : target.features())
    object["feature." + feature] = true;
  if (const auto host = target.host()) object["host"] = json_of(*host);
  return object;
}

std::string kind_for(DeviceType type) {
  for (const std::string& name : list_target_kinds()) {
    if (target_kind(name).device_type == type) return name;
  }
  throw InvalidArgument(fmt::format("there is no kind of target for {}; there are {}",
                                    to_string(Device{type, 0}),
                                    fmt::join(list_target_kinds(), ", ")));
}

}  // namespace

Target::Target(std::string_view text) : data_(TargetReader::read(text)) {
}

Target Target::from_device(Device device) {
  const nlohmann::json object = {{"kind", kind_for(device.type)}, {"from_device", device.id}};
  return Target(object.dump());
}

const TargetKind& Target::kind() const noexcept {
  return *data_->kind;
}
const std::string& Target::tag() const noexcept {
  return data_->tag;
}
std::span<const std::string> Target::keys() const noexcept {
  return data_->keys;
}
bool Target::has_key(std::string_view key) const noexcept {
  return std::ranges::find(data_->keys, key) != data_->keys.end();
}
bool Target::has_feature(std::string_view name) const noexcept {
  return std::ranges::find(data_->features, name) != data_->features.end();
}
std::span<const std::string> Target::features() const noexcept {
  return data_->features;
}
const Options& Target::options() const noexcept {
  return data_->options;
}

const OptionValue* Target::find(std::string_view name, OptionType type) const {
  const OptionSpec* const spec = kind().options.find(name);
  if (spec == nullptr || spec->type != type) {
    throw InvalidArgument(fmt::format(
        "option '{}' of target kind '{}' {}, and was asked for as {}", name, kind().name,
        spec == nullptr ? std::string("is unknown")
                        : fmt::format("is of type {}", cgtree::name(spec->type)),
        cgtree::name(type)));
  }
  const auto found = data_->options.find(name);
  return found == data_->options.end() ? nullptr : &found->second;
}

std::optional<Target> Target::host() const {
  return data_->host == nullptr ? std::nullopt : std::optional<Target>(Target(data_->host));
}

Target Target::with_host(const Target& host) const {
  auto data = std::make_shared<Data>(*data_);
  data->host = host.data_;
  // The target is parsed again, which limits how deep hosts nest.
  return Target(Target(std::shared_ptr<const Data>(std::move(data))).to_json());
}

Target Target::without_host() const {
  auto data = std::make_shared<Data>(*data_);
  data->host = nullptr;
  return Target(std::shared_ptr<const Data>(std::move(data)));
}

std::string Target::to_json() const {
  return json_of(*this).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

namespace {

// It is per thread, as current_stream() is: a code generator finds its target without a parameter.
thread_local std::shared_ptr<const void> t_current;

}  // namespace

Target Target::current() {
  if (auto target = current_or_none()) return *std::move(target);
  throw InvalidArgument("no target is current on this thread: open a TargetScope");
}

std::optional<Target> Target::current_or_none() noexcept {
  if (t_current == nullptr) return std::nullopt;
  return Target(std::static_pointer_cast<const Data>(t_current));
}

TargetScope::TargetScope(Target target) noexcept
    : previous_(std::static_pointer_cast<const Target::Data>(t_current)) {
  t_current = std::move(target.data_);
}

TargetScope::~TargetScope() {
  t_current = std::move(previous_);
}

}  // namespace cgtree
