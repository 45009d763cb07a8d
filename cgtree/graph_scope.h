// NoGraph and ForceGraph: switch graphs off or on for the calls in a scope.
#pragma once

#include <cstdint>

namespace cgtree {

enum class GraphWish : std::uint8_t { kNone, kNoGraph, kForceGraph };

// What the innermost scope of this thread asks for.
GraphWish graph_wish() noexcept;

// While it lives, calls on this thread run eagerly. Scopes nest; the innermost counts.
class NoGraph {
 public:
  NoGraph() noexcept;
  ~NoGraph();
  NoGraph(const NoGraph&) = delete;
  NoGraph& operator=(const NoGraph&) = delete;

 private:
  const GraphWish previous_;
};

// While it lives, calls on this thread are graphed although their functions were compiled with
// enabled = false, or a NoGraph lives outside of it.
class ForceGraph {
 public:
  ForceGraph() noexcept;
  ~ForceGraph();
  ForceGraph(const ForceGraph&) = delete;
  ForceGraph& operator=(const ForceGraph&) = delete;

 private:
  const GraphWish previous_;
};

}  // namespace cgtree
