// TargetReader: makes the data of targets from text.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "interop/target/target.h"

namespace cgtree {

// Data is the contents of a Target.
struct Target::Data {
  const TargetKind* kind = nullptr;
  std::string tag;
  std::vector<std::string> keys;
  std::vector<std::string> features;  // sorted; each once
  Options options;
  std::shared_ptr<const Data> host;  // may be null
};

class TargetReader {
 public:
  using DataPtr = std::shared_ptr<const Target::Data>;

  // The form of the text decides whether it is JSON, a tag or a kind.
  static DataPtr read(std::string_view text);

  static constexpr int kMaxHosts = 4;               // how deep hosts nest
  static constexpr std::size_t kMaxText = 1 << 16;  // bytes

 private:
  static DataPtr read_text(std::string_view text, int depth);
  static DataPtr read_object(const nlohmann::json& object, int depth);
  static void read_entry(const std::string& name, const nlohmann::json& value, int depth,
                         Target::Data* data);
  static DataPtr read_host(const nlohmann::json& value, int depth);
};

}  // namespace cgtree
