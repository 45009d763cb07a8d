// A trial runs a pattern: three steps, the engine's next action, and two more steps.
#pragma once

#include <string>
#include <vector>

#include "cgtree/cgtree.h"
#include "examples/bug_patterns/patterns.h"

namespace cgtree::bug_patterns {

struct Trial {
  int right = 0;  // steps with right results that harmed nothing
  int wrong = 0;
  // The message of the exception that ended the trial; empty without an exception.
  std::string refusal;
  // The findings of the audit before the first step that may be wrong, one sentence each. Empty
  // without a context.
  std::vector<std::string> foreign;
};

// The step is captured by hand, and the graph is launched.
Trial try_bare_graph(const PatternInfo& pattern, Device device);
// The step is called through a context with these options.
Trial try_context(const PatternInfo& pattern, Device device, const ContextOptions& options);
// The repaired step is called through a context with these options.
Trial try_repaired(const PatternInfo& pattern, Device device, const ContextOptions& options);

}  // namespace cgtree::bug_patterns
