// Report: everything a run found out; as a table for people and as JSON for programs.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "examples/serve/difference.h"
#include "examples/serve/options.h"
#include "examples/serve/server.h"

namespace cgtree::serve {

struct DeviceFacts {
  Device device;
  std::string name;                 // empty: the device does not tell
  std::int64_t driver_version = 0;  // as CUDA counts; 0: no driver
  std::string driver;               // its release, e.g. "580.159.04"; empty: no driver
};

DeviceFacts device_facts(Device device);

struct Report {
  DeviceFacts device;
  Options options;
  std::size_t requests = 0;
  std::optional<Served> eager;
  std::optional<Served> cgtree;
  std::optional<Difference> difference;  // none too if only one mode was served

  // The mode that speaks for the run. Requires that one was served.
  const Served& main() const { return cgtree ? *cgtree : *eager; }
};

std::string to_table(const Report& report);
nlohmann::ordered_json to_json(const Report& report);

}  // namespace cgtree::serve
