// Report: everything a run found out; as a table for people and as JSON for programs.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

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

// Serving through cgtree under one policy.
struct PolicyRun {
  Policy policy = Policy::kSuggested;
  std::int64_t budget = 0;  // 0: no limit
  Served served;
  std::optional<Difference> difference;  // to the eager run; none too if there was no such run
};

struct Report {
  DeviceFacts device;
  Options options;
  std::size_t requests = 0;
  std::optional<Served> eager;
  std::vector<PolicyRun> runs;  // none if only the eager mode was served

  // The last policy's, or null.
  const Served* cgtree() const { return runs.empty() ? nullptr : &runs.back().served; }
  // What speaks for the run. Requires that something was served.
  const Served& main() const { return runs.empty() ? *eager : runs.back().served; }
  // The first run that differs from the eager one, or null.
  const PolicyRun* differing() const;
};

std::string to_table(const Report& report);
nlohmann::ordered_json to_json(const Report& report);

}  // namespace cgtree::serve
