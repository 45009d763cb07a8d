// NoGraph, ForceGraph, refuse_capture(): switch graphs off or on for the calls in a scope, and off
// for a step.
#pragma once

#include <cstdint>
#include <string_view>

namespace cgtree {

// A GraphOverride replaces CompileOptions::enabled for the calls of a thread.
enum class GraphOverride : std::uint8_t { kNone, kNoGraph, kForceGraph };

namespace detail {

// A call belongs to the thread that makes it, so the override does too.
extern constinit thread_local GraphOverride t_graph_override;

}  // namespace detail

// Returns the override of the innermost scope of the calling thread.
inline GraphOverride graph_override() noexcept {
  return detail::t_graph_override;
}

// While a NoGraph lives, calls on its thread run eagerly. Scopes nest; the innermost one counts.
class NoGraph {
 public:
  NoGraph() noexcept;
  ~NoGraph();
  NoGraph(const NoGraph&) = delete;
  NoGraph& operator=(const NoGraph&) = delete;

 private:
  const GraphOverride previous_;
};

// While a ForceGraph lives, calls on its thread are graphed even if their functions were compiled
// with enabled = false, or a NoGraph lives outside of it.
class ForceGraph {
 public:
  ForceGraph() noexcept;
  ~ForceGraph();
  ForceGraph(const ForceGraph&) = delete;
  ForceGraph& operator=(const ForceGraph&) = delete;

 private:
  const GraphOverride previous_;
};

// If this thread captures a step, the capture fails with this reason: the work runs once more,
// without a graph, as all later calls of the kind do. Otherwise nothing happens.
void refuse_capture(std::string_view why);

}  // namespace cgtree
