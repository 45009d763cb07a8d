// Keeps what the innermost scope of each thread asks for.
#include "cgtree/graph_scope.h"

#include <utility>

namespace cgtree {
namespace {

// A call belongs to the thread that makes it, so the override does too.
thread_local GraphOverride t_override = GraphOverride::kNone;

}  // namespace

GraphOverride graph_override() noexcept {
  return t_override;
}

NoGraph::NoGraph() noexcept : previous_(std::exchange(t_override, GraphOverride::kNoGraph)) {
}

NoGraph::~NoGraph() {
  t_override = previous_;
}

ForceGraph::ForceGraph() noexcept
    : previous_(std::exchange(t_override, GraphOverride::kForceGraph)) {
}

ForceGraph::~ForceGraph() {
  t_override = previous_;
}

}  // namespace cgtree
