// TreeManager: a context as its faces see it: its calls, its functions and its monitors.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cgtree/tree/workings.h"
#include "cgtree/values/explanation.h"
#include "cgtree/values/options.h"
#include "cgtree/values/stats.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// A TreeManager lets calls and monitors into a context, and what the caller asks of all recordings.
// Thread safety: one thread at a time; a second one gets ConcurrentUse. Monitors may be called by
// any thread at any time, and so may remove_function().
class TreeManager {
 public:
  static std::shared_ptr<TreeManager> make(Device device, ContextOptions options);
  TreeManager(const TreeManager&) = delete;
  TreeManager& operator=(const TreeManager&) = delete;

  // For those who drive calls: see OpenCall.
  Workings& workings() noexcept { return workings_; }
  const Workings& workings() const noexcept { return workings_; }
  ContextMemory& memory() noexcept { return *workings_.memory; }
  Door& door() noexcept { return workings_.door; }
  const Group* group() const noexcept { return workings_.options.group.get(); }  // null for none
  // See Attempts.
  bool agree(bool mine) { return workings_.attempts.agree(mine); }

  FunctionState& add_function(std::string name, StepFunction step, CompileOptions options);
  // Drops the function and its recordings, at once or, if a call is in progress, before the next;
  // not while it is precaptured, after which request_upkeep() must follow. Does not allocate.
  void remove_function(FunctionState& function) noexcept;
  // Drops what has to be dropped, at once or, if a call is in progress, before the next.
  void request_upkeep() noexcept { door().request_upkeep(); }

  void call(FunctionState& function, const InputList& inputs, TensorList& outputs);
  void mark_step();
  void keep_across_steps(const Tensor& tensor);
  std::size_t release_captured(std::optional<std::uint64_t> capture);
  std::size_t trim(bool to_device = false);
  std::size_t release_memory();

  // Monitors. The first four read while calls go on.
  FunctionStats stats_of(const FunctionState& function) const;
  std::vector<SizeCount> histogram(const FunctionState& function, std::string_view axis) const;
  std::vector<SizesCount> histogram(const FunctionState& function) const;
  ContextStats stats() const;
  // These two wait for the call in progress, and make the next one wait for them.
  // Returns what call() would do now, and why.
  Explanation explain(FunctionState& function, InputList inputs);
  void write_dot(std::uint32_t node, const std::string& path);
  // Throws ConcurrentUse if another thread is inside.
  void check_idle() { const Visit visit(door()); }

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
  std::size_t recordings() const noexcept { return workings_.tree.nodes().size(); }

 private:
  TreeManager(Device device, ContextOptions options) : workings_(device, std::move(options)) {}

  [[gnu::noinline]] void run(Visit& visit, FunctionState& function, const InputList& inputs,
                             TensorList& outputs);
  void run_nested(FunctionState& function, InputList inputs, TensorList& outputs);
  void order_nested(const FunctionState& function, const InputList& inputs);

  Workings workings_;
};

}  // namespace cgtree
