// Target: the machine that code is generated for: a kind, options, keys, and a target for the host
// side.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "interop/device/device.h"
#include "targets/target_kind.h"

namespace cgtree {

// The contents of a Target.
struct TargetData {
  const TargetKind* kind = nullptr;
  std::string tag;
  std::vector<std::string> keys;
  std::vector<std::string> features;  // sorted; each once
  Options options;
  std::shared_ptr<const TargetData> host;  // may be null
};

// A Target is an immutable value. Code generators query it, never the device, which may be on
// another machine. The functions that make a target throw InvalidArgument that names the option and
// lists the known ones.
//
// Thread safety: any thread.
class Target {
 public:
  // Makes a target from the name of a kind ("cuda"), a tag ("nvidia/h100"), or JSON:
  //
  //   {"kind": "cuda", "arch": "sm_90", "keys": ["mine"], "host": {"kind": "host"}}
  //
  // {"tag": ...} is the JSON of a tag; the other entries replace those of the tag. "from_device": 0
  // queries that device for options that are not given. "feature.x": true is a feature.
  explicit Target(std::string_view text);

  // Makes the target that describes a device, which must exist. The kind is the first for its type.
  static Target from_device(Device device);

  // The next two are properties of the kind, which lives as long as the process.
  const TargetKind& kind() const noexcept { return *data_->kind; }
  DeviceType device_type() const noexcept { return kind().device_type; }
  const std::string& tag() const noexcept { return data_->tag; }  // empty if made without a tag
  // Returns the given keys, else those of the kind; followed by the option "device"; each once.
  std::span<const std::string> keys() const noexcept { return data_->keys; }
  // Returns the features that are true, sorted.
  std::span<const std::string> features() const noexcept { return data_->features; }
  const Options& options() const noexcept { return data_->options; }  // with defaults

  // Returns nothing if the option was not given and has no default. Throws InvalidArgument for an
  // option that the kind lacks, or of another type.
  template <typename T>
  std::optional<T> option(std::string_view name) const {
    const OptionValue* const value = find(name, type_of(OptionValue(T())));
    return value == nullptr ? std::nullopt : std::optional<T>(std::get<T>(*value));
  }

  // Returns the target for the host side; nothing if there is none.
  std::optional<Target> host() const;

  // Returns text that makes an equal target.
  std::string to_json() const;
  // Returns whether both have the same JSON, however they were made.
  bool operator==(const Target& other) const { return to_json() == other.to_json(); }

 private:
  explicit Target(std::shared_ptr<const TargetData> data) : data_(std::move(data)) {}
  const OptionValue* find(std::string_view name, OptionType type) const;

  std::shared_ptr<const TargetData> data_;  // never null
};

}  // namespace cgtree
