// TargetKind: what kinds of target there are, and the options of each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "interop/device/device.h"
#include "interop/target/option_schema.h"

namespace cgtree {

struct TargetKind {
  std::string name;  // "cuda", "host"; of letters, digits, '_' and '-'
  DeviceType device_type = DeviceType::kHost;
  std::vector<std::string> default_keys;  // words by which passes choose, e.g. "gpu"
  OptionSchema options;
  // What the device tells of itself, for Target::from_device(); null: nothing.
  Options (*ask_device)(Device device) = nullptr;
};

// Null if there is none of this name. What is found lives as long as the process.
const TargetKind* find_target_kind(std::string_view name) noexcept;

// As above; throws InvalidArgument that lists the kinds there are.
const TargetKind& target_kind(std::string_view name);

// The names, ours first: "host", "cuda".
std::vector<std::string> list_target_kinds();

// Adds a kind. Throws InvalidArgument for a name that is taken or is none, and when there are 32
// kinds of users' already. Any thread.
void register_target_kind(TargetKind kind);

// The JSON behind a tag; empty if there is none of this name. Lives as long as the process.
std::string_view find_target_tag(std::string_view name) noexcept;

// The names, ours first.
std::vector<std::string> list_target_tags();

// Throws InvalidArgument for a name that is taken, is a kind's, or is none (a tag has a '/'), when
// `json` is no target, and when there are 64 tags of users' already. Any thread.
void register_target_tag(std::string_view name, std::string_view json);

}  // namespace cgtree
