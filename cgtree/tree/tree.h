// Tree: all that a context knows: functions, keys, recordings, which recording followed which, and
// what was spent.
//
// Recordings are a flat list per key. Each recording also has hints: which recording of each
// function followed it last. A hint makes the next replay cheap to find; fits() decides whether it
// may be replayed. Followed from the start, the hints draw the tree (and the cycles) of the
// program's control flow, which snapshots show.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cgtree/explanation.h"
#include "cgtree/options.h"
#include "cgtree/record/call.h"
#include "cgtree/record/recording.h"
#include "cgtree/stats.h"

namespace cgtree {

struct FunctionState;
struct KeyState;

// A Node is a recording in the tree.
struct Node {
  std::uint32_t id = 0;      // 0 is the root, which records nothing and stands for "no call yet"
  std::uint32_t parent = 0;  // the node that had run before when it was recorded, as snapshots show
  FunctionState* function = nullptr;
  KeyState* key = nullptr;
  std::uint64_t last_used = 0;  // by the count of the context's replays and recordings
  Recording recording;
  Explanation why;  // why it was recorded

  struct Hint {
    const FunctionState* function;
    Node* node;
  };
  std::vector<Hint> followed_by;  // one for each function that has followed

  // Returns the node of `next` that followed last, or null.
  Node* predict(const FunctionState* next) const noexcept {
    for (const Hint& hint : followed_by) {
      if (hint.function == next) return hint.node;
    }
    return nullptr;
  }
  // Notes that `node` has followed. Allocates only the first time that its function follows.
  void follow(Node* node) {
    if (predict(node->function) != node) [[unlikely]] {
      set_hint(node);
    }
  }

 private:
  void set_hint(Node* node);
};

// A KeyState is what is known of a function for one signature of inputs.
struct KeyState {
  explicit KeyState(Signature s) : signature(std::move(s)) {}

  Signature signature;
  AxisSizes padded = {};  // the sizes of dynamic axes that the step function sees
  bool warmed_up = false;
  bool is_too_small = false;  // its graph has fewer nodes than CompileOptions::min_graph_nodes
  bool is_too_large = false;  // its graph alone takes more than ContextOptions::max_graph_bytes
  // Which allocations of a call became outputs when it was warmed up; sorted.
  std::vector<std::uint32_t> output_allocations;
  std::vector<Node*> nodes;  // its recordings, the oldest first
};

// A FunctionState is a compiled function with what the context has learned of it.
struct FunctionState : Function {
  FunctionStats stats;
  std::string capture_failure;              // what broke the last capture, or ""
  unsigned captures_to_try = 3;             // that may still fail
  std::uint64_t warned = 0;                 // skip reasons already warned of, one bit each
  bool warned_of_nothing = false;           // that its step function launches no work
  std::size_t recordings = 0;               // that the tree holds
  std::vector<std::size_t> static_changes;  // recordings that moves of each input have cost
  // Missing recordings are made now, whatever the options say: precapture() runs.
  std::atomic<bool> is_precaptured{false};
  std::atomic<bool> is_removed{false};  // its handle was destroyed; set by any thread
  std::unordered_map<std::uint64_t, std::vector<std::unique_ptr<KeyState>>> keys;  // by hash

  // Returns the key of the call, or null if there is none yet.
  KeyState* find(const Call& call) const;
  KeyState& find_or_add(const Call& call);
};

// What a context has spent so far of what is limited.
struct Spent {
  std::size_t graph_bytes = 0;  // of the recordings that the tree holds
  std::chrono::microseconds recording_time{0};
};

// A Tree holds what is known; TreeManager decides and acts.
// Thread safety: used by the thread that is inside the context, but for request_removal().
class Tree {
 public:
  // Throws InvalidArgument for a function without a name or a step function, and for options that
  // contradict each other.
  FunctionState& add_function(std::string name, StepFunction step, CompileOptions options);
  // Marks a function as removed; the next drop_removed() drops it. Any thread; does not allocate.
  static void request_removal(FunctionState& function) noexcept {
    function.is_removed.store(true, std::memory_order_release);
  }
  void drop_removed() noexcept;

  std::span<const std::unique_ptr<FunctionState>> functions() const noexcept { return functions_; }
  std::span<const std::unique_ptr<Node>> nodes() const noexcept { return nodes_; }
  const Node* find(std::uint32_t id) const noexcept;

  // The node that ran last, or the root.
  Node& current() noexcept { return *current_; }
  const Node& current() const noexcept { return *current_; }
  bool is_at_root() const noexcept { return current_ == &root_; }
  void go_to(Node& node) noexcept {
    node.last_used = ++last_used_;
    current_ = &node;
  }
  void go_to_root() noexcept { current_ = &root_; }

  // Adds a recording that follows the current node, and goes to it. If it throws, nothing has
  // changed.
  Node& add(FunctionState& function, KeyState& key, Recording recording, Explanation why,
            const ContextMemory& memory);
  void drop(Node& node) noexcept;

  // Returns the least recently used node for which counts(node), or null; never one of a pinned
  // function. A pure function of the tree: no two nodes were used at the same time.
  template <typename Counts>
  Node* least_recently_used(Counts counts) const noexcept {
    Node* found = nullptr;
    for (const auto& node : nodes_) {
      if (node->function->options.is_pinned || !counts(*node)) continue;
      if (found == nullptr || node->last_used < found->last_used) found = node.get();
    }
    return found;
  }

  // Makes every recording know the slots that it conflicts with.
  void learn_conflicts(const ContextMemory& memory) {
    if (slots_known_ != memory.slot_count()) [[unlikely]] {
      learn_new_conflicts(memory);
    }
  }

  // The sum over all functions there are and were, and what the recordings take.
  ContextStats stats() const;
  // Aborts if an invariant does not hold. Requires: learn_conflicts() has returned.
  void validate(const ContextMemory& memory) const;

  Spent spent;
  std::uint64_t root_patches = 0;

 private:
  template <typename Gone>
  void drop_if(Gone gone) noexcept;
  void learn_new_conflicts(const ContextMemory& memory);

  std::vector<std::unique_ptr<FunctionState>> functions_;
  std::vector<std::unique_ptr<Node>> nodes_;
  Node root_;
  Node* current_ = &root_;
  std::uint64_t last_used_ = 0;  // of all nodes
  std::uint32_t next_function_ = 1;
  std::uint32_t next_node_ = 1;
  std::uint32_t slots_known_ = 0;  // slots that all recordings' conflicts cover
  FunctionStats removed_stats_;    // of functions that were dropped
};

// Returns functions, recordings and pools as one JSON object, whose schema is docs/snapshot.md.
// Throws DeviceError.
std::string snapshot_json(const Tree& tree, ContextMemory& memory, const ContextOptions& options);

}  // namespace cgtree
