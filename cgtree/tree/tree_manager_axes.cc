// Calls of functions with dynamic axes: which sizes the step function sees, and what goes when a
// size more is recorded.
#include <fmt/format.h>

#include <limits>

#include "base/error.h"
#include "cgtree/tree/busy.h"
#include "cgtree/tree/input_handshake.h"
#include "cgtree/record/treatment.h"
#include "cgtree/tree/tree_manager.h"

namespace cgtree {

using Action = Decision::Action;

void TreeManager::call_with_axes(FunctionState& function, InputList inputs, TensorList& outputs) {
  AxisPlan& plan = *function.axes;
  if (plan.choose().kind == AxisChoice::Kind::kSize) [[likely]] {
    const InputList seen = plan.see(inputs);
    if (Node* node = predict(situation(function, seen))) [[likely]] {
      replay(*node, seen, outputs);
      return plan.note(!function.is_precaptured.load(std::memory_order_relaxed));
    }
  }
  check_inputs(function, *memory_, inputs);
  const StreamSynchronization handshake = handshake_with(memory_->stream(), inputs);
  const Decision decision = decide_with_axes(function, inputs);
  act_on(decision, function, inputs, outputs);
  handshake.finish();
  if (decision.action == Action::kWarmUp) drop_sizes(function, plan.admit());
  plan.note(!function.is_precaptured.load(std::memory_order_relaxed));
}

Decision TreeManager::decide_with_axes(FunctionState& function, InputList& inputs) const {
  AxisPlan& plan = *function.axes;
  const InputList given = inputs;
  if (situation(function, given).is_off()) return decide(situation(function, given));
  const AxisChoice choice = plan.choose();
  if (choice.kind == AxisChoice::Kind::kSkip) return {.reason = choice.reason};
  if (choice.kind == AxisChoice::Kind::kThrow) {
    return {.action = Action::kThrow, .reason = choice.reason};
  }
  WhileMissing policy = WhileMissing::kNextLarger;
  SkipReason reason = choice.reason;
  if (choice.kind == AxisChoice::Kind::kSize) {
    inputs = plan.see(given);
    Decision decision = decide(situation(function, inputs));
    policy = function.is_precaptured.load(std::memory_order_relaxed)
                 ? WhileMissing::kRecord
                 : function.options.while_missing;
    reason = SkipReason::kNotRecorded;
    const bool is_missing =
        decision.action == Action::kWarmUp || decision.action == Action::kRecord;
    if (!is_missing || policy == WhileMissing::kRecord) return decision;
  }
  inputs = given;
  if (policy == WhileMissing::kNextLarger) {
    if (Node* node = smallest_that_holds(function, given)) {
      inputs = plan.see(given);
      return {.action = Action::kReplay, .node = node};
    }
  }
  return {.reason = reason};
}

// The sizes chosen are then those of the node.
Node* TreeManager::smallest_that_holds(FunctionState& function, InputList inputs) const {
  AxisPlan& plan = *function.axes;
  Node* smallest = nullptr;
  AxisSizes sizes = plan.seen();
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [hash, keys] : function.keys) {
    for (const auto& key : keys) {
      if (!plan.may_see(key->axis_sizes) || plan.work(key->axis_sizes) >= least) continue;
      plan.choose(key->axis_sizes);
      const InputList seen = plan.see(inputs);
      if (!key->signature.matches(seen)) continue;
      for (Node* node : key->nodes) {
        if (!fits<true>(node->recording, seen, *memory_).fits()) continue;
        smallest = node;
        sizes = key->axis_sizes;
        least = plan.work(sizes);
        break;
      }
    }
  }
  plan.choose(sizes);
  return smallest;
}

std::vector<SizeCount> TreeManager::histogram(const FunctionState& function,
                                              std::string_view axis) {
  Busy busy(*this);
  if (function.axes == nullptr) {
    throw InvalidArgument(
        fmt::format("'{}' has no dynamic axis '{}': it has none", function.name, axis));
  }
  return function.axes->histogram(function.axes->find(axis)).counts();
}

void TreeManager::drop_sizes(FunctionState& function, const AxisSizes& gone) noexcept {
  const auto is_gone = [&](const KeyState& key) {
    for (std::size_t axis = 0; axis < function.axes->size(); ++axis) {
      if (gone[axis] != -1 && key.axis_sizes[axis] == gone[axis]) return true;
    }
    return false;
  };
  for (auto& [hash, keys] : function.keys) {
    for (const auto& key : keys) {
      while (is_gone(*key) && !key->nodes.empty())
        evict(*key->nodes.back(), SkipReason::kSizeLimit);
    }
    std::erase_if(keys, [&](const auto& key) { return is_gone(*key); });
  }
  std::erase_if(function.keys, [](const auto& bucket) { return bucket.second.empty(); });
}

}  // namespace cgtree
