// Engine: all that the calls of a context work with, shared by its faces and its extensions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cgtree/memory/context_memory.h"
#include "cgtree/record/call.h"
#include "cgtree/record/recorder.h"
#include "cgtree/tree/decide.h"
#include "cgtree/tree/evict.h"
#include "cgtree/tree/extensions.h"
#include "cgtree/tree/gate.h"
#include "cgtree/tree/tree.h"
#include "cgtree/tree/votes.h"
#include "cgtree/values/explanation.h"
#include "cgtree/values/options.h"
#include "cgtree/values/stats.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// An Engine makes the calls of one context, and holds its tree, its memory and its extensions.
//
// Thread safety: one thread at a time; a second one gets ConcurrentUse. Monitors may be called by
// any thread at any time, and so may remove_function(). The members are used by the thread that is
// inside `gate`.
class Engine {
 public:
  static std::shared_ptr<Engine> make(Device device, ContextOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  FunctionState& add_function(std::string name, StepFunction step, CompileOptions options);
  // Drops the function and its recordings, at once or, if a call is in progress, before the next;
  // not while it is precaptured, after which gate.request_upkeep() must follow. Does not allocate.
  void remove_function(FunctionState& function) noexcept;

  void call(FunctionState& function, const InputList& inputs, TensorList& outputs);
  // Replays the call if the recording that followed last time fits; returns whether it did. Throws
  // as call().
  bool replay_predicted(FunctionState& function, const InputList& inputs);

  // Drops the recordings that refer to memory in the range: of the function, or of all if it is
  // null. Returns how many. Throws ConcurrentUse, InvalidArgument.
  std::size_t invalidate(const FunctionState* function, Range range);
  std::size_t trim(bool to_device = false);

  // Monitors. The first two read while calls go on.
  FunctionStats stats_of(const FunctionState& function) const;
  ContextStats stats() const;
  // Waits for the call in progress, and makes the next one wait. Returns the way that call() would
  // go now, and why.
  Explanation explain(FunctionState& function, InputList inputs);
  // Throws ConcurrentUse if another thread is inside.
  void check_idle() { const Entry entry(gate); }

  // For tests: aborts if an invariant of tree or pools does not hold.
  void validate();

  // ---- Inside the gate ----

  // Brings the tree up to date with the time since the last call. Must be called before anything is
  // decided, so that a call that fails half-way has nothing to undo.
  void catch_up() {
    if (!tree.is_at_root() && !memory->any_output_live()) tree.go_to_root();
    tree.learn_conflicts(*memory);
  }
  DecisionInput decision_input(const FunctionState& function) const {
    return {tree, function, *memory, limits, has_graphs, graph_override()};
  }
  // Returns why the present call goes the way that was decided, in words.
  Explanation explain(const Decision& decision, const FunctionState& function) const;
  // Tells that a call of the function has thrown `what`.
  void tell_failure(FunctionState& function, std::string_view what,
                    LogLevel level = LogLevel::kWarn) noexcept;
  // Drops the recordings that read or write an output of a generation that has ended, of this
  // context or of another one.
  void drop_stale() noexcept;
  // Drops the node, and tells why.
  void drop(Node& node, std::string_view what) noexcept;

  struct End {
    void operator()(ContextMemory* memory) const noexcept {
      memory->end_calls();
      memory->end();
    }
  };

  // Constant after construction.
  const ContextOptions options;
  const std::unique_ptr<ContextMemory, End> memory;  // the context's reference
  const bool has_graphs;                             // whether the device has them
  const Limits limits;

  // Recordings return their tables to the pools, so the tree must be destroyed before the memory,
  // and leave their attachments, before the extensions.
  Extensions extensions;
  Gate gate;
  Recorder recorder;
  Tree tree;
  Evictor evictor;
  Votes votes;
  Call present;  // the present call

 private:
  Engine(Device device, ContextOptions given);

  [[gnu::noinline]] void run(Entry& entry, FunctionState& function, const InputList& inputs,
                             TensorList& outputs);
  void run_nested(FunctionState& function, InputList inputs, TensorList& outputs);
  void order_nested(const FunctionState& function, const InputList& inputs);
  std::size_t drop_all(const FunctionState* function, Range range, std::string_view what) noexcept;
  std::size_t give_back(std::size_t needed) noexcept;
};

// Adds the extensions that each context has and that ContextOptions::extensions has not made. The
// core declares this function and does not define it: //extensions adds watch, audit and verify,
// //extensions/none a refusal of the options that they follow.
void add_extensions(Engine& engine);

}  // namespace cgtree
