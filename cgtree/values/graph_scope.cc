// Keeps what the innermost scope of each thread asks for.
#include "cgtree/values/graph_scope.h"

#include <utility>

#include "interop/device/refusal.h"

namespace cgtree {
namespace detail {

constinit thread_local GraphOverride t_graph_override = GraphOverride::kNone;

}  // namespace detail

using detail::t_graph_override;

NoGraph::NoGraph() noexcept : previous_(std::exchange(t_graph_override, GraphOverride::kNoGraph)) {
}

NoGraph::~NoGraph() {
  t_graph_override = previous_;
}

ForceGraph::ForceGraph() noexcept
    : previous_(std::exchange(t_graph_override, GraphOverride::kForceGraph)) {
}

ForceGraph::~ForceGraph() {
  t_graph_override = previous_;
}

void refuse_capture(std::string_view why) {
  Refusals::note(Code::kStreamCaptureUnsupported,
                 why.empty() ? "the step has refused to be captured" : why);
}

}  // namespace cgtree
