// Statistics and reports as JSON. Each field of the statistics is a key of the same name; "skips"
// and "unverified" have a key for each reason that occurred.
#include "cgtree/c_api/convert.h"

#include <nlohmann/json.hpp>

#include "cgtree/explanation.h"

namespace cgtree::capi {
namespace {

nlohmann::ordered_json calls(const FunctionStats& stats) {
  nlohmann::ordered_json skips = nlohmann::ordered_json::object();
  for (int i = 0; i < kSkipReasonCount; ++i) {
    const std::uint64_t count = stats.skips[static_cast<std::size_t>(i)];
    if (count > 0) skips[std::string(name(static_cast<SkipReason>(i)))] = count;
  }
  nlohmann::ordered_json unverified = nlohmann::ordered_json::object();
  for (int i = 0; i < kUnverifiedReasonCount; ++i) {
    const std::uint64_t count = stats.unverified[static_cast<std::size_t>(i)];
    if (count > 0) unverified[std::string(name(static_cast<UnverifiedReason>(i)))] = count;
  }
  return {{"calls", stats.calls},
          {"warm_ups", stats.warm_ups},
          {"recordings", stats.recordings},
          {"replays", stats.replays},
          {"failures", stats.failures},
          {"evictions", stats.evictions},
          {"kept_recordings", stats.kept_recordings},
          {"frozen", stats.frozen},
          {"verified", stats.verified},
          {"differed", stats.differed},
          {"unverified", unverified},
          {"skipped", stats.skipped()},
          {"skips", skips}};
}

nlohmann::ordered_json entry_of(const Precaptured& entry) {
  nlohmann::ordered_json sizes = nlohmann::ordered_json::object();
  for (const CallSizes::Entry& size : entry.sizes.entries())
    sizes[size.axis] = size.size;
  constexpr const char* kOutcomes[] = {"recorded", "already_there", "left_out", "predicted"};
  nlohmann::ordered_json json = {{"sizes", sizes},
                                 {"outcome", kOutcomes[static_cast<int>(entry.outcome)]}};
  if (!entry.sizes.key().empty()) json["key"] = entry.sizes.key().text();
  if (!entry.why.empty()) json["why"] = entry.why;
  json["bytes"] = entry.bytes;
  json["graph_bytes"] = entry.graph_bytes;
  json["microseconds"] = entry.time.count();
  return json;
}

}  // namespace

std::string to_json(const FunctionStats& stats) {
  return calls(stats).dump();
}

std::string to_json(const ContextStats& stats) {
  nlohmann::ordered_json json = calls(stats);
  json["generations"] = stats.generations;
  json["restores"] = stats.restores;
  json["root_patches"] = stats.root_patches;
  json["graph_bytes"] = stats.graph_bytes;
  json["recording_microseconds"] = stats.recording_time.count();
  json["live_outputs"] = stats.live_outputs;
  json["pool_reserved_bytes"] = stats.pool_reserved_bytes;
  json["pool_live_bytes"] = stats.pool_live_bytes;
  return json.dump();
}

std::string to_json(std::span<const SizeCount> histogram) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const SizeCount& entry : histogram)
    json.push_back({{"size", entry.size}, {"count", entry.count}});
  return json.dump();
}

std::string to_json(std::span<const Buckets> buckets) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const Buckets& axis : buckets)
    json[axis.axis] = axis.sizes;
  return json.dump();
}

std::string to_json(const Precaptured& entry) {
  return entry_of(entry).dump();
}

std::string to_json(const PrecaptureReport& report) {
  nlohmann::ordered_json entries = nlohmann::ordered_json::array();
  for (const Precaptured& entry : report.entries)
    entries.push_back(entry_of(entry));
  return nlohmann::ordered_json{{"entries", entries},
                                {"bytes", report.bytes},
                                {"graph_bytes", report.graph_bytes},
                                {"microseconds", report.time.count()}}
      .dump();
}

}  // namespace cgtree::capi
