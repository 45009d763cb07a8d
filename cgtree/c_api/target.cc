// Targets in C: each question reads the text.
#include <fmt/format.h>

#include "cgtree/c_api/convert.h"
#include "cgtree/c_api/status.h"
#include "interop/target/target.h"
#include "interop/target/target_kind.h"

namespace cgtree::capi {
namespace {

Target target_of_c(const char* text) {
  return Target(&required(text, "the target"));
}

std::string option_text(const Target& target, std::string_view name) {
  const TargetKind& kind = target.kind();
  if (kind.options.find(name) == nullptr) {
    std::string known;
    for (const OptionSpec& spec : kind.options.specs())
      known += (known.empty() ? "" : ", ") + spec.name;
    throw InvalidArgument(fmt::format("option '{}' of target kind '{}' is unknown; there are {}",
                                      name, kind.name, known));
  }
  const auto found = target.options().find(name);
  if (found == target.options().end()) return "";
  const auto* const text = std::get_if<std::string>(&found->second);
  return text != nullptr ? *text : to_json(found->second);
}

}  // namespace
}  // namespace cgtree::capi

using namespace cgtree;
using namespace cgtree::capi;

extern "C" {

cgt_status cgt_target_json(const char* target, char* buffer, size_t capacity, size_t* length) {
  return guarded([&] { write_text(target_of_c(target).to_json(), buffer, capacity, length); });
}

cgt_status cgt_target_of_device_json(cgt_device device, char* buffer, size_t capacity,
                                     size_t* length) {
  return guarded([&] {
    write_text(Target::from_device(device_of_c(device)).to_json(), buffer, capacity, length);
  });
}

cgt_status cgt_target_host_json(const char* target, char* buffer, size_t capacity, size_t* length) {
  return guarded([&] {
    const auto host = target_of_c(target).host();
    write_text(host ? host->to_json() : "", buffer, capacity, length);
  });
}

cgt_status cgt_target_device_type(const char* target, int32_t* type) {
  return guarded([&] {
    required(type, "the place for the type") =
        static_cast<std::int32_t>(target_of_c(target).device_type());
  });
}

cgt_status cgt_target_option(const char* target, const char* name, char* buffer, size_t capacity,
                             size_t* length) {
  return guarded([&] {
    required(name, "the option's name");
    write_text(option_text(target_of_c(target), name), buffer, capacity, length);
  });
}

cgt_status cgt_target_has_key(const char* target, const char* key, int32_t* has) {
  return guarded([&] {
    required(key, "the key");
    required(has, "the place for the answer") = target_of_c(target).has_key(key);
  });
}

cgt_status cgt_target_has_feature(const char* target, const char* feature, int32_t* has) {
  return guarded([&] {
    required(feature, "the feature");
    required(has, "the place for the answer") = target_of_c(target).has_feature(feature);
  });
}

cgt_status cgt_target_register_tag(const char* name, const char* json) {
  return guarded([&] {
    register_target_tag(&required(name, "the tag's name"), &required(json, "the tag's JSON"));
  });
}

}  // extern "C"
