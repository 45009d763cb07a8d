// Report: the results of a run, as a table for readers and as JSON for programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/serve/measure.h"
#include "benchmarks/serve/options.h"

namespace cgtree::serve {

using TokenLists = std::vector<std::vector<std::int32_t>>;  // by request

// The place where two modes disagree about a token.
struct Difference {
  std::size_t request = 0;
  std::size_t index = 0;              // of the token among the request's generated ones
  std::optional<std::int32_t> eager;  // null: the list ends before it
  std::optional<std::int32_t> cgtree;
};

// Returns the first request and token at which the lists differ.
std::optional<Difference> find_difference(const TokenLists& eager, const TokenLists& cgtree);

std::string to_string(const Difference& difference);

struct DeviceFacts {
  Device device;
  std::string name;                 // empty: unknown
  std::int64_t driver_version = 0;  // as CUDA counts; 0: no driver
  std::string driver;               // its release, such as "580.159.04"; empty: no driver
};

DeviceFacts device_facts(Device device);

// The results of serving through cgtree under one policy.
struct PolicyRun {
  Policy policy = Policy::kSuggested;
  std::int64_t budget = 0;  // 0: no limit
  Served served;
  std::optional<Difference> difference;  // from the eager run; null also without an eager run
};

struct Report {
  DeviceFacts device;
  Options options;
  std::size_t requests = 0;
  std::optional<Served> eager;
  std::vector<PolicyRun> runs;  // empty if only the eager mode was served

  // The results of the last policy, or null.
  const Served* cgtree() const { return runs.empty() ? nullptr : &runs.back().served; }
  // The results that represent the run. Requires: something was served.
  const Served& main() const { return runs.empty() ? *eager : runs.back().served; }
  // Returns the first run that differs from the eager one, or null.
  const PolicyRun* differing() const;
};

std::string to_table(const Report& report);
nlohmann::ordered_json to_json(const Report& report);

// Throws InvalidArgument with the reason if `path` cannot be written. Leaves no file behind.
void expect_writable(const std::filesystem::path& path);

// Writes a temporary file beside `path` and renames it, so that the file is written whole or not at
// all. Throws InvalidArgument, and does not change `path`.
void write_whole(const std::filesystem::path& path, std::string_view text);
}  // namespace cgtree::serve
