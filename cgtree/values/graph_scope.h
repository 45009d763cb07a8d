// NoGraph, ForceGraph, refuse_capture(): switch graphs off or on for the calls in a scope, and off
// for a step.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/frame.h"

namespace cgtree {

// A GraphOverride replaces CompileOptions::enabled for the calls of a thread.
enum class GraphOverride : std::uint8_t { kNone, kNoGraph, kForceGraph };

// Returns the override of the innermost scope of the calling thread. Calls depend on the thread
// that makes them.
inline GraphOverride graph_override() noexcept {
  return frame().graphs;
}

// While a NoGraph lives, calls on its thread run eagerly. Scopes nest; the innermost decides.
class NoGraph {
  const FrameScope<&Frame::graphs> scope_{GraphOverride::kNoGraph};
};

// While a ForceGraph lives, calls on its thread are graphed even if their functions were compiled
// with enabled = false, or an outer NoGraph lives.
class ForceGraph {
  const FrameScope<&Frame::graphs> scope_{GraphOverride::kForceGraph};
};

// If this thread is capturing a step, makes the capture fail with this reason: the work runs again
// without a graph, as do all later calls of its kind. Otherwise nothing happens.
void refuse_capture(std::string_view why);

}  // namespace cgtree
