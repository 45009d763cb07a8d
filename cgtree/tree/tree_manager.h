// TreeManager: runs the calls of a context: asks decide() what to do with each, and does it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cgtree/explanation.h"
#include "cgtree/memory/context_memory.h"
#include "cgtree/options.h"
#include "cgtree/record/recorder.h"
#include "cgtree/record/rehearsal.h"
#include "cgtree/stats.h"
#include "cgtree/tree/attempts.h"
#include "cgtree/tree/decide.h"
#include "cgtree/tree/door.h"
#include "cgtree/tree/event_log.h"
#include "cgtree/tree/evict.h"
#include "cgtree/tree/tree.h"
#include "cgtree/tree/verifier.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// A TreeManager holds a context's memory and its tree, and runs its calls.
// Thread safety: one thread at a time; a second one gets ConcurrentUse. Monitors may be called by
// any thread at any time, and so may remove_function().
class TreeManager : public std::enable_shared_from_this<TreeManager> {
 public:
  TreeManager(Device device, ContextOptions options);
  ~TreeManager();
  TreeManager(const TreeManager&) = delete;
  TreeManager& operator=(const TreeManager&) = delete;

  ContextMemory& memory() noexcept { return *memory_; }
  Door& door() noexcept { return door_; }
  const Group* group() const noexcept { return options_.group.get(); }  // null for none
  // Returns whether all ranks of the group say `mine`: for limits outside of calls. Throws
  // GroupError.
  bool agree(bool mine) const {
    return options_.group == nullptr ? mine : cgtree::agree(*options_.group, mine);
  }

  FunctionState& add_function(std::string name, StepFunction step, CompileOptions options);
  // Drops the function and its recordings, at once or, if a call is in progress, before the next.
  // Does not allocate.
  void remove_function(FunctionState& function) noexcept;

  void call(FunctionState& function, const InputList& inputs, TensorList& outputs);
  void mark_step();
  void keep_across_steps(const Tensor& tensor);
  std::size_t release_captured(std::optional<std::uint64_t> capture);
  std::size_t trim();
  std::size_t release_memory();

  // For precapture(): adds to `held` a reference to each output of the recording, as if it had been
  // replayed and the caller held it, except for those that lie where something is held already, or
  // if it was evicted. Their contents are undefined.
  void hold_outputs(std::uint32_t node, std::vector<StorageRef>& held);
  // The same for a rehearsal of the function.
  void hold_outputs(const Rehearsal& rehearsal, const FunctionState& function,
                    std::vector<StorageRef>& held);
  // Captures what such a call would record now; null if it would not, or could not, and `why` says
  // so. Throws as call().
  std::unique_ptr<Rehearsal> rehearse(FunctionState& function, InputList inputs, std::string* why);
  void end_rehearsals(std::vector<std::unique_ptr<Rehearsal>>& rehearsals) noexcept;

  // Monitors. The first seven read while calls go on.
  FunctionStats stats_of(const FunctionState& function) const;
  std::vector<SizeCount> histogram(const FunctionState& function, std::string_view axis) const;
  std::vector<SizesCount> histogram(const FunctionState& function) const;
  ContextStats stats() const;
  Verification verification() const { return tree_.verification(options_.verify_every); }
  std::string snapshot_json() const;
  ContextMetrics metrics() const;
  // These two wait for the call in progress, and make the next one wait for them.
  // Returns what call() would do now, and why.
  Explanation explain(FunctionState& function, InputList inputs);
  void write_dot(std::uint32_t node, const std::string& path);
  // Throws ConcurrentUse if another thread is inside.
  void check_idle() { const Visit visit(door_); }

  // Replays the call if the recording that followed last time fits; returns whether it did. Throws
  // as call().
  bool replay_predicted(FunctionState& function, const InputList& inputs);
  // Drops the recordings that refer to memory in the range: of the function, or of all. Returns how
  // many. Throws ConcurrentUse.
  std::size_t invalidate(const FunctionState* function, Range range);
  // Any thread. The recordings that refer to memory which is not declared any more are dropped at
  // once or, if a call is in progress, before the next. Throw InvalidArgument: see DeclaredMemory.
  void declare(std::string name, Range range);
  void undeclare(const std::string& name);

  // For tests: aborts if an invariant of tree or pools does not hold.
  void validate();
  std::size_t recordings() const noexcept { return tree_.nodes().size(); }

 private:
  friend class OpenStep;

  struct End {
    void operator()(ContextMemory* memory) const noexcept {
      memory->end_calls();
      memory->end();
    }
  };

  void count_failure(FunctionState& function) noexcept;
  void count_warm_up(FunctionState& function, const KeyState& key, const Stopwatch& stopwatch);
  std::string key_text() const;
  void count_skip(FunctionState& function, SkipReason reason,
                  const AnnouncedSkip& announced) noexcept;
  void call_inside(Visit& visit, FunctionState& function, const InputList& inputs,
                   TensorList& outputs);
  Node* find_predicted(Visit& visit, FunctionState& function, const InputList& inputs);
  void call_captured(FunctionState& function, InputList inputs, TensorList& outputs,
                     StreamRef captured);
  HeldInputs hold(const InputList& inputs);
  void hold(const Recording& recording, std::uint32_t function, std::vector<StorageRef>& held);
  void wait_for_readers(const FunctionState& function, const InputList& inputs);
  void run_nested(FunctionState& function, InputList inputs, TensorList& outputs);
  void act_on(const Decision& decision, FunctionState& function, TensorList& outputs);
  void replay(Node& node, const InputList& inputs, TensorList& outputs);
  void begin_replay(Node& node) noexcept;
  void launch_replay(Node& node, const InputList& inputs, TensorList& outputs);
  void call_breaks_of_replay(Node& node, const InputList& inputs, TensorList& outputs);
  void launch_watched(Node& node, const InputList& inputs, TensorList& outputs);
  static void count_replay(FunctionState& function) noexcept;
  void verify(Node& node, TensorList& outputs);
  std::unique_ptr<ReplayCheck> replay_to_verify(Node& node, TensorList& outputs);
  void drop_refused(const FunctionState& function);
  [[noreturn]] void refuse_launch(Node& node, Code code);
  void warm_up(FunctionState& function, TensorList& outputs);
  void record(const Decision& decision, FunctionState& function, TensorList& outputs);
  void run_in_place_of(const CaptureFailure& failure, FunctionState& function, KeyState& key,
                       TensorList& outputs);
  void tell_of_outputs(const Node& node);
  void forget_capture_failure(FunctionState& function, KeyState& key);
  void keep(const Decision& decision, FunctionState& function, KeyState& key, Recorded& recorded,
            Explanation why, TensorList& outputs);
  void skip(FunctionState& function, SkipReason reason, TensorList& outputs, StreamRef stream);
  AnnouncedSkip announce_skip(FunctionState& function, SkipReason reason);
  void expect_capture_failure(const CaptureFailure& failure, const FunctionState& function,
                              KeyState& key) const;
  void count_capture_failure(const CaptureFailure& failure, FunctionState& function, KeyState& key);
  std::vector<Tensor> run_eagerly(FunctionState& function, StreamRef stream);
  [[noreturn]] void refuse(const Decision& decision, const FunctionState& function) const;
  void count_static_changes(FunctionState& function, const Explanation& why);
  void catch_up();
  Situation situation(const FunctionState& function) const;
  void drop_stale() noexcept;
  void drop_released() noexcept;
  std::size_t drop_all(const FunctionState* function, Range range, std::string_view what) noexcept;
  std::size_t give_back(std::size_t needed) noexcept;

  // Constant after construction.
  const ContextOptions options_;
  const std::unique_ptr<ContextMemory, End> memory_;  // the manager's reference
  const bool has_graphs_;                             // whether the device has them
  const Limits limits_;
  EventLog events_;
  const bool watches_replays_;  // whether events, verification or a profiler do

  Door door_;

  // Used by the thread that is inside, as are events. Recordings return their tables to the pools,
  // so the tree must be destroyed before the memory.
  Recorder recorder_;
  Tree tree_;
  Evictor evictor_;
  Attempts attempts_;
  Verifier verifier_;
  Call call_;  // the present one
};

}  // namespace cgtree
