// FunctionHandle: the base of compiled functions and of the Steps of an engine.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cgtree/values/explanation.h"
#include "cgtree/values/options.h"
#include "cgtree/values/stats.h"

namespace cgtree {

struct FunctionState;
class Engine;

// A FunctionHandle owns a function of a context, with its recordings. The context may be destroyed
// first. Thread safety: every function of this class may be called by any thread.
class FunctionHandle {
 public:
  FunctionHandle(FunctionHandle&& other) noexcept;
  FunctionHandle& operator=(FunctionHandle&& other) noexcept;

  // The name in messages.
  const std::string& name() const noexcept;
  // Returns the counts of the outcomes of calls so far. May be called while calls go on.
  FunctionStats stats() const;

  // Stops warm-ups and recordings: a call is replayed if a recording fits, and otherwise does as
  // `when` says (SkipReason::kFrozen). Recordings are not evicted, as if pinned. A recording
  // dropped for another reason, such as mark_step() for an output that it uses, is not made again.
  // After release_memory() a key is recorded as often as it had recordings, whatever the reason.
  void freeze(WhenFrozen when = WhenFrozen::kRunEagerly) const noexcept;
  // Makes calls warm up and record again.
  void unfreeze() const noexcept;
  // Returns whether the last of the two calls was freeze().
  bool is_frozen() const noexcept;

  // Returns the outcome of the last call that ended: kThrow for a step that was left; empty at
  // first.
  std::optional<CallOutcome> last_outcome() const noexcept;

  // The next two functions are for clients of the core, such as precapture().
  const std::shared_ptr<Engine>& engine() const noexcept { return engine_; }
  FunctionState& state() const noexcept { return *function_; }

 protected:
  FunctionHandle(std::shared_ptr<Engine> engine, FunctionState& function) noexcept;
  ~FunctionHandle();

  std::shared_ptr<Engine> engine_;  // null: moved from
  FunctionState* function_;         // belongs to the engine
};

}  // namespace cgtree
