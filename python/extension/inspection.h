// Inspections and comparisons of captures as dicts of Python.
#pragma once

#include "extensions/inspect/inspect.h"
#include "extensions/watch/spelling.h"
#include "python/extension/values.h"

namespace cgtree::python {

template <>
struct Caster<InspectedNode> {
  static Reference to(const InspectedNode& node) {
    const Reference words = new_list(node.words.size(), [&](std::size_t i) {
      const InspectedWord& word = node.words[i];
      return new_dict("place", place_of(node, word), "value", word.value, "memory", word.memory,
                      "is_foreign", word.is_foreign, "is_gone", word.is_gone);
    });
    return new_dict("number", node.number, "name", node.name, "scope", node.scope, "words",
                    words.get());
  }
};
template <>
struct Caster<InspectionReport> {
  static Reference to(const InspectionReport& report) {
    return new_dict("recording", report.recording, "why_not", report.why_not, "nodes", report.nodes,
                    "runs", report.runs, "failed", report.failed, "error", report.error, "suspects",
                    report.suspects, "text", spelled(to_string(report), Spelling::kNames));
  }
};
template <>
struct Caster<CaptureComparison> {
  static Reference to(const CaptureComparison& comparison) {
    return new_dict("recording", comparison.recording, "why_not", comparison.why_not, "nodes",
                    comparison.nodes, "recorded", comparison.recorded, "difference",
                    comparison.difference, "text",
                    spelled(to_string(comparison), Spelling::kNames));
  }
};

}  // namespace cgtree::python
