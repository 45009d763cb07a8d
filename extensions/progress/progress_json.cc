// Writes the report of a watch as JSON.
#include "extensions/progress/progress_json.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace cgtree {
namespace {

using Json = nlohmann::ordered_json;

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
  const Json all = {{"schema", "cgtree.progress"}, {"version", 1}, {"contexts", std::move(list)}};
  return all.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace cgtree
