// TargetKind: a kind of target with its options; and tags, which are names for targets such as
// "nvidia/h100".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "interop/device/device.h"
#include "targets/option_schema.h"

namespace cgtree {

struct TargetKind {
  std::string name;  // "cuda", "host"; letters, digits, '_' and '-'
  DeviceType device_type = DeviceType::kHost;
  std::vector<std::string> default_keys;  // words by which passes select a target, e.g. "gpu"
  OptionSchema options;
  // Returns the options that describe a device, for Target::from_device(); null: there are none.
  Options (*ask_device)(Device device) = nullptr;
};

// Returns null if the name is unknown. The kind lives as long as the process.
const TargetKind* find_target_kind(std::string_view name) noexcept;

// As above, but throws InvalidArgument that lists the known kinds.
const TargetKind& target_kind(std::string_view name);

// Returns the names, the built-in ones first: "host", "cuda".
std::vector<std::string> list_target_kinds();

// Adds a kind. Throws InvalidArgument for a duplicate or invalid name, and if users have registered
// 32 already. Thread safety: any thread.
void register_target_kind(TargetKind kind);

// Returns the JSON of a tag; empty if the tag is unknown. The text lives as long as the process.
std::string_view find_target_tag(std::string_view name) noexcept;

// Returns the names of the tags, the built-in ones first.
std::vector<std::string> list_target_tags();

// Adds a tag. Throws InvalidArgument for a name that is taken, is that of a kind, or is invalid (a
// tag has a '/'), if `json` is not a target, and if users have registered 64 already. Thread
// safety: any thread.
void register_target_tag(std::string_view name, std::string_view json);

}  // namespace cgtree
