// Engine: everything that the calls of a context work with, shared by its faces and its extensions.
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

// An Engine makes the calls of one context, and owns its tree, its memory and its extensions.
//
// Thread safety: one thread at a time; a second thread gets ConcurrentUse. Any thread may call
// monitors and remove_function() at any time. The thread that is inside `gate` uses the members.
class Engine {
 public:
  static std::shared_ptr<Engine> make(Device device, ContextOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  FunctionState& add_function(std::string name, StepFunction step, CompileOptions options);
  // Drops the function and its recordings: at once, or before the next call if a call is in
  // progress. If the function is being precaptured, it is dropped later, and gate.request_upkeep()
  // must follow. Does not allocate.
  void remove_function(FunctionState& function) noexcept;

  void call(FunctionState& function, const InputList& inputs, TensorList& outputs);
  // Replays the call if the recording that followed last time fits; returns whether it did. Throws
  // as call().
  bool replay_predicted(FunctionState& function, const InputList& inputs);

  // Drops the recordings that refer to memory in the range: those of the function, or of all
  // functions if it is null. Returns their number. Throws ConcurrentUse, InvalidArgument.
  std::size_t invalidate(const FunctionState* function, Range range);
  std::size_t trim(bool to_device = false);

  // The next three functions are monitors. The first two read while calls go on.
  FunctionStats stats_of(const FunctionState& function) const;
  ContextStats stats() const;
  // Returns the outcome that call() would have now, and why; waits for the call in progress.
  Explanation explain(FunctionState& function, InputList inputs);
  // Throws ConcurrentUse if another thread is inside.
  void check_idle() { const Entry entry(gate); }

  // For tests: aborts if an invariant of the tree or the pools is broken.
  void validate();

  // ---- Inside the gate ----

  // Brings the tree up to date with releases and other changes since the last call. Must be called
  // before any decision, so that a call that fails half-way has nothing to undo.
  void catch_up() {
    if (!tree.is_at_root() && !memory->any_output_live()) tree.go_to_root();
    tree.learn_conflicts(*memory);
  }
  DecisionInput decision_input(const FunctionState& function) const {
    return {tree, function, *memory, limits, has_graphs, graph_override()};
  }
  // Returns the reasons of a decision about the present call, in words.
  Explanation explain(const Decision& decision, const FunctionState& function) const;
  // Reports that a call of the function threw `what`.
  void tell_failure(FunctionState& function, std::string_view what,
                    LogLevel level = LogLevel::kWarn) noexcept;
  // Drops the recordings that read or write an output of an ended generation, of any context.
  void drop_stale() noexcept;
  // Drops the node, and reports the reason.
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
  const bool has_graphs;                             // true if the device has graphs
  const Limits limits;

  // The tree must be destroyed before the memory, because recordings return their tables to the
  // pools, and before the extensions, because recordings leave their attachments.
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

// Adds the extensions that each context has, unless ContextOptions::extensions made them. The core
// declares this function and does not define it: //extensions adds watch, audit and verify;
// //extensions/none refuses the options that these follow.
void add_extensions(Engine& engine);

}  // namespace cgtree
