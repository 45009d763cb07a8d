// Target: what code is generated for: a kind, its options, keys, and a target for the host side.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "interop/device/device.h"
#include "interop/target/target_kind.h"

namespace cgtree {

// An immutable value. Code generators ask it, never the device, which may be elsewhere. Errors of
// making one are InvalidArgument; they name the option, and list the known ones.
//
// Threads: any.
class Target {
 public:
  // From the name of a kind ("cuda"), a tag ("nvidia/h100"), or JSON:
  //
  //   {"kind": "cuda", "arch": "sm_90", "keys": ["mine"], "host": {"kind": "host"}}
  //
  // {"tag": ...} is a tag's JSON with what stands beside it in place of the tag's own.
  // "from_device": 0 asks that device for what is not given. "feature.x": true is a feature.
  explicit Target(std::string_view text);

  // What the device tells of itself; it must exist. The kind is the first one for its type.
  static Target from_device(Device device);

  const TargetKind& kind() const noexcept;
  DeviceType device_type() const noexcept { return kind().device_type; }
  const std::string& tag() const noexcept;  // empty: made without one
  // Given ones, else the kind's; then the option "device"; each once.
  std::span<const std::string> keys() const noexcept;
  bool has_key(std::string_view key) const noexcept;
  bool has_feature(std::string_view name) const noexcept;
  std::span<const std::string> features() const noexcept;  // that are true, sorted
  const Options& options() const noexcept;                 // with defaults

  // Nothing if it was not given and has no default. Throws InvalidArgument for an option the kind
  // does not have, or of another type.
  template <typename T>
  std::optional<T> option(std::string_view name) const {
    const OptionValue* const value = find(name, type_of(OptionValue(T())));
    return value == nullptr ? std::nullopt : std::optional<T>(std::get<T>(*value));
  }

  std::optional<Target> host() const;
  Target with_host(const Target& host) const;
  Target without_host() const;

  // Target(to_json()) == *this.
  std::string to_json() const;
  bool operator==(const Target& other) const { return to_json() == other.to_json(); }

  // The innermost TargetScope's of this thread. Throws InvalidArgument when there is none.
  static Target current();
  static std::optional<Target> current_or_none() noexcept;

 private:
  friend class TargetScope;
  friend class TargetReader;
  struct Data;

  explicit Target(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
  const OptionValue* find(std::string_view name, OptionType type) const;

  std::shared_ptr<const Data> data_;  // never null
};

// Makes `target` current on this thread until the scope ends. Scopes nest.
class TargetScope {
 public:
  explicit TargetScope(Target target) noexcept;
  ~TargetScope();
  TargetScope(const TargetScope&) = delete;
  TargetScope& operator=(const TargetScope&) = delete;

 private:
  std::shared_ptr<const Target::Data> previous_;
};

}  // namespace cgtree
