// ScopeLog: notes which scopes each node of a step was captured in.
//
// The log looks at the graph that is being captured whenever scopes of the thread are about to
// change: the nodes that are there and were not before were captured in the scopes that are open.
// That is so on side streams too, whose nodes are in the same graph. A step with breaks has several
// graphs; what no look has seen was captured in the scopes that were open at the next one.
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

  // All captures of the step have ended, and nothing was added to its graphs.
  void finish(Recording& recording);
  // Whether some node was captured in a scope. Requires: finish() was called.
  bool any() const noexcept { return any_; }
  // Adds the next node, in the order of GraphAPI::graph_nodes(), over all graphs. Requires: any().
  void add(const NodeContents& node, ProfileIds ids);

  // The capture of a body of a conditional node is about to end on this stream.
  void look_at_body(StreamRef stream) noexcept;
  NodeScopes take() { return std::move(scopes_); }

  // For the stack of the thread. The path is that of the scopes that were open until now.
  void before_change(std::string_view path) noexcept;
  ScopeLog* next() const noexcept { return next_; }
  void set_next(ScopeLog* next) noexcept { next_ = next; }

 private:
  struct SeenGraph {
    std::uint64_t capture;
    GraphHandle handle;
    std::vector<NodeHandle> nodes;  // that were seen
    std::uint32_t rest;             // the path of those that no look has seen
  };

  void look(std::string_view path);
  // Returns the nodes of what a stream captures now; nothing if it does not, or has failed.
  std::optional<std::vector<NodeHandle>> nodes_of(StreamRef stream, CaptureInfo* info) const;
  void look_at_body(StreamRef stream, std::string_view path);
  void end() noexcept;
  std::uint32_t number_of(std::string_view path);
  void note_new(SeenGraph& graph, std::vector<NodeHandle> nodes, std::uint32_t path);
  const SeenGraph* find(GraphHandle handle, const std::vector<NodeHandle>& nodes) const;

  const StreamRef stream_;
  bool is_open_ = true;
  bool is_lost_ = false;  // a look has failed
  bool any_ = false;
  ScopeLog* next_ = nullptr;
  std::vector<SeenGraph> graphs_;  // in the order of the captures
  std::vector<SeenGraph> bodies_;  // of conditional nodes
  std::uint32_t first_ = 0;        // the path in which the first look was taken
  std::unordered_map<NodeHandle, std::uint32_t> paths_;
  std::unordered_map<std::string, std::uint32_t> numbers_;  // of paths
  std::vector<std::string> names_;                          // of paths, by number
  std::unordered_map<std::uint32_t, std::uint32_t>
      used_;  // the number in `scopes_`, by the one here
  std::unordered_map<std::string, std::uint32_t> kernels_;
  NodeScopes scopes_;
};

}  // namespace cgtree
