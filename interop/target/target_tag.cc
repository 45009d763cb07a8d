// Our tags, and a table of users'.
#include "interop/target/target_tag.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "interop/target/append_table.h"
#include "interop/target/target.h"

namespace cgtree {
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
    throw InvalidArgument(fmt::format(
        "target tag '{}' cannot be registered: a tag is 'maker/model', without a space", name));
  }
  static_cast<void>(Target(json));  // throws what is wrong with it
  const auto object = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || !object.contains("kind")) {
    throw InvalidArgument(fmt::format(
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
          ? fmt::format("target tag '{}' is registered already", name)
          : fmt::format("target tag '{}' cannot be registered: there is room for {}", name,
                        kUserTags));
}

}  // namespace cgtree
