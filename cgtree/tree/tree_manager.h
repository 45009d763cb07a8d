// TreeManager: runs the calls of a context: asks decide() what to do with each, and does it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cgtree/explanation.h"
#include "cgtree/memory/context_memory.h"
#include "cgtree/options.h"
#include "cgtree/record/recorder.h"
#include "cgtree/stats.h"
#include "cgtree/tree/decide.h"
#include "cgtree/tree/door.h"
#include "cgtree/tree/event_log.h"
#include "cgtree/tree/evict.h"
#include "cgtree/tree/tree.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// A TreeManager holds a context's memory and its tree, and runs its calls.
// Thread safety: one thread at a time; a second one gets ConcurrentUse. remove_function() may be
// called at any time.
class TreeManager {
 public:
  TreeManager(Device device, ContextOptions options);
  ~TreeManager();
  TreeManager(const TreeManager&) = delete;
  TreeManager& operator=(const TreeManager&) = delete;

  ContextMemory& memory() noexcept { return *memory_; }
  Door& door() noexcept { return door_; }

  FunctionState& add_function(std::string name, StepFunction step, CompileOptions options);
  // Drops the function and its recordings, at once or, if a call is in progress, before the next.
  // Does not allocate.
  void remove_function(FunctionState& function) noexcept;

  void call(FunctionState& function, InputList inputs, TensorList& outputs);
  void mark_step();
  // Returns what call() would do now, and why.
  Explanation explain(FunctionState& function, InputList inputs);

  FunctionStats stats_of(const FunctionState& function);
  std::vector<SizeCount> histogram(const FunctionState& function, std::string_view axis);
  ContextStats stats();
  std::string snapshot_json();
  void write_dot(std::uint32_t node, const std::string& path);

  // For tests: aborts if an invariant of tree or pools does not hold.
  void validate();
  std::size_t recordings() const noexcept { return tree_.nodes().size(); }

 private:
  struct Unretain {
    void operator()(ContextMemory* memory) const noexcept {
      memory->end_calls();
      memory->unretain();
    }
  };

  void call_inside(Visit& visit, FunctionState& function, InputList inputs, TensorList& outputs);
  void run_nested(FunctionState& function, InputList inputs, TensorList& outputs);
  void act_on(const Decision& decision, FunctionState& function, TensorList& outputs);
  void replay(Node& node, const InputList& inputs, TensorList& outputs);
  [[noreturn]] void refuse_launch(Node& node, Code code);
  void warm_up(FunctionState& function, TensorList& outputs);
  void record_or_make_room(const Decision& decision, FunctionState& function, TensorList& outputs);
  void record(const Decision& decision, FunctionState& function, TensorList& outputs);
  void keep(const Decision& decision, FunctionState& function, KeyState& key, Recording recording,
            Explanation why);
  void skip(FunctionState& function, SkipReason reason, TensorList& outputs, StreamRef stream);
  void run_eagerly(FunctionState& function, TensorList& outputs, StreamRef stream);
  [[noreturn]] void refuse(const Decision& decision, const FunctionState& function) const;
  void count_static_changes(FunctionState& function, const Explanation& why);
  void catch_up();
  Situation situation(const FunctionState& function) const;
  void drop_stale() noexcept;
  std::size_t give_back(std::size_t needed) noexcept;

  // Constant after construction.
  const ContextOptions options_;
  const std::unique_ptr<ContextMemory, Unretain> memory_;  // the manager's reference
  const bool has_graphs_;                                  // whether the device has them
  const Limits limits_;

  Door door_;

  // Used by the thread that is inside. Recordings return their tables to the pools, so the tree
  // must be destroyed before the memory.
  Recorder recorder_;
  EventLog events_;
  Tree tree_;
  Evictor evictor_;
  Call call_;  // the present one
};

}  // namespace cgtree
