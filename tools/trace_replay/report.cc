// Formats and writes the results of a replay.
#include "tools/trace_replay/report.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace cgtree::tools {
namespace {

double mib(std::size_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

}  // namespace

std::string to_text(const Trace& trace, const ReplayResult& result) {
  return fmt::format(
      "operations           {:12}\n"
      "failed in the log    {:12}\n"
      "peak live            {:12.1f} MiB\n"
      "peak reserved        {:12.1f} MiB, {:.3f} x live, {} segments\n"
      "utilization          {:12.3f}\n"
      "fragmentation        {:12.3f} where most was live\n"
      "allocate and free    {:12.1f} ns\n"
      "runs of pages unmapped{:11} in the first replay, {} in those that were timed\n",
      result.operations, trace.failures, mib(result.peak_live_bytes),
      mib(result.peak_reserved_bytes), result.utilization > 0 ? 1 / result.utilization : 0,
      result.segments, result.utilization, result.fragmentation, result.ns_per_pair,
      result.first_unmaps, result.later_unmaps);
}

std::string to_json(const Trace& trace, const ReplayResult& result, const Run& run) {
  const nlohmann::ordered_json json = {
      {"trace", run.trace},
      {"device", run.device},
      {"growth", run.growth},
      {"operations", result.operations},
      {"failed_allocations", trace.failures},
      {"peak_live_bytes", result.peak_live_bytes},
      {"peak_allocated_bytes", result.peak_allocated_bytes},
      {"peak_reserved_bytes", result.peak_reserved_bytes},
      {"segments", result.segments},
      {"segment_requests", result.segment_requests},
      {"first_unmaps", result.first_unmaps},
      {"later_unmaps", result.later_unmaps},
      {"utilization", result.utilization},
      {"fragmentation", result.fragmentation},
      {"ns_per_pair", result.ns_per_pair},
  };
  return json.dump(2) + "\n";
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) {
    throw InvalidArgument(fmt::format("cannot write '{}': {}", path, std::strerror(errno)));
  }
}

}  // namespace cgtree::tools
