// Drops recordings at a limit, and the keys of sizes that an axis no longer keeps.
#include "cgtree/tree/evict.h"

#include <algorithm>
#include <utility>

#include "base/log_event.h"

namespace cgtree {

void Evictor::evict(Node& node, SkipReason limit) noexcept {
  const auto range = extensions_.open_range("evict", *node.function, node.id, nullptr, limit);
  extensions_.after({.kind = CallEvent::kEvict, .node = &node, .limit = limit});
  ++node.function->counters.evictions;
  // If memory is short, as many recordings are evicted as necessary: of these, only one that was
  // never replayed counts as not paid.
  if (limit != SkipReason::kPoolLimit || node.recording.costs.replays == 0) note_whether_paid(node);
  tree_.drop(node);
}

// If a recording is dropped before it paid, the next one will not pay either. Recordings of
// precapture() were not needed yet.
void Evictor::note_whether_paid(const Node& node) noexcept {
  Backoff& evictions = node.function->evictions;
  const bool is_precaptured = node.function->precaptures.load(std::memory_order_relaxed) > 0;
  if (node.recording.costs.replays >= KeyState::kPays) {
    evictions.reset();
  } else if (!is_precaptured && !node.key->is_too_large) {
    evictions.note_failure();
  }
}

void Evictor::keep_within_graph_bytes(const Node& newest) noexcept {
  if (limits_.at_limit != AtLimit::kEvict) return;
  // Recordings that share a graph are dropped together, because only dropping the last frees it.
  const auto is_last_of_its_graph = [&](const Node& node) {
    return std::ranges::none_of(tree_.nodes(), [&](const auto& other) {
      return other->recording.exec.handle() == node.recording.exec.handle() &&
             (other.get() == &newest || other->last_used > node.last_used);
    });
  };
  while (tree_.spent.graph_bytes > limits_.graph_bytes) {
    Node* const victim = tree_.least_recently_used(is_last_of_its_graph);
    if (victim == nullptr) return;
    evict(*victim, SkipReason::kGraphBytesLimit);
  }
}

std::size_t Evictor::trim() {
  return memory_.trim(footprints());
}

std::size_t Evictor::make_room(std::size_t needed, bool must_evict) noexcept {
  std::size_t given_back = try_to_trim();
  while (given_back < needed || std::exchange(must_evict, false)) {
    if (!evict_one()) break;
    given_back += try_to_trim();
  }
  return given_back;
}

bool Evictor::evict_one() noexcept {
  if (limits_.at_limit != AtLimit::kEvict) return false;
  Node* const victim = tree_.least_recently_used([](const Node&) { return true; });
  if (victim != nullptr) evict(*victim, SkipReason::kPoolLimit);
  return victim != nullptr;
}

std::size_t Evictor::try_to_trim() noexcept try {
  return trim();
} catch (const std::exception& error) {
  log_event(LogLevel::kError, "trim error=\"{}\"", error.what());
  return 0;
}

void Evictor::drop_sizes(FunctionState& function, const AxisSizes& dropped) noexcept {
  const auto is_dropped = [&](const KeyState& key) {
    for (std::size_t axis = 0; axis < function.axes->size(); ++axis) {
      if (dropped[axis] != -1 && key.padded[axis] == dropped[axis]) return true;
    }
    return false;
  };
  for (auto& [hash, keys] : function.keys) {
    for (const auto& key : keys) {
      while (is_dropped(*key) && !key->nodes.empty())
        evict(*key->nodes.back(), SkipReason::kSizeLimit);
    }
  }
  function.drop_keys(is_dropped);
}

// Returns the ranges that recordings write or read in the pools, in any order.
std::vector<Range> Evictor::footprints() const {
  std::vector<Range> ranges;
  for (const auto& node : tree_.nodes()) {
    const auto& more = node->recording.footprint.ranges();
    ranges.insert(ranges.end(), more.begin(), more.end());
  }
  return ranges;
}

}  // namespace cgtree
