// What a Target holds.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "interop/target/target.h"

namespace cgtree {

struct Target::Data {
  const TargetKind* kind = nullptr;
  std::string tag;
  std::vector<std::string> keys;
  std::vector<std::string> features;  // sorted; each once
  Options options;
  std::shared_ptr<const Data> host;  // may be null
};

}  // namespace cgtree
