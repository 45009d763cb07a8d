// Looks at graphs while they are captured.
#include "extensions/scopes/scope_log.h"

#include <algorithm>
#include <utility>

#include "base/log_event.h"
#include "extensions/flow/flow_log.h"
#include "extensions/scopes/scope_stack.h"
#include "interop/device/graph_api.h"

namespace cgtree {

ScopeLog::ScopeLog(StreamRef stream) : stream_(stream) {
  (void)number_of("");
  of_thread<ScopeStack>().add(*this);
}

void ScopeLog::end() noexcept {
  if (std::exchange(is_open_, false)) of_thread<ScopeStack>().remove(*this);
}

void ScopeLog::before_change(std::string_view path) noexcept {
  if (is_lost_) return;
  try {
    look(path);
  } catch (const std::exception& error) {
    is_lost_ = true;
    log_event(LogLevel::kWarn, "scopes_lost what=\"{}\"", error.what());
  }
}

// Source: cudaStreamGetCaptureInfo about its graph: while the capture is open, all operations on it
// are allowed except destroying it and removing nodes.
std::optional<std::vector<NodeHandle>> ScopeLog::nodes_of(StreamRef stream,
                                                          CaptureInfo* info) const {
  GraphAPI& api = stream_.graphs();
  const bool has_error = !ok(api.peek_last_error());
  std::vector<NodeHandle> nodes;
  Code code = api.capture_info(stream.handle(), info);
  // Not begun yet, or broken: then nothing is kept.
  if (ok(code) && info->status != CaptureStatus::kActive) return std::nullopt;
  if (ok(code)) code = api.graph_nodes(info->graph, &nodes);
  // Otherwise the capture would count as broken.
  if (!ok(code) && !has_error) (void)api.take_last_error();
  check(code, "list the nodes of a step that is captured");
  return nodes;
}

void ScopeLog::look_at_body(StreamRef stream, std::string_view path) {
  CaptureInfo info;
  std::optional<std::vector<NodeHandle>> nodes = nodes_of(stream, &info);
  if (!nodes) return;
  auto seen = std::ranges::find(bodies_, info.id, &SeenGraph::capture);
  if (seen == bodies_.end()) seen = bodies_.insert(seen, {info.id, info.graph, {}, 0});
  const std::uint32_t number = number_of(path);
  any_ = any_ || (number != 0 && nodes->size() > seen->nodes.size());
  note_new(*seen, *std::move(nodes), number);
}

void ScopeLog::look_at_body(StreamRef stream) noexcept {
  if (is_lost_) return;
  try {
    look_at_body(stream, of_thread<ScopeStack>().path());
  } catch (const std::exception& error) {
    is_lost_ = true;
    log_event(LogLevel::kWarn, "scopes_lost what=\"{}\"", error.what());
  }
}

void ScopeLog::look(std::string_view path) {
  for (const StreamRef body : FlowLog::streams())
    look_at_body(body, path);
  CaptureInfo info;
  std::optional<std::vector<NodeHandle>> nodes = nodes_of(stream_, &info);
  if (!nodes) return;
  const std::uint32_t number = number_of(path);
  if (graphs_.empty()) first_ = number;
  if (graphs_.empty() || graphs_.back().capture != info.id) {
    if (!graphs_.empty()) graphs_.back().rest = number;
    graphs_.push_back({info.id, info.graph, {}, number});
  }
  note_new(graphs_.back(), *std::move(nodes), number);
}

// Devices list nodes in the order of their creation, but need not.
void ScopeLog::note_new(SeenGraph& graph, std::vector<NodeHandle> nodes, std::uint32_t path) {
  if (nodes.size() == graph.nodes.size()) return;
  const bool is_longer = nodes.size() > graph.nodes.size() &&
                         std::equal(graph.nodes.begin(), graph.nodes.end(), nodes.begin());
  for (std::size_t i = is_longer ? graph.nodes.size() : 0; i < nodes.size(); ++i)
    paths_.try_emplace(nodes[i], path);
  graph.nodes = std::move(nodes);
}

std::uint32_t ScopeLog::number_of(std::string_view path) {
  const auto [found, is_new] =
      numbers_.try_emplace(std::string(path), static_cast<std::uint32_t>(names_.size()));
  if (is_new) names_.push_back(found->first);
  return found->second;
}

const ScopeLog::SeenGraph* ScopeLog::find(GraphHandle handle,
                                          const std::vector<NodeHandle>& nodes) const {
  for (const SeenGraph& seen : graphs_) {
    if (seen.handle == handle) return &seen;
    if (!seen.nodes.empty() && std::ranges::find(nodes, seen.nodes[0]) != nodes.end()) return &seen;
  }
  return nullptr;
}

// A graph between two breaks without a change of scopes was never looked at: its nodes were
// captured in the scopes that were open at the end of the graph before.
void ScopeLog::finish(Recording& recording) {
  const std::string_view path = of_thread<ScopeStack>().path();
  end();
  if (is_lost_ || (graphs_.empty() && path.empty())) return;
  const std::uint32_t last = number_of(path);
  std::uint32_t rest = graphs_.empty() ? last : first_;
  if (!graphs_.empty()) graphs_.back().rest = last;
  GraphAPI& api = stream_.graphs();
  recording.for_each_graph([&](const Graph& graph, GraphExec&) {
    std::vector<NodeHandle> nodes;
    check(api.graph_nodes(graph.handle(), &nodes), "list the nodes of a recording");
    if (const SeenGraph* const seen = find(graph.handle(), nodes)) rest = seen->rest;
    for (const NodeHandle node : nodes)
      any_ = paths_.try_emplace(node, rest).first->second != 0 || any_;
  });
  scopes_.paths = {""};
  scopes_.kernels = {""};
  used_ = {{0, 0}};
}

void ScopeLog::add(const NodeContents& node, ProfileIds ids) {
  std::uint32_t kernel = 0;
  if (!node.name().empty()) {
    const auto [found, is_new] = kernels_.try_emplace(
        std::string(node.name()), static_cast<std::uint32_t>(scopes_.kernels.size()));
    if (is_new) scopes_.kernels.push_back(found->first);
    kernel = found->second;
  }
  const auto found = paths_.find(node.node);
  const std::uint32_t number =
      found == paths_.end() ? 0 : found->second;  // a node of the library: no scope
  const auto [path, is_first] =
      used_.try_emplace(number, static_cast<std::uint32_t>(scopes_.paths.size()));
  if (is_first) scopes_.paths.push_back(names_[number]);
  scopes_.nodes.push_back({node.type, kernel, path->second, ids});
}

}  // namespace cgtree
