// Lays out the table and the JSON of a run.
#include "examples/serve/report.h"

#include <fmt/format.h>

#include <filesystem>
#include <iterator>
#include <variant>

#include "interop/registry.h"

namespace cgtree::serve {
namespace {

using Json = nlohmann::ordered_json;

// A row of the table; modes that were not served stay empty.
template <typename Say>
void add_row(std::string& table, const Report& report, std::string_view label, Say say) {
  const auto cell = [&say](const std::optional<Served>& served) {
    return served ? say(*served) : std::string();
  };
  fmt::format_to(std::back_inserter(table), "{:<24}{:>14}{:>14}\n", label, cell(report.eager),
                 cell(report.cgtree));
}

void add_skips(std::string& table, const Report& report) {
  for (int i = 0; i < kSkipReasonCount; ++i) {
    const auto count = [i](const Served& served) {
      return served.stats.skips[static_cast<std::size_t>(i)];
    };
    if ((!report.eager || count(*report.eager) == 0) &&
        (!report.cgtree || count(*report.cgtree) == 0)) {
      continue;
    }
    add_row(table, report, fmt::format("skips: {}", name(static_cast<SkipReason>(i))),
            [&](const Served& s) { return fmt::format("{}", count(s)); });
  }
}

std::string heading(const Report& report) {
  const ModelSizes& sizes = report.options.sizes;
  const DeviceFacts& facts = report.device;
  return fmt::format(
      "{} requests, {} tokens in {} steps on {}{}\n"
      "{} layers, hidden {}, {} heads, vocabulary {}, context {}, max batch {}\n\n",
      report.requests, report.main().generated, report.main().steps, to_string(facts.device),
      facts.name.empty() ? "" : fmt::format(" ({})", facts.name), sizes.layers, sizes.hidden,
      sizes.heads, sizes.vocabulary, sizes.context, sizes.slots);
}

std::string verdict(const Report& report) {
  if (report.difference) return fmt::format("\ntokens differ: {}\n", to_string(*report.difference));
  if (report.eager && report.cgtree) return "\nevery token equal in both modes\n";
  return {};
}

Json timing_json(const Served& served) {
  return {{"tokens_per_second", served.tokens_per_second()},
          {"host_us_per_step", served.host_us_per_step},
          {"step_us_p50", served.step_us_p50},
          {"step_us_p99", served.step_us_p99},
          {"seconds", served.seconds}};
}

Json model_json(const Options& options) {
  const ModelSizes& sizes = options.sizes;
  return {{"layers", sizes.layers},
          {"hidden", sizes.hidden},
          {"heads", sizes.heads},
          {"vocabulary", sizes.vocabulary},
          {"context", sizes.context},
          {"max_batch", sizes.slots},
          {"parameters", count_parameters(sizes)},
          {"seed", options.seed}};
}

// Zero where only the eager mode was served: it has none of these.
void add_counters(Json& json, const Report& report) {
  const FunctionStats stats = report.main().stats;
  json["warm_ups"] = stats.warm_ups;
  json["recordings"] = stats.recordings;
  json["replays"] = stats.replays;
  json["skips"] = Json::object();
  for (int i = 0; i < kSkipReasonCount; ++i) {
    json["skips"][std::string(name(static_cast<SkipReason>(i)))] =
        stats.skips[static_cast<std::size_t>(i)];
  }
  json["pool_bytes"] = report.main().pool_bytes;
  const auto share = report.main().replay_share_after_100;
  json["replay_share_after_100"] = share ? Json(*share) : Json();
}

}  // namespace

DeviceFacts device_facts(Device device) {
  DeviceAPI& api = device_api(device);
  DeviceFacts facts{.device = device};
  const AttributeValue name = api.attribute(device.id, DeviceAttribute::kName);
  if (const auto* text = std::get_if<std::string>(&name)) facts.name = *text;
  const AttributeValue driver = api.attribute(device.id, DeviceAttribute::kDriverVersion);
  if (const auto* number = std::get_if<std::int64_t>(&driver)) facts.driver_version = *number;
  const AttributeValue release = api.attribute(device.id, DeviceAttribute::kDriverRelease);
  if (const auto* text = std::get_if<std::string>(&release)) facts.driver = *text;
  return facts;
}

std::string to_table(const Report& report) {
  std::string table = heading(report);
  fmt::format_to(std::back_inserter(table), "{:<24}{:>14}{:>14}\n", "", report.eager ? "eager" : "",
                 report.cgtree ? "cgtree" : "");
  const auto add = [&](std::string_view label, auto say) { add_row(table, report, label, say); };
  add("tokens/s", [](const Served& s) { return fmt::format("{:.0f}", s.tokens_per_second()); });
  add("step latency p50, us", [](const Served& s) { return fmt::format("{:.1f}", s.step_us_p50); });
  add("step latency p99, us", [](const Served& s) { return fmt::format("{:.1f}", s.step_us_p99); });
  add("host us per step",
      [](const Served& s) { return fmt::format("{:.2f}", s.host_us_per_step); });
  add("recordings", [](const Served& s) { return fmt::format("{}", s.stats.recordings); });
  add("replays", [](const Served& s) { return fmt::format("{}", s.stats.replays); });
  add_skips(table, report);
  add("pool bytes", [](const Served& s) { return fmt::format("{}", s.pool_bytes); });
  if (report.device.device.type == DeviceType::kHost) {
    table += "\non the host device both times include the computation itself\n";
  }
  return table + verdict(report);
}

nlohmann::ordered_json to_json(const Report& report) {
  const Options& options = report.options;
  const bool both = report.eager && report.cgtree;
  Json json = {{"device", to_string(report.device.device)},
               {"device_name", report.device.name},
               {"driver_version", report.device.driver_version},
               {"driver", report.device.driver},
               {"commit", options.commit},
               {"command", options.command},
               {"model", model_json(options)},
               {"trace", options.trace ? std::filesystem::path(*options.trace).filename().string()
                                       : std::string("seeded")},
               {"prompt", options.prompt},
               {"step_ms", options.step_ms},
               {"requests", report.requests},
               {"tokens", report.main().generated},
               {"steps", report.main().steps},
               {"tokens_equal", both ? Json(!report.difference) : Json()}};
  add_counters(json, report);
  if (report.eager) json["eager"] = timing_json(*report.eager);
  if (report.cgtree) json["cgtree"] = timing_json(*report.cgtree);
  return json;
}

}  // namespace cgtree::serve
