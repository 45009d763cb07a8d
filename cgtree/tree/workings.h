// Workings: what the calls of a context work with.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "cgtree/memory/context_memory.h"
#include "cgtree/record/call.h"
#include "cgtree/record/recorder.h"
#include "cgtree/tree/attempts.h"
#include "cgtree/tree/call_observer.h"
#include "cgtree/tree/decide.h"
#include "cgtree/tree/door.h"
#include "cgtree/tree/evict.h"
#include "cgtree/tree/tree.h"
#include "cgtree/tree/verifier.h"
#include "cgtree/values/options.h"

namespace cgtree {

// Thread safety: used by the thread that is inside `door`, but for what the members say of
// monitors.
struct Workings {
  Workings(Device device, ContextOptions given);
  ~Workings();
  Workings(const Workings&) = delete;
  Workings& operator=(const Workings&) = delete;

  // Brings the tree up to date with what happened since the last call. Must be called before
  // anything is decided, so that a call that fails half-way has nothing to undo.
  void catch_up() {
    if (!tree.is_at_root() && !memory->any_output_live()) tree.go_to_root();
    tree.learn_conflicts(*memory);
  }
  Situation situation(const FunctionState& function) const {
    return {tree, function, *memory, limits, has_graphs, graph_override()};
  }
  // Returns why the present call goes the way that was decided, in words.
  Explanation explain(const Decision& decision, const FunctionState& function) const {
    const Situation all = situation(function);
    Explanation why = cgtree::explain(decision, all, call);
    events->put_into_words(why, all, call);
    return why;
  }

  // Drops the recordings that read or write an output of a generation that has ended, of this
  // context or of another one.
  void drop_stale() noexcept;
  // Drops the recordings that refer to the range: of the function, or of all if it is null. Returns
  // how many.
  std::size_t drop_all(const FunctionState* function, Range range, std::string_view what) noexcept;

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
  const std::unique_ptr<CallObserver> events;  // not null
  bool watches_replays;                        // whether anything does; changed inside the context

  Door door;

  // Recordings return their tables to the pools, so the tree must be destroyed before the memory.
  Recorder recorder;
  Tree tree;
  Evictor evictor;
  Attempts attempts;
  const std::unique_ptr<RecordingPass> pass;  // not null
  const std::unique_ptr<Verifier> verifier;   // null: nothing is verified
  Call call;                                  // the present one

 private:
  std::size_t give_back(std::size_t needed) noexcept;
};

}  // namespace cgtree
