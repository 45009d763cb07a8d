// What recordings cost, and which of them go when that is more than they may.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "cgtree/tree/busy.h"
#include "cgtree/tree/eviction.h"
#include "cgtree/tree/tree_manager.h"

namespace cgtree {

Spent TreeManager::spent() const noexcept {
  return {graph_bytes_, recording_time_};
}

// A recording that was just made stays.
void TreeManager::keep_within_graph_bytes(Node& newest) noexcept {
  if (limits_.at_limit != AtLimit::kEvict) return;
  while (graph_bytes_ > limits_.graph_bytes) {
    Node* const victim = next_to_evict(nodes_, [&](const Node& node) { return &node != &newest; });
    if (victim == nullptr) return;
    evict(*victim, SkipReason::kGraphBytesLimit);
  }
}

// Where a capture failed for want of memory nothing has run yet, so that it may be tried again, as
// long as there are recordings to evict.
void TreeManager::record_or_make_room(const Decision& decision, FunctionState& function,
                                      InputList inputs, TensorList& outputs) {
  try {
    return record(decision, function, inputs, outputs);
  } catch (const OutOfMemory& error) {
    const std::size_t needed = error.report() != nullptr ? error.report()->requested : 1;
    const std::size_t before = nodes_.size();
    make_room(needed, /*must_evict=*/true);
    if (nodes_.size() == before) throw;
  }
  act_on(decide(situation(function, inputs)), function, inputs, outputs);
}

// Evicts until `needed` bytes of the pools are given back (one recording at least, if told so);
// returns how many were.
std::size_t TreeManager::make_room(std::size_t needed, bool must_evict) noexcept {
  if (limits_.at_limit != AtLimit::kEvict) return 0;
  try {
    std::size_t given = memory_->trim(written());
    while (given < needed || std::exchange(must_evict, false)) {
      Node* const victim =
          next_to_evict(nodes_, [&](const Node& node) { return &node != current_; });
      if (victim == nullptr) break;
      evict(*victim, SkipReason::kPoolLimit);
      given += memory_->trim(written());
    }
    return given;
  } catch (const std::exception& error) {
    log_event(LogLevel::kError, "make_room error=\"{}\"", error.what());
    return 0;
  }
}

// What recordings write or read in the pools, in any order.
std::vector<Range> TreeManager::written() const {
  std::vector<Range> ranges;
  for (const auto& node : nodes_) {
    const auto& more = node->recording.footprint.ranges();
    ranges.insert(ranges.end(), more.begin(), more.end());
  }
  return ranges;
}

// Memory is short, here or in another context of the device. Any thread: the lane's own while a
// step runs eagerly, another only while nobody is in the context.
std::size_t TreeManager::give_back(std::size_t needed) noexcept {
  if (memory_->runs_eager_step_here()) return make_room(needed);
  if (!gate_.enter_for_upkeep()) return 0;
  if (!memory_->any_output_live()) go_to_root();
  const std::size_t given = make_room(needed);
  gate_.leave_upkeep();
  return given;
}

}  // namespace cgtree
