// The tree's own upkeep: functions and nodes come and go, conflicts are kept true, invariants
// walked.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "cgtree/tree/busy.h"
#include "cgtree/tree/cause.h"
#include "cgtree/record/treatment.h"
#include "cgtree/tree/tree_manager.h"

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

}  // namespace

FunctionState& TreeManager::add_function(std::string name, StepFunction step,
                                         CompileOptions options) {
  if (name.empty()) throw InvalidArgument("a compiled function needs a name");
  if (!step) throw InvalidArgument(fmt::format("'{}' has no step function", name));
  check_alignments(name, options);
  Busy busy(*this);
  auto function = std::make_unique<FunctionState>();
  function->id = next_function_++;
  function->name = std::move(name);
  function->step = std::move(step);
  function->options = std::move(options);
  function->axes = AxisPlan::of(function->name, function->options);
  memory_->set_function_name(function->id, function->name);
  return *functions_.emplace_back(std::move(function));
}

// Takes no memory: it runs in destructors.
void TreeManager::remove_function(FunctionState& function) noexcept {
  function.is_removed.store(true, std::memory_order_release);
  any_removed_.store(true, std::memory_order_release);
  if (!gate_.enter_for_upkeep()) return;  // the next call does it
  drop_removed();
  gate_.leave_upkeep();
}

void TreeManager::drop_removed() noexcept {
  any_removed_.store(false, std::memory_order_relaxed);  // what comes from now on sets it again
  for (std::size_t i = functions_.size(); i-- > 0;) {
    if (functions_[i]->is_removed.load(std::memory_order_acquire)) drop_function(*functions_[i]);
  }
}

template <typename Gone>
void TreeManager::drop_nodes(Gone gone) noexcept {
  const auto drop_edges = [&](Node& node) {
    std::erase_if(node.edges, [&](const Node::Edge& edge) { return gone(*edge.node); });
  };
  drop_edges(root_);
  for (const auto& node : nodes_) {
    drop_edges(*node);
    while (node->parent != &root_ && gone(*node->parent))
      node->parent = node->parent->parent;
  }
  if (current_ != &root_ && gone(*current_)) go_to_root();
  for (const auto& node : nodes_) {
    if (!gone(*node)) continue;
    std::erase(node->key->nodes, node.get());
    --node->function->recordings;
    graph_bytes_ -= node->recording.costs.graph_bytes();
  }
  std::erase_if(nodes_, [&](const auto& node) { return gone(*node); });
}

void TreeManager::drop_function(FunctionState& function) noexcept {
  drop_nodes([&](const Node& node) { return node.function == &function; });
  add(removed_stats_, function.stats);
  std::erase_if(functions_, [&](const auto& held) { return held.get() == &function; });
}

// Its outputs live on, as do those of a replay that is still on its way: the device destroys an
// executable graph when it has run, and the memory stays the pool's. Source: cudaGraphExecDestroy.
void TreeManager::evict(Node& node, SkipReason limit) noexcept {
  events_.evict(node, limit);
  ++node.function->stats.evictions;
  drop_nodes([&](const Node& other) { return &other == &node; });
}

void TreeManager::go_to(Node& node) noexcept {
  node.last_used = ++last_used_;
  ++depth_;
  current_ = &node;
}

void TreeManager::go_to_root() noexcept {
  depth_ = 0;
  current_ = &root_;
}

// Whatever can fail comes first.
Node& TreeManager::add_node(FunctionState& function, KeyState& key, Recording recording) {
  learn_conflicts(recording);
  nodes_.reserve(nodes_.size() + 1);
  key.nodes.reserve(key.nodes.size() + 1);
  current_->edges.reserve(current_->edges.size() + 1);
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
  graph_bytes_ += node.recording.costs.graph_bytes();
  current_->follow(&node);
  go_to(node);
  return node;
}

// Only of a recording that nothing else called for.
void TreeManager::count_static_changes(FunctionState& function, const Cause& cause) {
  const bool only_moves = std::ranges::all_of(cause.changes, [](const Change& change) {
    return change.kind == Mismatch::Kind::kStaticAddress;
  });
  if (!only_moves) return;
  for (const Change& change : cause.changes) {
    if (function.static_changes.size() <= change.input) {
      function.static_changes.resize(change.input + 1, 0);
    }
    const bool was_demoted = function.is_demoted(change.input);
    ++function.static_changes[change.input];
    if (!was_demoted && function.is_demoted(change.input)) events_.demote(function, change);
  }
}

void TreeManager::learn_conflicts(Recording& recording) const {
  for (std::uint32_t& i = recording.slots_known; i < memory_->slot_count(); ++i) {
    if (recording.footprint.overlaps(memory_->slot(i).range)) add_slot(recording.conflicts, i);
  }
}

void TreeManager::learn_all_conflicts() {
  for (const auto& node : nodes_)
    learn_conflicts(node->recording);
  slots_known_ = memory_->slot_count();
}

Explanation TreeManager::explanation(const Decision& decision, const FunctionState& function,
                                     InputList inputs) const {
  using Outcome = Explanation::Outcome;
  Explanation why;
  switch (decision.action) {
    case Decision::Action::kReplay:
      why.outcome = Outcome::kReplay;
      why.node = decision.node->id;
      break;
    case Decision::Action::kWarmUp:
      why.outcome = Outcome::kWarmUp;
      break;
    case Decision::Action::kRecord:
      why.outcome = Outcome::kRecord;
      break;
    case Decision::Action::kSkip:
      why.outcome = Outcome::kRunEagerly;
      why.skip_reason = decision.reason;
      break;
    case Decision::Action::kThrow:
      why.outcome = Outcome::kThrow;
      why.skip_reason = decision.reason;
      break;
  }
  if (decision.action != Decision::Action::kReplay &&
      decision.action != Decision::Action::kWarmUp) {
    why.cause = find_cause(function, *current_, inputs, *memory_);
  }
  if (function.axes != nullptr) {
    why.axes = function.axes->in_use(/*is_graphed=*/why.outcome != Outcome::kRunEagerly &&
                                     why.outcome != Outcome::kThrow);
    if (why.skip_reason && is_of_axes(*why.skip_reason)) {
      why.why_not = function.axes->why_not(*why.skip_reason);
    }
  }
  return why;
}

Explanation TreeManager::explain(FunctionState& function, InputList inputs) {
  Busy busy(*this);
  check_inputs(function, *memory_, inputs);
  if (function.axes != nullptr) function.axes->read(inputs);
  Decision decision;
  if (captured_by_others(current_stream_or_none())) {
    decision.reason = SkipReason::kForeignCapture;
  } else {
    catch_up();
    decision = function.axes == nullptr ? decide(situation(function, inputs))
                                        : decide_with_axes(function, inputs);
  }
  Explanation why = explanation(decision, function, inputs);
  if (!why.skip_reason) why.notes = notes_on_copies(function, *memory_, inputs);
  if (why.outcome == Explanation::Outcome::kRunEagerly && function.options.require_graph) {
    why.outcome = Explanation::Outcome::kThrow;
  }
  return why;
}

FunctionStats TreeManager::stats_of(const FunctionState& function) {
  Busy busy(*this);
  return function.stats;
}

ContextStats TreeManager::stats() {
  Busy busy(*this);
  ContextStats stats;
  add(stats, removed_stats_);
  for (const auto& function : functions_)
    add(stats, function->stats);
  stats.generations = memory_->generation();
  stats.restores = memory_->restores();
  stats.kept_recordings = nodes_.size();
  stats.graph_bytes = graph_bytes_;
  stats.recording_time = recording_time_;
  stats.root_patches = root_patches_;
  stats.live_outputs = memory_->live_outputs();
  stats.pool_live_bytes = memory_->live_bytes();
  stats.pool_reserved_bytes = memory_->reserved_bytes();
  return stats;
}

void TreeManager::validate() {
  Busy busy(*this);
  memory_->validate();
  learn_all_conflicts();  // as the next call would
  std::size_t graph_bytes = 0;
  for (const auto& node : nodes_) {
    const Recording& recording = node->recording;
    for (std::uint32_t i = 0; i < slots_known_; ++i) {
      const bool known = i / 64 < recording.conflicts.size() &&
                         ((recording.conflicts[i / 64] >> (i % 64)) & 1) != 0;
      CGTREE_CHECK(known == recording.footprint.overlaps(memory_->slot(i).range));
    }
    graph_bytes += recording.costs.graph_bytes();
    CGTREE_CHECK(std::any_of(functions_.begin(), functions_.end(), [&](const auto& function) {
      return function.get() == node->function;
    }));
  }
  CGTREE_CHECK(graph_bytes == graph_bytes_);
}

}  // namespace cgtree
