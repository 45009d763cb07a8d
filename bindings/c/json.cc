// Statistics and reports as JSON. Each field of the statistics is a key of the same name; "skips"
// and "unverified" have a key for each reason that occurred.
#include "bindings/c/convert.h"

#include <nlohmann/json.hpp>

#include "cgtree/values/explanation.h"
#include "cgtree/values/stats_table.h"
#include "extensions/verify/verification.h"

namespace cgtree::capi {
namespace {

nlohmann::ordered_json calls(const FunctionStats& stats) {
  nlohmann::ordered_json all;
  for (const auto& field : kFunctionStats)
    all[std::string(field.name)] = stats.*field.value;
  nlohmann::ordered_json& unverified = all["unverified"] = nlohmann::ordered_json::object();
  for_each_unverified(stats, [&](UnverifiedReason reason, std::uint64_t count) {
    unverified[std::string(name(reason))] = count;
  });
  all["skipped"] = stats.skipped();
  nlohmann::ordered_json& skips = all["skips"] = nlohmann::ordered_json::object();
  for_each_skip(stats, [&](SkipReason reason, std::uint64_t count) {
    skips[std::string(name(reason))] = count;
  });
  if (!stats.last_failure.empty()) all["last_failure"] = stats.last_failure;
  return all;
}

nlohmann::ordered_json entry_of(const Precaptured& entry) {
  nlohmann::ordered_json sizes = nlohmann::ordered_json::object();
  for (const auto& [axis, size] : entry.sizes.entries())
    sizes[axis] = size;
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
  // The text of a step's exception may not be UTF-8.
  return calls(stats).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string to_json(const ContextStats& stats) {
  nlohmann::ordered_json json = calls(stats);
  for (const auto& field : kContextStats)
    json[std::string(field.name)] = stats.*field.value;
  json["recording_microseconds"] = stats.recording_time.count();
  return json.dump();
}

std::string to_json(const std::map<std::int64_t, std::uint64_t>& histogram) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const auto& [size, count] : histogram)
    json.push_back({{"size", size}, {"count", count}});
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
