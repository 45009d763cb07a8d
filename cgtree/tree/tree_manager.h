// TreeManager: the one place that decides and does: it holds the tree, the pool and the functions
// of a lane.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cgtree/explanation.h"
#include "cgtree/options.h"
#include "cgtree/stats.h"
#include "cgtree/tree/decide.h"
#include "cgtree/tree/event_log.h"
#include "cgtree/tree/lane_gate.h"
#include "cgtree/memory/context_memory.h"
#include "cgtree/tree/node.h"
#include "cgtree/record/recorder.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// Threads: call(), mark_step(), stats() and snapshot_json() one at a time, else ConcurrentUse;
// remove_function() at any time.
class TreeManager {
 public:
  class Busy;

  TreeManager(Device device, ContextOptions options);
  ~TreeManager();
  TreeManager(const TreeManager&) = delete;
  TreeManager& operator=(const TreeManager&) = delete;

  ContextMemory& memory() noexcept { return *memory_; }

  FunctionState& add_function(std::string name, StepFunction step, CompileOptions options);
  // Drops it and its recordings, at once or, when a call is in progress, before the next.
  void remove_function(FunctionState& function) noexcept;

  void call(FunctionState& function, InputList inputs, TensorList& outputs);
  void mark_step();
  // What call() would do now, and why.
  Explanation explain(FunctionState& function, InputList inputs);

  FunctionStats stats_of(const FunctionState& function);
  std::vector<SizeCount> histogram(const FunctionState& function, std::string_view axis);
  ContextStats stats();
  std::string snapshot_json();
  void write_dot(std::uint32_t node, const std::string& path);

  // For tests: aborts if an invariant of tree or pool does not hold.
  void validate();
  std::size_t recordings() const noexcept { return nodes_.size(); }

 private:
  void call_on_lane(FunctionState& function, InputList inputs, TensorList& outputs);
  void call_with_axes(FunctionState& function, InputList inputs, TensorList& outputs);
  // As decide(); `inputs` become what the decision is about, as they are to be seen.
  Decision decide_with_axes(FunctionState& function, InputList& inputs) const;
  Node* smallest_that_holds(FunctionState& function, InputList inputs) const;
  void drop_sizes(FunctionState& function, const AxisSizes& gone) noexcept;
  void act_on(const Decision& decision, FunctionState& function, InputList inputs,
              TensorList& outputs);
  void run_nested(FunctionState& function, InputList inputs, TensorList& outputs);
  void replay(Node& node, InputList inputs, TensorList& outputs);
  void warm_up(FunctionState& function, InputList inputs, TensorList& outputs);
  void record_or_make_room(const Decision& decision, FunctionState& function, InputList inputs,
                           TensorList& outputs);
  void record(const Decision& decision, FunctionState& function, InputList inputs,
              TensorList& outputs);
  void skip(FunctionState& function, SkipReason reason, InputList inputs, TensorList& outputs,
            StreamRef stream);
  // More than the reason says; "" if there is no more.
  std::string detail(const FunctionState& function, SkipReason reason, InputList inputs) const;
  [[noreturn]] void refuse(const FunctionState& function, const Explanation& why,
                           InputList inputs) const;
  void run_eagerly(FunctionState& function, InputList inputs, TensorList& outputs,
                   StreamRef stream);
  StreamRef captured_by_others(StreamRef caller) const;
  void catch_up();
  Situation situation(const FunctionState& function, InputList inputs) const;
  Explanation explanation(const Decision& decision, const FunctionState& function,
                          InputList inputs) const;
  Node& add_node(FunctionState& function, KeyState& key, Recording recording);
  void go_to(Node& node) noexcept;
  void go_to_root() noexcept;
  void evict(Node& node, SkipReason limit) noexcept;
  Spent spent() const noexcept;
  void keep_within_graph_bytes(Node& newest) noexcept;
  std::size_t make_room(std::size_t needed, bool must_evict = false) noexcept;
  std::size_t give_back(std::size_t needed) noexcept;
  std::vector<Range> written() const;
  // Drops the nodes for which gone(node).
  template <typename Gone>
  void drop_nodes(Gone gone) noexcept;
  void count_static_changes(FunctionState& function, const Cause& cause);
  // Conflicts with slots made since the last time.
  void learn_conflicts(Recording& recording) const;
  void learn_all_conflicts();
  void drop_function(FunctionState& function) noexcept;
  void drop_removed() noexcept;

  // Constant after construction.
  const ContextOptions options_;
  struct Unretain {
    void operator()(ContextMemory* memory) const noexcept { memory->unretain(); }
  };
  const std::unique_ptr<ContextMemory, Unretain> memory_;  // the manager's reference

  const bool has_graphs_;  // the device's capability

  // The lane's.
  Recorder recorder_;
  EventLog events_;
  const Limits limits_;
  Node root_;
  Node* current_ = &root_;
  std::size_t depth_ = 0;        // nodes that were gone to since the root
  std::uint64_t last_used_ = 0;  // of all nodes
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<FunctionState>> functions_;
  std::uint32_t next_function_ = 1;
  std::uint32_t next_node_ = 1;
  std::uint32_t slots_known_ = 0;  // slots that all recordings' conflicts cover
  FunctionStats removed_stats_;    // of functions that are gone
  std::uint64_t root_patches_ = 0;
  std::size_t graph_bytes_ = 0;  // of nodes_
  std::chrono::microseconds recording_time_{0};

  LaneGate gate_;
  std::atomic<bool> any_removed_{false};  // of the functions
};

}  // namespace cgtree
