// Writes findings as JSON and as text.
#include "check/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/format.h"

namespace cgtree::graph_check {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LedgerTotals, graphs, instantiated, updates, alive, bytes_alive,
                                   launches, nodes, unread_nodes, forgotten_nodes, dangling)

namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostFramesOfTable = 6;
constexpr std::size_t kMostEntries = 20;  // of a kind: a parent may read the table late
constexpr double kMebibyte = 1 << 20;
constexpr std::string_view kMeanings[kFindingKinds] = {
    "a graph was launched after memory that it refers to was freed",
    "a graph was launched after memory that it refers to was freed and allocated again",
    "a graph was launched after memory that it refers to was unmapped",
    "a call was refused inside a capture, and is missing in its graph",
    "work ran on the legacy stream during a capture, and is missing in its graph",
    "a copy in a graph uses pageable host memory, as it is at each replay",
    "a graph cannot be launched again: its memory of the launch before is not freed",
    "the same nodes were captured again and again",
    "executables stay alive that newer ones have replaced",
    "executables were never launched",
};

std::string subject(const Finding& finding) {
  std::string out = str_format("graph {}", finding.graph);
  if (finding.executable > 0) out += str_format(", executable {}", finding.executable);
  if (!finding.node_text.empty())
    out += str_format(", node {}, {}", finding.node, finding.node_text);
  if (!finding.place.empty()) out += str_format(", {} is {:#x}", finding.place, finding.address);
  return out;
}

std::string facts(const Finding& finding) {
  switch (finding.kind) {
    case FindingKind::kFreed:
    case FindingKind::kReused:
    case FindingKind::kUnmapped: {
      std::string out = str_format("{}, gone by {}", finding.memory, finding.call);
      if (!finding.again.empty()) out += ", now " + finding.again;
      return out + str_format("; launches since: {}, words: {}", finding.launches, finding.words);
    }
    case FindingKind::kRecaptured:
      return str_format("{} times, {:.2f} a second; launches in all: {}", finding.count,
                        finding.per_second, finding.launches);
    case FindingKind::kLeaked:
    case FindingKind::kUnlaunched:
      return str_format("executables: {}; those alive take {:.2f} MiB by estimate", finding.count,
                        finding.bytes / kMebibyte);
    default:
      break;
  }
  std::string out = finding.memory;
  if (!finding.call.empty()) out += (out.empty() ? "" : ", ") + finding.call;
  if (finding.count > 1) out += str_format(" ({} times)", finding.count);
  return out;
}

void add_stack(std::string& out, std::string_view title, const std::vector<std::string>& frames) {
  for (std::size_t i = 0; i < std::min(frames.size(), kMostFramesOfTable); ++i) {
    const std::string left = i == 0 ? std::string(title) : std::string(title.size(), ' ');
    out += str_format("      {} {}\n", left, frames[i]);
  }
}

std::string entry(const Finding& finding, const Stacks& stacks) {
  std::string out = str_format("  {}\n    {}\n", subject(finding), facts(finding));
  if (finding.captured != StackId::kNone) {
    add_stack(out, "captured", stacks.frames(finding.captured));
  } else {
    add_stack(out, "instantiated", stacks.frames(finding.instantiated));
  }
  add_stack(out, "called", stacks.frames(finding.called));
  add_stack(out, "allocated", stacks.frames(finding.allocated));
  return out;
}

std::string text_of(const LedgerTotals& totals) {
  std::string out = str_format(
      "graphs: {}; executables: {}, alive {} with {:.2f} MiB by estimate; launches: {}\n",
      totals.graphs, totals.instantiated, totals.alive, totals.bytes_alive / kMebibyte,
      totals.launches);
  if (totals.dangling > 0) {
    out += str_format("executables that refer to freed memory, and were not launched since: {}\n",
                      totals.dangling);
  }
  if (totals.unread_nodes + totals.forgotten_nodes > 0) {
    out += str_format("nodes: {}, of which {} could not be read, and {} are patched since\n",
                      totals.nodes, totals.unread_nodes, totals.forgotten_nodes);
  }
  return out;
}

std::string table(const Process& process, const std::vector<Finding>& findings,
                  const LedgerTotals& totals, const Stacks& stacks) {
  std::string out = str_format("cgtree-check: process {} ({}): ", process.pid, process.program);
  if (findings.empty() && totals.graphs == 0) return out + "no graph was used\n";
  const auto faults = std::ranges::count_if(
      findings, [](const Finding& finding) { return is_fault(finding.kind); });
  out += str_format("faults: {}, remarks: {}\n", faults,
                    static_cast<std::ptrdiff_t>(findings.size()) - faults);
  for (std::size_t i = 0; i < kFindingKinds; ++i) {
    const auto kind = static_cast<FindingKind>(i);
    std::size_t listed = 0;
    for (const Finding& finding : findings) {
      if (finding.kind != kind) continue;
      if (listed == 0) out += str_format("{}: {}\n", name(kind), kMeanings[i]);
      if (listed++ < kMostEntries) out += entry(finding, stacks);
    }
    if (listed > kMostEntries) out += str_format("  and {} more\n", listed - kMostEntries);
  }
  out += text_of(totals);
  for (const std::string& unseen : process.unseen)
    out += "not seen: " + unseen + "\n";
  return out;
}

}  // namespace

Json to_json(const Finding& finding, const Stacks& stacks) {
  Json json = {{"kind", name(finding.kind)}, {"is_fault", is_fault(finding.kind)},
               {"graph", finding.graph},     {"executable", finding.executable},
               {"count", finding.count},     {"text", entry(finding, stacks)}};
  const auto add = [&](const char* key, const auto& value) {
    if (value != std::decay_t<decltype(value)>()) json[key] = value;
  };
  const auto add_frames = [&](const char* key, StackId stack) {
    if (stack != StackId::kNone) json[key] = stacks.frames(stack);
  };
  if (!finding.node_text.empty()) json["node"] = finding.node;
  if (finding.address != 0) json["address"] = str_format("{:#x}", finding.address);
  add("node_text", finding.node_text);
  add("place", finding.place);
  add("memory", finding.memory);
  add("call", finding.call);
  add("again", finding.again);
  add("words", finding.words);
  add("launches", finding.launches);
  add("bytes", finding.bytes);
  add("per_second", finding.per_second);
  add_frames("captured", finding.captured);
  add_frames("instantiated", finding.instantiated);
  add_frames("called", finding.called);
  add_frames("allocated", finding.allocated);
  return json;
}

Report make_report(const Process& process, const std::vector<Finding>& findings,
                   const LedgerTotals& totals, const Stacks& stacks) {
  Json json = {{"pid", process.pid}, {"program", process.program}, {"findings", Json::array()},
               {"totals", totals},   {"unseen", process.unseen},   {"calls", process.calls}};
  for (const Finding& finding : findings)
    json["findings"].push_back(to_json(finding, stacks));
  return {json.dump(1, ' ', false, Json::error_handler_t::replace),
          table(process, findings, totals, stacks)};
}

}  // namespace cgtree::graph_check
