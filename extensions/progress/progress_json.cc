// Writes what a watch reports as JSON, and reads it.
#include "extensions/progress/progress_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace cgtree {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSchema = "cgtree.progress";

Json json_of(const ReplayProgress& replay) {
  Json marks = Json::array();
  for (const ReplayMark& mark : replay.marks) {
    marks.push_back({{"scope", mark.scope},
                     {"kernels", mark.kernels},
                     {"collective", mark.is_collective},
                     {"reached", mark.is_reached}});
  }
  return {{"function", replay.function}, {"node", replay.node},
          {"number", replay.number},     {"age_ms", replay.age.count()},
          {"begun", replay.has_begun},   {"ended", replay.has_ended},
          {"marks", std::move(marks)},   {"why_unmarked", replay.why_unmarked}};
}

ReplayProgress replay_of(const Json& json) {
  ReplayProgress replay;
  json.at("function").get_to(replay.function);
  json.at("node").get_to(replay.node);
  json.at("number").get_to(replay.number);
  replay.age = std::chrono::milliseconds(json.at("age_ms").get<std::int64_t>());
  json.at("begun").get_to(replay.has_begun);
  json.at("ended").get_to(replay.has_ended);
  json.at("why_unmarked").get_to(replay.why_unmarked);
  for (const Json& mark : json.at("marks")) {
    replay.marks.push_back({mark.at("scope").get<std::string>(),
                            mark.at("kernels").get<std::vector<std::string>>(),
                            mark.at("collective").get<bool>(), mark.at("reached").get<bool>()});
  }
  return replay;
}

}  // namespace

std::string progress_json(std::span<const ContextProgressReport> contexts) {
  Json list = Json::array();
  for (const ContextProgressReport& one : contexts) {
    Json replays = Json::array();
    for (const ReplayProgress& replay : one.replays)
      replays.push_back(json_of(replay));
    list.push_back({{"context", one.context},
                    {"device", one.device},
                    {"rank", one.rank},
                    {"ranks", one.ranks},
                    {"unwatched", one.unwatched},
                    {"replays", std::move(replays)}});
  }
  const Json all = {{"schema", kSchema}, {"version", 1}, {"contexts", std::move(list)}};
  return all.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

bool is_progress(std::string_view text) noexcept {
  constexpr std::size_t kMostInFront = 64;  // of the name
  return text.substr(0, kMostInFront).find(kSchema) != std::string_view::npos;
}

std::vector<ContextProgressReport> read_progress(std::string_view text) try {
  const Json all = Json::parse(text);
  if (!all.is_object() || all.value("schema", "") != kSchema || all.value("version", 0) != 1) {
    throw InvalidArgument(
        "no report of a ProgressWatch, or of another version: expected progress_json()");
  }
  std::vector<ContextProgressReport> reports;
  for (const Json& json : all.at("contexts")) {
    ContextProgressReport& one = reports.emplace_back();
    json.at("context").get_to(one.context);
    json.at("device").get_to(one.device);
    json.at("rank").get_to(one.rank);
    json.at("ranks").get_to(one.ranks);
    json.at("unwatched").get_to(one.unwatched);
    for (const Json& replay : json.at("replays"))
      one.replays.push_back(replay_of(replay));
  }
  return reports;
} catch (const Json::exception& error) {
  throw InvalidArgument(fmt::format("no report of a ProgressWatch: {}", error.what()));
}

std::vector<ContextProgressReport> join_progress(std::span<const std::string> texts) {
  std::vector<ContextProgressReport> all;
  for (const std::string& text : texts)
    std::ranges::move(read_progress(text), std::back_inserter(all));
  std::ranges::stable_sort(all, {}, &ContextProgressReport::rank);
  return all;
}

}  // namespace cgtree
