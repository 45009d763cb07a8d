// Describes nodes, inspections and comparisons.
#include <string>

#include "base/format.h"
#include "extensions/inspect/inspect.h"

namespace cgtree {
std::string place_of(const InspectedNode& node, const InspectedWord& word) {
  if (node.type == NodeType::kKernel) {
    return word.offset == 0 ? str_format("parameter {}", word.parameter)
                            : str_format("parameter {}, byte {}", word.parameter, word.offset);
  }
  if (node.type == NodeType::kMemcpy) return word.parameter == 0 ? "source" : "destination";
  return "destination";
}

std::string to_string(const InspectedNode& node) {
  std::string text = str_format("  node {}, {}", node.number, node.name);
  if (!node.scope.empty()) text += str_format(" in '{}'", node.scope);
  text += '\n';
  for (const InspectedWord& word : node.words) {
    text += str_format("    {}  {:#x}", place_of(node, word), word.value);
    text += word.memory.empty() ? "\n" : str_format("  {}\n", word.memory);
  }
  return text;
}

std::string to_string(const InspectionReport& report) {
  if (report.recording == 0) return str_format("'{}': {}\n", report.function, report.why_not);
  std::string text = str_format("recording {} of '{}': ", report.recording, report.function);
  if (report.failed) {
    text += str_format("node {} of {} has failed, {} have run: {}\n{}", report.failed->number,
                       report.nodes, report.runs, report.error, to_string(*report.failed));
  } else if (!report.why_not.empty()) {
    text += str_format("not run, {}\n", report.why_not);
  } else {
    text += str_format("all {} nodes have run alone, in {} us, without an error\n", report.runs,
                       report.time.count());
  }
  if (!report.suspects.empty()) text += "these point to memory that nothing keeps:\n";
  for (const InspectedNode& node : report.suspects)
    text += to_string(node);
  return text;
}

std::string to_string(const CaptureComparison& comparison) {
  if (comparison.recording == 0)
    return str_format("'{}': {}\n", comparison.function, comparison.why_not);
  std::string text =
      str_format("recording {} of '{}': ", comparison.recording, comparison.function);
  if (!comparison.why_not.empty())
    return text + str_format("not compared, {}\n", comparison.why_not);
  if (comparison.difference.empty()) {
    text += str_format("a new capture has the same {} nodes", comparison.nodes);
    if (comparison.unread > 0)
      text += str_format(", of which {} cannot be read", comparison.unread);
    return text + "\n";
  }
  text += str_format("{}\n", comparison.difference);
  return comparison.recorded ? text + to_string(*comparison.recorded) : text;
}

}  // namespace cgtree
