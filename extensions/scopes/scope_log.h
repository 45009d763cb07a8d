// ScopeLog: notes the scopes in which each node of a step was captured.
//
// The log looks at the graph being captured whenever scopes of the thread are about to change:
// nodes that are new since the last look were captured in the scopes that are open. The same holds
// for side streams, whose nodes are in the same graph. A step with breaks has several graphs; nodes
// that no look has seen were captured in the scopes that were open at the next look.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cgtree/record/recording.h"
#include "extensions/scopes/node_scopes.h"
#include "interop/device/graph_api.h"
#include "interop/device/node_contents.h"
#include "interop/device/stream.h"

namespace cgtree {

// Thread safety: used by the thread that captures.
class ScopeLog {
 public:
  // Begins before the capture of the step on this stream.
  explicit ScopeLog(StreamRef stream);
  ~ScopeLog() { end(); }
  ScopeLog(const ScopeLog&) = delete;
  ScopeLog& operator=(const ScopeLog&) = delete;

  // Must be called when all captures of the step have ended, and nothing was added to its graphs.
  void finish(Recording& recording);
  // True if any node was captured in a scope. Requires: finish() was called.
  bool any() const noexcept { return any_; }
  // Adds the next node, in the order of GraphAPI::graph_nodes(), over all graphs. Requires: any().
  void add(const NodeContents& node, ProfileIds ids);

  // Must be called just before the capture of a body of a conditional node ends on this stream.
  void look_at_body(StreamRef stream) noexcept;
  NodeScopes take() { return std::move(scopes_); }

  // For the scope stack of the thread. The path is that of the scopes that were open until now.
  void before_change(std::string_view path) noexcept;
  ScopeLog* next() const noexcept { return next_; }
  void set_next(ScopeLog* next) noexcept { next_ = next; }

 private:
  struct SeenGraph {
    std::uint64_t capture;
    GraphHandle handle;
    std::vector<NodeHandle> nodes;  // nodes that were seen
    std::uint32_t rest;             // the path of the nodes that no look has seen
  };

  void look(std::string_view path);
  // Returns the nodes of the stream's present capture; nothing if it does not capture, or the
  // capture failed.
  std::optional<std::vector<NodeHandle>> nodes_of(StreamRef stream, CaptureInfo* info) const;
  void look_at_body(StreamRef stream, std::string_view path);
  void end() noexcept;
  std::uint32_t number_of(std::string_view path);
  void note_new(SeenGraph& graph, std::vector<NodeHandle> nodes, std::uint32_t path);
  const SeenGraph* find(GraphHandle handle, const std::vector<NodeHandle>& nodes) const;

  const StreamRef stream_;
  bool is_open_ = true;
  bool is_lost_ = false;  // a look failed
  bool any_ = false;
  ScopeLog* next_ = nullptr;
  std::vector<SeenGraph> graphs_;  // in the order of the captures
  std::vector<SeenGraph> bodies_;  // of conditional nodes
  std::uint32_t first_ = 0;        // the path at the first look
  std::unordered_map<NodeHandle, std::uint32_t> paths_;
  std::unordered_map<std::string, std::uint32_t> numbers_;  // of paths
  std::vector<std::string> names_;                          // of paths, by number
  std::unordered_map<std::uint32_t, std::uint32_t>
      used_;  // the number in `scopes_`, by the number here
  std::unordered_map<std::string, std::uint32_t> kernels_;
  NodeScopes scopes_;
};

}  // namespace cgtree
