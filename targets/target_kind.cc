// The built-in kinds and tags, and the tables of registered ones.
#include "targets/target_kind.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/format.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"
#include "targets/append_table.h"
#include "targets/target.h"

namespace cgtree {
namespace {

constexpr int kUserKinds = 32;
constinit AppendTable<TargetKind, kUserKinds> user_kinds;

std::string must_be_positive(const OptionValue& value) {
  return std::get<std::int64_t>(value) > 0 ? "" : "must be positive";
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// "sm_90", "sm_90a", "compute_75".
std::string must_be_an_architecture(const OptionValue& value) {
  std::string_view text = std::get<std::string>(value);
  for (const std::string_view prefix : {"sm_", "compute_"}) {
    if (!text.starts_with(prefix)) continue;
    text.remove_prefix(prefix.size());
    if (!text.empty() && (text.back() == 'a' || text.back() == 'f')) text.remove_suffix(1);
    if (text.size() >= 2 && text.size() <= 3 && std::ranges::all_of(text, &is_digit)) return "";
  }
  return "must be sm_NN (code for that GPU) or compute_NN (PTX, for it and later ones)";
}

void add_common_options(OptionSchema& options) {
  options.add({"device", OptionType::kString, "a name of the device; becomes a key"})
      .add({"model", OptionType::kString, "what the device is sold as"})
      .add({"libs", OptionType::kStrings, "libraries that may be used"});
}

std::optional<OptionValue> value_of(Device device, DeviceAttribute attribute) {
  AttributeValue value = device_api(device).attribute(device.id, attribute);
  if (const auto* number = std::get_if<std::int64_t>(&value)) return OptionValue(*number);
  if (auto* text = std::get_if<std::string>(&value)) return OptionValue(std::move(*text));
  return std::nullopt;
}

void ask(Options& options, const char* name, Device device, DeviceAttribute attribute) {
  if (const auto value = value_of(device, attribute)) options.emplace(name, *value);
}

// Maps "9.0" to "sm_90a": from 9.0 on, code for exactly this GPU may use all of its features.
// Source: CUDA C++ Programming Guide, Feature Set Compiler Targets.
std::string architecture_of(const std::string& capability) {
  std::string digits = capability;
  std::erase(digits, '.');
  return "sm_" + digits + (digits.size() > 2 || digits >= "90" ? "a" : "");
}

Options ask_cuda(Device device) {
  Options options;
  if (const auto capability = value_of(device, DeviceAttribute::kComputeCapability)) {
    options.emplace("arch", architecture_of(std::get<std::string>(*capability)));
  }
  ask(options, "model", device, DeviceAttribute::kName);
  ask(options, "max_num_threads", device, DeviceAttribute::kMaxThreadsPerBlock);
  ask(options, "max_threads_per_block", device, DeviceAttribute::kMaxThreadsPerBlock);
  ask(options, "thread_warp_size", device, DeviceAttribute::kWarpSize);
  ask(options, "max_shared_memory_per_block", device, DeviceAttribute::kMaxSharedMemoryPerBlock);
  ask(options, "registers_per_block", device, DeviceAttribute::kMaxRegistersPerBlock);
  ask(options, "l2_cache_size_bytes", device, DeviceAttribute::kL2CacheBytes);
  return options;
}

// The names of the options are TVM's. The default is PTX for the oldest GPU that CUDA 13 supports,
// which runs on all of them.
TargetKind make_cuda() {
  TargetKind kind{"cuda", DeviceType::kCuda, {"cuda", "gpu"}, {}, &ask_cuda};
  add_common_options(kind.options);
  const auto number = [&](const char* name, const char* help,
                          std::optional<OptionValue> value = std::nullopt) {
    kind.options.add({name, OptionType::kInt, help, std::move(value), &must_be_positive});
  };
  kind.options.add({"arch", OptionType::kString, "the architecture to generate code for",
                    OptionValue(std::string("compute_75")), &must_be_an_architecture});
  number("max_num_threads", "threads of a block", OptionValue(std::int64_t{1024}));
  number("max_threads_per_block", "threads");
  number("thread_warp_size", "threads", OptionValue(std::int64_t{32}));
  number("max_shared_memory_per_block", "bytes");
  number("registers_per_block", "registers of 32 bits");
  number("l2_cache_size_bytes", "bytes");
  kind.options.add({"fast_math", OptionType::kBool, "trade accuracy for speed, as nvcc does",
                    OptionValue(false)});
  kind.options.add({"nvrtc_options", OptionType::kStrings, "more options for the compiler"});
  return kind;
}

Options ask_host(Device device) {
  Options options;
  ask(options, "num_cores", device, DeviceAttribute::kMultiProcessors);
  return options;
}

TargetKind make_host() {
  TargetKind kind{"host", DeviceType::kHost, {"host", "cpu"}, {}, &ask_host};
  add_common_options(kind.options);
  kind.options.add({"mcpu", OptionType::kString, "name of the processor"});
  kind.options.add({"num_cores", OptionType::kInt, "cores", std::nullopt, &must_be_positive});
  return kind;
}

const TargetKind* our_kind(std::string_view name) noexcept {
  static const auto* const host = new TargetKind(make_host());
  static const auto* const cuda = new TargetKind(make_cuda());
  if (name == host->name) return host;
  return name == cuda->name ? cuda : nullptr;
}

bool is_name(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
  });
}

}  // namespace

const TargetKind* find_target_kind(std::string_view name) noexcept {
  const TargetKind* const ours = our_kind(name);
  return ours != nullptr ? ours : user_kinds.find(name);
}

const TargetKind& target_kind(std::string_view name) {
  if (const TargetKind* const kind = find_target_kind(name)) return *kind;
  throw InvalidArgument(str_format("target kind '{}' is unknown; there are {}", name,
                                   joined(list_target_kinds(), ", ")));
}

std::vector<std::string> list_target_kinds() {
  std::vector<std::string> names = {"host", "cuda"};
  user_kinds.for_each([&](const TargetKind& kind) { names.push_back(kind.name); });
  return names;
}

void register_target_kind(TargetKind kind) {
  using Added = decltype(user_kinds)::Added;
  if (!is_name(kind.name)) {
    throw InvalidArgument(str_format(
        "target kind '{}' cannot be registered: use letters, digits, '_' and '-'", kind.name));
  }
  const std::string name = kind.name;
  const Added added = our_kind(name) != nullptr ? Added::kTaken : user_kinds.add(std::move(kind));
  if (added == Added::kYes) return;
  throw InvalidArgument(added == Added::kTaken
                            ? str_format("target kind '{}' is registered already", name)
                            : str_format("target kind '{}' cannot be registered: there is room "
                                         "for {}",
                                         name, kUserKinds));
}

namespace {

struct Tag {
  std::string name;
  std::string json;
};

constexpr int kUserTags = 64;
constinit AppendTable<Tag, kUserTags> user_tags;

struct OurTag {
  std::string_view name;
  std::string_view json;
};

// Source of the numbers: CUDA C++ Programming Guide, Technical Specifications per Compute
// Capability; sizes of the L2 cache: NVIDIA's data sheets.
constexpr OurTag kOurTags[] = {
    {"nvidia/t4",
     R"({"kind": "cuda", "model": "t4", "arch": "sm_75", "max_num_threads": 1024,
         "max_threads_per_block": 1024, "max_shared_memory_per_block": 49152,
         "registers_per_block": 65536, "l2_cache_size_bytes": 4194304})"},
    {"nvidia/a100",
     R"({"kind": "cuda", "model": "a100", "arch": "sm_80", "max_num_threads": 1024,
         "max_threads_per_block": 1024, "max_shared_memory_per_block": 49152,
         "registers_per_block": 65536, "l2_cache_size_bytes": 41943040})"},
    {"nvidia/h100",
     R"({"kind": "cuda", "model": "h100", "arch": "sm_90a", "max_num_threads": 1024,
         "max_threads_per_block": 1024, "max_shared_memory_per_block": 49152,
         "registers_per_block": 65536, "l2_cache_size_bytes": 52428800})"},
    {"nvidia/h200",
     R"({"kind": "cuda", "model": "h200", "arch": "sm_90a", "max_num_threads": 1024,
         "max_threads_per_block": 1024, "max_shared_memory_per_block": 49152,
         "registers_per_block": 65536, "l2_cache_size_bytes": 52428800})"},
};

}  // namespace

std::string_view find_target_tag(std::string_view name) noexcept {
  for (const OurTag& tag : kOurTags) {
    if (tag.name == name) return tag.json;
  }
  const Tag* const tag = user_tags.find(name);
  return tag == nullptr ? std::string_view() : std::string_view(tag->json);
}

std::vector<std::string> list_target_tags() {
  std::vector<std::string> names;
  for (const OurTag& tag : kOurTags)
    names.emplace_back(tag.name);
  user_tags.for_each([&](const Tag& tag) { names.push_back(tag.name); });
  return names;
}

void register_target_tag(std::string_view name, std::string_view json) {
  if (name.find('/') == std::string_view::npos || name.find(' ') != std::string_view::npos) {
    throw InvalidArgument(str_format(
        "target tag '{}' cannot be registered: a tag is 'maker/model', without a space", name));
  }
  static_cast<void>(Target(json));  // throws its error
  const auto object = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || !object.contains("kind")) {
    throw InvalidArgument(str_format(
        "target tag '{}' cannot be registered: it stands for JSON with a \"kind\", not for {}",
        name, json));
  }
  using Added = decltype(user_tags)::Added;
  const Added added = find_target_tag(name).empty()
                          ? user_tags.add({std::string(name), std::string(json)})
                          : Added::kTaken;
  if (added == Added::kYes) return;
  throw InvalidArgument(
      added == Added::kTaken
          ? str_format("target tag '{}' is registered already", name)
          : str_format("target tag '{}' cannot be registered: there is room for {}", name,
                       kUserTags));
}

}  // namespace cgtree
