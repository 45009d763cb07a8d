// The thread's wish.
#include "cgtree/graph_scope.h"

#include <utility>

namespace cgtree {
namespace {

// Per thread, because a call belongs to the thread that makes it.
thread_local GraphWish t_wish = GraphWish::kNone;

}  // namespace

GraphWish graph_wish() noexcept {
  return t_wish;
}

NoGraph::NoGraph() noexcept : previous_(std::exchange(t_wish, GraphWish::kNoGraph)) {
}

NoGraph::~NoGraph() {
  t_wish = previous_;
}

ForceGraph::ForceGraph() noexcept : previous_(std::exchange(t_wish, GraphWish::kForceGraph)) {
}

ForceGraph::~ForceGraph() {
  t_wish = previous_;
}

}  // namespace cgtree
