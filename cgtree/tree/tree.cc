// Adds and drops functions and recordings, and keeps the hints and conflicts of recordings current.
#include "cgtree/tree/tree.h"

#include <algorithm>
#include <new>

#include "base/check.h"
#include "base/error.h"
#include "base/format.h"
#include "base/room.h"
#include "cgtree/tree/digest.h"
#include "cgtree/values/stats_table.h"

namespace cgtree {
namespace {

void add(FunctionStats& sum, const FunctionStats& stats) {
  for (const auto& field : kFunctionStats)
    sum.*field.value += stats.*field.value;
  for (int i = 0; i < kUnverifiedReasonCount; ++i)
    sum.unverified[i] += stats.unverified[i];
  for (int i = 0; i < kSkipReasonCount; ++i)
    sum.skips[i] += stats.skips[i];
}

// Adds the sizes of the function's calls. Requires: an entry for each axis. Does not allocate.
void add_axes(std::map<std::string, SizeSums>& sums, const FunctionState& function) noexcept {
  for (std::size_t i = 0; function.axes != nullptr && i < function.axes->size(); ++i)
    sums.find(function.axes->rule(i).name())->second += function.axes->size_sums(i);
}

std::size_t index_of(std::span<const std::unique_ptr<Node>> nodes, const Node& node) {
  const auto found = std::find_if(nodes.begin(), nodes.end(),
                                  [&](const auto& other) { return other.get() == &node; });
  return static_cast<std::size_t>(found - nodes.begin());
}

void learn(Recording& recording, const Slot& slot) {
  if (slot.range.bytes > 0 && recording.footprint.overlaps(slot.range)) {
    add_slot(recording.conflicts, slot.number);
  } else {
    remove_slot(recording.conflicts, slot.number);
  }
}

// Adds `count` to the numbers of recordings that use the slots of its outputs.
void use_slots(const Recording& recording, int count) noexcept {
  for (const OutputRecord& output : recording.outputs) {
    if (output.slot != nullptr) output.slot->recordings += static_cast<std::uint32_t>(count);
  }
}

}  // namespace

std::int64_t now_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

void Tree::set_hint(Node& before, Node& node) noexcept try {
  const std::uintptr_t word = Node::Hint::word_of(node);
  for (Node::Hint& hint : before.followed_by) {
    if (hint.function == word) {
      hint.node = &node;
      return;
    }
    if (!hint.is_of(node.function)) continue;
    const std::lock_guard lock(mutex_);
    hint = {word, &node};
    return;
  }
  const std::lock_guard lock(mutex_);
  before.followed_by.push_back({word, &node});
} catch (const std::bad_alloc&) {  // the next call of this kind is decided instead
}

void Tree::drop_hints(const Node& to) noexcept {
  const auto drop_from = [&](Node& node) {
    std::erase_if(node.followed_by, [&](const Node::Hint& hint) { return hint.node == &to; });
  };
  drop_from(root_);
  for (const auto& node : nodes_)
    drop_from(*node);
}

void Tree::mark_hints(Node& to, bool is_held_back) noexcept {
  is_held_back = is_held_back || to.recording.copies_outputs();
  if (to.is_held_back == is_held_back) return;
  const auto mark_in = [&](Node& node) {
    for (Node::Hint& hint : node.followed_by)
      if (hint.node == &to) hint.function = Node::Hint::word_of(to);
  };
  const std::lock_guard lock(mutex_);
  to.is_held_back = is_held_back;
  mark_in(root_);
  for (const auto& node : nodes_)
    mark_in(*node);
}

void Tree::note_last_of_key(Node& node) noexcept try {
  FunctionState& function = *node.function;
  function.last_of_key[std::hash<std::string>()(node.recording.key)] = &node;
} catch (const std::bad_alloc&) {
}

void KeyState::copy_moved_inputs(Call& call) const {
  for (const Node* const node : nodes) {
    const std::vector<InputRecord>& records = node->recording.inputs;
    for (std::size_t i = 0; i < call.inputs().step_size(); ++i) {
      const bool stays = records[i].treatment == Treatment::kManaged &&
                         records[i].address == call.inputs()[i].address();
      if (!stays) (void)call.copy_managed(i);
    }
  }
}

void KeyState::note_remake() noexcept {
  std::uint64_t replays = dropped_replays;
  for (const Node* node : nodes)
    replays += node->recording.costs.replays;
  replays - replays_before < kPays ? remakes.note_failure() : remakes.reset();
  replays_before = replays;
}

void KeyState::note_wait(std::uint64_t place) noexcept try {
  remakes.note_wait();
  if (waited.size() < kMostWaited) waited.resize(kMostWaited, 0);
  waited[next_waited++ % kMostWaited] = place;
} catch (const std::bad_alloc&) {
}

void KeyState::note_warmed(Guards asked) {
  constexpr std::size_t kMostWarmed = 64;
  if (asked.empty()) return;
  if (warmed_up) note_remake();
  std::erase_if(warmed_for, [](const Guards& one) { return one.empty(); });  // see forget_guards()
  if (warmed_for.size() == kMostWarmed) warmed_for.erase(warmed_for.begin());
  warmed_for.push_back(std::move(asked));
}

void KeyState::forget_guards() noexcept {
  if (warmed_for.empty()) return;
  warmed_up = released > 0;
  warmed_for.resize(warmed_up ? 1 : 0);
  for (Guards& asked : warmed_for)
    asked.clear();
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
  if (KeyState* key = find(call)) {
    key->last_used = ++key_uses;
    return *key;
  }
  if (key_count >= sweep_keys_at) sweep_keys();
  auto& bucket = keys[call.signature_hash()];
  bucket.push_back(std::make_unique<KeyState>(Signature(call.inputs())));
  ++key_count;
  bucket.back()->padded = call.axes().padded;
  bucket.back()->last_used = ++key_uses;
  return *bucket.back();
}

// A loop over as many signatures as recordings are allowed warms up each before it records any.
std::size_t FunctionState::max_idle_keys() const noexcept {
  return std::clamp(options.max_recordings, std::size_t{1024}, SIZE_MAX / 2);
}

// Keeps half of the allowed number, so that the next sweep is far away.
void FunctionState::sweep_keys() {
  std::vector<std::uint64_t> idle;
  for (const auto& [hash, bucket] : keys) {
    for (const auto& key : bucket) {
      if (key->nodes.empty()) idle.push_back(key->last_used);
    }
  }
  if (idle.size() >= max_idle_keys()) {
    const auto oldest_kept = idle.end() - static_cast<std::ptrdiff_t>(max_idle_keys() / 2);
    std::nth_element(idle.begin(), oldest_kept, idle.end());
    drop_keys(
        [&](const KeyState& key) { return key.nodes.empty() && key.last_used < *oldest_kept; });
    idle.resize(max_idle_keys() / 2);
  }
  sweep_keys_at = key_count + (max_idle_keys() - idle.size());
}

FunctionState& Tree::add_function(std::string name, StepFunction step, CompileOptions options) {
  if (name.empty()) throw InvalidArgument("a compiled function needs a name");
  if (!step) throw InvalidArgument(str_format("'{}' has no step function", name));
  check_options(name, options);
  auto function = std::make_unique<FunctionState>();
  function->name = std::move(name);
  function->step = std::move(step);
  function->options = std::move(options);
  function->writes_inputs =
      std::ranges::any_of(function->options.inputs, &InputOptions::is_mutated);
  function->axes = AxisPlan::of(function->name, function->options);
  function->id = next_function_++;
  const std::lock_guard lock(mutex_);
  const bool has_name = totals_.size() < kMaxNames || totals_.contains(function->name);
  function->totals = &totals_[has_name ? function->name : ""];
  for (std::size_t i = 0; function->axes != nullptr && i < function->axes->size(); ++i)
    function->totals->axes[function->axes->rule(i).name()];
  return *functions_.emplace_back(std::move(function));
}

void Tree::set_capture_failure(FunctionState& function, std::string what) {
  const std::lock_guard lock(mutex_);
  function.capture_failure = std::move(what);
}

void Tree::set_last_failure(FunctionState& function, std::string_view what) noexcept try {
  const std::lock_guard lock(mutex_);
  function.last_failure = what;
} catch (const std::bad_alloc&) {
}

// Outputs outlive the node, and so does a replay that is still running: the device destroys an
// executable graph after it has run, and the memory stays the pool's. Source: cudaGraphExecDestroy.
//
// The recording is destroyed after the mutex is released: it may be the last owner of foreign
// memory, whose deleters are foreign code.
void Tree::drop(Node& node) noexcept {
  std::unique_ptr<Node> dropped;
  const std::lock_guard lock(mutex_);
  drop_hints(node);
  if (&current() == &node) go_to_root();
  for (const auto& child : nodes_) {
    if (child->parent == node.id) child->parent = node.parent;
  }
  std::erase(node.key->nodes, &node);
  FunctionState& function = *node.function;
  std::erase_if(function.last_of_key, [&](const auto& last) { return last.second == &node; });
  use_slots(node.recording, -1);
  node.key->dropped_replays += node.recording.costs.replays;
  --node.function->recordings;
  const ExecHandle exec = node.recording.exec.handle();
  for (const auto& other : nodes_) {  // its memory counts for one of the recordings that share it
    if (other.get() == &node || other->recording.exec.handle() != exec) continue;
    other->recording.costs.graph_bytes += std::exchange(node.recording.costs.graph_bytes, 0);
  }
  spent.graph_bytes -= node.recording.costs.graph_bytes;
  dropped_patches_ += node.recording.costs.patches;
  const auto at = nodes_.begin() + static_cast<std::ptrdiff_t>(index_of(nodes_, node));
  dropped = std::move(*at);
  nodes_.erase(at);
}

std::unique_ptr<FunctionState> Tree::drop_removed() noexcept {
  std::unique_ptr<FunctionState> all;
  for (std::size_t i = functions_.size(); i-- > 0;) {
    const FunctionState& function = *functions_[i];
    if (!function.is_removed.load(std::memory_order_acquire)) continue;
    if (function.precaptures.load(std::memory_order_relaxed) > 0) continue;  // dropped later
    for (std::size_t n = nodes_.size(); n-- > 0;) {
      if (nodes_[n]->function == &function) drop(*nodes_[n]);
    }
    FunctionStats stats = stats_of(function);
    stats.frozen = 0;
    const std::lock_guard lock(mutex_);
    cgtree::add(function.totals->stats, stats);
    add_axes(function.totals->axes, function);
    std::unique_ptr<FunctionState> dropped = std::move(functions_[i]);
    dropped->next_dropped = std::move(all);
    dropped->drop_keys([](const KeyState&) { return true; });  // ends functions of guards
    all = std::move(dropped);
    functions_.erase(functions_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return all;
}

const Node* Tree::find(std::uint32_t id) const noexcept {
  for (const auto& node : nodes_) {
    if (node->id == id) return node.get();
  }
  return nullptr;
}

std::unique_ptr<Node> Tree::make_node(FunctionState& function, KeyState& key, Recording& recording,
                                      Explanation why, const ContextMemory& memory) {
  for (std::uint32_t i = 0; i < memory.slot_count(); ++i)
    learn(recording, memory.slot(i));
  make_room(key.nodes);
  auto made = std::make_unique<Node>();
  made->function = &function;
  made->key = &key;
  made->why = std::move(why);
  made->recorded_at_us = now_us();
  {
    const std::lock_guard lock(mutex_);
    make_room(nodes_);
  }
  made->is_held_back = recording.copies_outputs();
  made->recording = std::move(recording);
  return made;
}

Node& Tree::add(std::unique_ptr<Node> made) noexcept {
  Node& node = *made;
  node.id = next_node_++;
  node.parent = current_->id;
  {
    const std::lock_guard lock(mutex_);
    nodes_.push_back(std::move(made));
  }
  use_slots(node.recording, 1);
  node.key->nodes.push_back(&node);
  ++node.function->recordings;
  node.function->has_guards |= !node.recording.guards.empty();
  spent.graph_bytes += node.recording.costs.graph_bytes;
  const std::int64_t took = node.recording.costs.record_us;
  const auto bound = std::ranges::lower_bound(kRecordTimeBounds, took);
  ++spent.record_times[static_cast<std::size_t>(bound - kRecordTimeBounds.begin())];
  spent.record_time += std::chrono::microseconds(took);
  follow(node);
  go_to(node);
  return node;
}

void Tree::learn_new_conflicts(ContextMemory& memory) {
  for (const auto& node : nodes_) {
    for (const std::uint32_t number : memory.changed_slots())
      learn(node->recording, memory.slot(number));
  }
  memory.clear_changed_slots();
}

FunctionStats Tree::stats_of(const FunctionState& function) const {
  const Counters& counters = function.counters;
  FunctionStats stats;
  stats.warm_ups = counters.warm_ups;
  stats.recordings = counters.recordings;
  stats.replays = counters.replays;
  stats.failures = counters.failures;
  stats.evictions = counters.evictions;
  stats.kept_recordings = function.recordings;
  stats.frozen = function.frozen.get().has_value();
  stats.verified = counters.verified;
  stats.differed = counters.differed;
  for (int i = 0; i < kUnverifiedReasonCount; ++i)
    stats.unverified[i] = counters.unverified[i];
  for (int i = 0; i < kSkipReasonCount; ++i)
    stats.skips[i] = counters.skips[i];
  stats.skips[static_cast<int>(SkipReason::kNestedCall)] +=
      counters.nested_calls.load(std::memory_order_relaxed);
  stats.calls =
      stats.warm_ups + stats.recordings + stats.replays + stats.failures + stats.skipped();
  return stats;
}

ContextStats Tree::stats() const {
  ContextStats stats;
  const std::lock_guard lock(mutex_);
  for (const auto& [name, totals] : totals_)
    cgtree::add(stats, totals.stats);
  for (const auto& function : functions_)
    cgtree::add(stats, stats_of(*function));
  stats.graph_bytes = spent.graph_bytes + spent.marked_graph_bytes;
  stats.recording_time = spent.recording_time;
  stats.root_patches = dropped_patches_;
  for (const auto& node : nodes_)
    stats.root_patches += node->recording.costs.patches;
  return stats;
}

std::map<std::string, FunctionTotals, std::less<>> Tree::totals() const {
  const std::lock_guard lock(mutex_);
  auto all = totals_;
  for (const auto& function : functions_) {
    const auto name = std::ranges::find_if(
        totals_, [&](const auto& one) { return &one.second == function->totals; });
    FunctionTotals& sum = all.find(name->first)->second;
    cgtree::add(sum.stats, stats_of(*function));
    add_axes(sum.axes, *function);
  }
  return all;
}

void Tree::note_compared(FunctionState& function, std::vector<VerifiedTensor> compared) {
  const std::lock_guard lock(mutex_);
  std::vector<VerifiedTensor>& known = function.verified_tensors;
  for (VerifiedTensor& tensor : compared) {
    const auto found = std::ranges::find_if(
        known, [&](const VerifiedTensor& one) { return one.what == tensor.what; });
    if (found == known.end()) {
      known.push_back(std::move(tensor));
    } else {
      found->largest = std::max(found->largest, tensor.largest);
    }
  }
}

std::uint64_t Tree::digest() const noexcept {
  Digest digest;
  digest.add(last_used_).add(next_function_).add(next_node_);
  for (const auto& node : nodes_)
    digest.add(node->id).add(node->last_used);
  return digest.value();
}

void Tree::validate(const ContextMemory& memory) const {
  std::size_t graph_bytes = 0;
  for (const auto& node : nodes_) {
    const Recording& recording = node->recording;
    for (std::uint32_t i = 0; i < memory.slot_count(); ++i) {
      const bool known = has_slot(recording.conflicts, i);
      const Range range = memory.slot(i).range;
      CGTREE_CHECK(known == (range.bytes > 0 && recording.footprint.overlaps(range)));
    }
    graph_bytes += recording.costs.graph_bytes;
    CGTREE_CHECK(std::any_of(functions_.begin(), functions_.end(), [&](const auto& function) {
      return function.get() == node->function;
    }));
    for (const Node::Hint& hint : node->followed_by) {
      const Node* const next = hint.node;
      CGTREE_CHECK(find(next->id) == next && hint.is_of(next->function));
      CGTREE_CHECK(hint.function == Node::Hint::word_of(*next));
    }
  }
  CGTREE_CHECK(graph_bytes == spent.graph_bytes);
}

}  // namespace cgtree
