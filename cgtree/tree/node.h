// Node and FunctionState: the tree of recordings, and the functions they belong to.
//
// The tree is an index: it says what usually follows what. Whether a recording may be replayed is
// fits()'s to say. An edge may lead to a node recorded elsewhere in the tree: recordings are
// shared.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "cgtree/mismatch.h"
#include "cgtree/options.h"
#include "cgtree/stats.h"
#include "cgtree/step_function.h"
#include "cgtree/axes/axis_plan.h"
#include "cgtree/record/recording.h"

namespace cgtree {

struct FunctionState;
struct KeyState;

struct Node {
  std::uint32_t id = 0;    // 0 is the root, which records nothing
  Node* parent = nullptr;  // where it was recorded; null for the root
  FunctionState* function = nullptr;
  KeyState* key = nullptr;
  std::uint64_t last_used = 0;  // by the count of the context's replays and recordings
  Recording recording;
  Cause cause;  // why it was recorded

  struct Edge {
    const FunctionState* function;
    Node* node;
  };
  std::vector<Edge> edges;  // what has followed; the most recent of each function first

  // The node of `function` that followed last, or null.
  Node* predict(const FunctionState* next) const noexcept {
    for (const Edge& edge : edges) {
      if (edge.function == next) return edge.node;
    }
    return nullptr;
  }
  // Notes that `node` has followed. Does nothing where predict() names it already.
  void follow(Node* node) {
    if (predict(node->function) != node) [[unlikely]] {
      put_first(node);
    }
  }

 private:
  void put_first(Node* node);
};

// What is known of a function for one signature of inputs.
struct KeyState {
  explicit KeyState(Signature s) : signature(std::move(s)) {}

  Signature signature;
  AxisSizes axis_sizes = {};  // that the step function sees
  bool warmed_up = false;
  bool is_too_small = false;  // its graph has fewer nodes than CompileOptions::min_graph_nodes
  bool is_too_large = false;  // its graph alone takes more than ContextOptions::max_graph_bytes
  // Which allocations of a call became outputs when it was warmed up; sorted.
  std::vector<std::uint32_t> retained;
  std::vector<Node*> nodes;
};

struct FunctionState {
  std::uint32_t id = 0;
  std::string name;
  StepFunction step;
  CompileOptions options;
  std::unique_ptr<AxisPlan> axes;  // null: it has no dynamic axes
  FunctionStats stats;
  std::string capture_failure;     // what broke the last capture; empty where nothing did
  unsigned captures_to_try = 3;    // that may still fail
  std::uint64_t warned = 0;        // skip reasons already warned of, one bit each
  bool warned_of_nothing = false;  // that its step function launches no work
  std::size_t recordings = 0;
  std::vector<std::size_t> static_changes;  // recordings that moves of each input have cost
  // What is missing is recorded now, whatever the options say.
  std::atomic<bool> is_precaptured{false};
  std::atomic<bool> is_removed{false};  // its handle is gone; set by any thread
  std::unordered_map<std::uint64_t, std::vector<std::unique_ptr<KeyState>>> keys;  // by hash

  const InputOptions& input_options(std::size_t i) const {
    static const InputOptions none;
    return i < options.inputs.size() ? options.inputs[i] : none;
  }
  // Whether the input was promised to be static, and has broken the promise too often.
  bool is_demoted(std::size_t i) const noexcept {
    return options.on_static_change == OnStaticChange::kDemote && i < static_changes.size() &&
           static_changes[i] >= options.max_static_changes;
  }
  KeyState* find(InputList inputs, std::uint64_t hash) const;
  KeyState& find_or_add(InputList inputs);
};

}  // namespace cgtree
