// Adds and drops functions and recordings, and keeps the hints and conflicts of recordings current.
#include "cgtree/tree/tree.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace cgtree {
namespace {

void add(FunctionStats& sum, const FunctionStats& stats) {
  sum.calls += stats.calls;
  sum.warm_ups += stats.warm_ups;
  sum.recordings += stats.recordings;
  sum.replays += stats.replays;
  sum.failures += stats.failures;
  sum.evictions += stats.evictions;
  for (int i = 0; i < kSkipReasonCount; ++i)
    sum.skips[i] += stats.skips[i];
}

void learn(Recording& recording, const ContextMemory& memory) {
  for (std::uint32_t& i = recording.slots_known; i < memory.slot_count(); ++i) {
    if (recording.footprint.overlaps(memory.slot(i).range)) add_slot(recording.conflicts, i);
  }
}

}  // namespace

void Node::set_hint(Node* node) {
  const auto found = std::find_if(followed_by.begin(), followed_by.end(), [&](const Hint& hint) {
    return hint.function == node->function;
  });
  if (found == followed_by.end()) {
    followed_by.push_back({node->function, node});
  } else {
    found->node = node;
  }
}

KeyState* FunctionState::find(const Call& call) const {
  const auto bucket = keys.find(call.signature_hash());
  if (bucket == keys.end()) return nullptr;
  for (const auto& key : bucket->second) {
    if (key->signature.matches(call.inputs())) return key.get();
  }
  return nullptr;
}

KeyState& FunctionState::find_or_add(const Call& call) {
  if (KeyState* key = find(call)) return *key;
  auto& bucket = keys[call.signature_hash()];
  bucket.push_back(std::make_unique<KeyState>(Signature(call.inputs())));
  bucket.back()->padded = call.axes().padded;
  return *bucket.back();
}

FunctionState& Tree::add_function(std::string name, StepFunction step, CompileOptions options) {
  if (name.empty()) throw InvalidArgument("a compiled function needs a name");
  if (!step) throw InvalidArgument(fmt::format("'{}' has no step function", name));
  check_alignments(name, options);
  auto function = std::make_unique<FunctionState>();
  function->name = std::move(name);
  function->step = std::move(step);
  function->options = std::move(options);
  function->axes = AxisPlan::of(function->name, function->options);
  function->id = next_function_++;
  return *functions_.emplace_back(std::move(function));
}

template <typename Gone>
void Tree::drop_if(Gone gone) noexcept {
  const auto drop_hints = [&](Node& node) {
    std::erase_if(node.followed_by, [&](const Node::Hint& hint) { return gone(*hint.node); });
  };
  drop_hints(root_);
  for (const auto& node : nodes_)
    drop_hints(*node);
  if (!is_at_root() && gone(*current_)) go_to_root();
  for (const auto& node : nodes_) {
    if (!gone(*node)) continue;
    for (const auto& child : nodes_) {
      if (child->parent == node->id) child->parent = node->parent;
    }
    std::erase(node->key->nodes, node.get());
    --node->function->recordings;
    spent.graph_bytes -= node->recording.costs.graph_bytes();
  }
  std::erase_if(nodes_, [&](const auto& node) { return gone(*node); });
}

// Outputs live on, and so does a replay that is still running: the device destroys an executable
// graph when it has run, and the memory stays the pool's. Source: cudaGraphExecDestroy.
void Tree::drop(Node& node) noexcept {
  drop_if([&](const Node& other) { return &other == &node; });
}

void Tree::drop_removed() noexcept {
  for (std::size_t i = functions_.size(); i-- > 0;) {
    const FunctionState& function = *functions_[i];
    if (!function.is_removed.load(std::memory_order_acquire)) continue;
    drop_if([&](const Node& node) { return node.function == &function; });
    cgtree::add(removed_stats_, function.stats);
    functions_.erase(functions_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

const Node* Tree::find(std::uint32_t id) const noexcept {
  for (const auto& node : nodes_) {
    if (node->id == id) return node.get();
  }
  return nullptr;
}

// Everything that can fail comes first.
Node& Tree::add(FunctionState& function, KeyState& key, Recording recording, Explanation why,
                const ContextMemory& memory) {
  learn(recording, memory);
  nodes_.reserve(nodes_.size() + 1);
  key.nodes.reserve(key.nodes.size() + 1);
  current_->followed_by.reserve(current_->followed_by.size() + 1);
  auto made = std::make_unique<Node>();
  Node& node = *made;
  node.id = next_node_++;
  node.parent = current_->id;
  node.function = &function;
  node.key = &key;
  node.recording = std::move(recording);
  node.why = std::move(why);
  nodes_.push_back(std::move(made));
  key.nodes.push_back(&node);
  ++function.recordings;
  spent.graph_bytes += node.recording.costs.graph_bytes();
  current_->follow(&node);
  go_to(node);
  return node;
}

void Tree::learn_new_conflicts(const ContextMemory& memory) {
  for (const auto& node : nodes_)
    learn(node->recording, memory);
  slots_known_ = memory.slot_count();
}

ContextStats Tree::stats() const {
  ContextStats stats;
  cgtree::add(stats, removed_stats_);
  for (const auto& function : functions_)
    cgtree::add(stats, function->stats);
  stats.kept_recordings = nodes_.size();
  stats.graph_bytes = spent.graph_bytes;
  stats.recording_time = spent.recording_time;
  stats.root_patches = root_patches;
  return stats;
}

void Tree::validate(const ContextMemory& memory) const {
  std::size_t graph_bytes = 0;
  for (const auto& node : nodes_) {
    const Recording& recording = node->recording;
    for (std::uint32_t i = 0; i < slots_known_; ++i) {
      const bool known = i / 64 < recording.conflicts.size() &&
                         ((recording.conflicts[i / 64] >> (i % 64)) & 1) != 0;
      CGTREE_CHECK(known == recording.footprint.overlaps(memory.slot(i).range));
    }
    graph_bytes += recording.costs.graph_bytes();
    CGTREE_CHECK(std::any_of(functions_.begin(), functions_.end(), [&](const auto& function) {
      return function.get() == node->function;
    }));
    for (const Node::Hint& hint : node->followed_by) {
      CGTREE_CHECK(find(hint.node->id) == hint.node && hint.node->function == hint.function);
    }
  }
  CGTREE_CHECK(graph_bytes == spent.graph_bytes);
}

}  // namespace cgtree
