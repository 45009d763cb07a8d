// The tree's own upkeep: functions and nodes come and go, conflicts are kept true, invariants
// walked.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "cgtree/tree/busy.h"
#include "cgtree/tree/tree_manager.h"

namespace cgtree {
namespace {

void add(FunctionStats& sum, const FunctionStats& stats) {
  sum.calls += stats.calls;
  sum.warm_ups += stats.warm_ups;
  sum.recordings += stats.recordings;
  sum.replays += stats.replays;
  sum.failures += stats.failures;
  for (int i = 0; i < kSkipReasonCount; ++i)
    sum.skips[i] += stats.skips[i];
}

}  // namespace

std::uint32_t TreeManager::add_function(std::string name, StepFunction step,
                                        CompileOptions options) {
  if (name.empty()) throw InvalidArgument("a compiled function needs a name");
  if (!step) throw InvalidArgument(fmt::format("'{}' has no step function", name));
  Busy busy(*this);
  const std::uint32_t id = next_function_++;
  memory_->set_function_name(id, name);
  auto function = std::make_unique<FunctionState>();
  function->id = id;
  function->name = std::move(name);
  function->step = std::move(step);
  function->options = std::move(options);
  functions_[id] = std::move(function);
  return id;
}

FunctionState& TreeManager::function_at(std::uint32_t id) const {
  const auto found = functions_.find(id);
  CGTREE_CHECK(found != functions_.end());
  return *found->second;
}

const std::string& TreeManager::function_name(std::uint32_t id) const {
  return function_at(id).name;
}

void TreeManager::remove_function(std::uint32_t id) noexcept {
  {
    std::lock_guard lock(removed_mutex_);
    removed_.push_back(id);
    any_removed_.store(true, std::memory_order_relaxed);
  }
  if (busy_.exchange(true, std::memory_order_acquire)) return;  // the next call does it
  drop_removed();
  busy_.store(false, std::memory_order_release);
}

void TreeManager::drop_removed() noexcept {
  std::vector<std::uint32_t> ids;
  {
    std::lock_guard lock(removed_mutex_);
    ids.swap(removed_);
    any_removed_.store(false, std::memory_order_relaxed);
  }
  for (const std::uint32_t id : ids)
    drop_function(id);
}

void TreeManager::drop_function(std::uint32_t id) noexcept {
  FunctionState& function = function_at(id);
  const auto gone = [&](const Node* node) { return node->function == &function; };
  const auto drop_edges = [&](Node& node) {
    std::erase_if(node.edges, [&](const Node::Edge& edge) { return gone(edge.node); });
  };
  drop_edges(root_);
  for (const auto& node : nodes_) {
    drop_edges(*node);
    while (node->parent != &root_ && gone(node->parent))
      node->parent = node->parent->parent;
  }
  if (current_ != &root_ && gone(current_)) current_ = &root_;
  std::erase_if(nodes_, [&](const auto& node) { return gone(node.get()); });
  add(removed_stats_, function.stats);
  functions_.erase(id);
}

Node& TreeManager::add_node(FunctionState& function, KeyState& key, Recording recording) {
  auto made = std::make_unique<Node>();
  Node& node = *made;
  node.id = next_node_++;
  node.parent = current_;
  node.function = &function;
  node.key = &key;
  node.recording = std::move(recording);
  nodes_.push_back(std::move(made));
  key.nodes.push_back(&node);
  ++function.recordings;
  update_conflicts(&node.recording);
  current_->follow(&node);
  current_ = &node;
  return node;
}

// `fresh` has seen no slot yet; the others know the first conflicts_known_.
void TreeManager::update_conflicts(const Recording* fresh) {
  const std::uint32_t count = memory_->slot_count();
  for (const auto& node : nodes_) {
    Recording& recording = node->recording;
    for (std::uint32_t i = &recording == fresh ? 0 : conflicts_known_; i < count; ++i) {
      if (recording.footprint.overlaps(memory_->slot(i).range)) add_slot(recording.conflicts, i);
    }
  }
  conflicts_known_ = count;
}

FunctionStats TreeManager::stats_of(std::uint32_t function) {
  Busy busy(*this);
  return function_at(function).stats;
}

ContextStats TreeManager::stats() {
  Busy busy(*this);
  ContextStats stats;
  add(stats, removed_stats_);
  for (const auto& [id, function] : functions_)
    add(stats, function->stats);
  stats.generations = memory_->generation();
  stats.restores = memory_->restores();
  stats.root_patches = root_patches_;
  stats.live_outputs = memory_->live_outputs();
  stats.pool_live_bytes = memory_->live_bytes();
  stats.pool_reserved_bytes = memory_->reserved_bytes();
  return stats;
}

void TreeManager::validate() {
  Busy busy(*this);
  memory_->validate();
  CGTREE_CHECK(conflicts_known_ == memory_->slot_count());
  for (const auto& node : nodes_) {
    const Recording& recording = node->recording;
    for (std::uint32_t i = 0; i < conflicts_known_; ++i) {
      const bool known = i / 64 < recording.conflicts.size() &&
                         ((recording.conflicts[i / 64] >> (i % 64)) & 1) != 0;
      CGTREE_CHECK(known == recording.footprint.overlaps(memory_->slot(i).range));
    }
    CGTREE_CHECK(functions_.contains(node->function->id));
  }
}

}  // namespace cgtree
