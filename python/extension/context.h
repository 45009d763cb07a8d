// The Python type cgtree.Context, and the state that it shares with its compiled functions; options
// of both, from the keywords of Python; and the sizes of their dynamic axes.
#pragma once

#include <memory>
#include <vector>

#include "base/mutex.h"
#include "cgtree/compile.h"
#include "cgtree/context.h"
#include "cgtree/values/options.h"
#include "extensions/progress/progress_watch.h"
#include "extensions/ranks/group.h"
#include "python/extension/object.h"

namespace cgtree::python {

// A ContextState holds a context until it is closed.
struct ContextState {
  std::shared_ptr<Context> context;
  // Held during a call by callers that take turns, where other callers get ConcurrentUse.
  mutable Mutex<LockRank::kTurns> turn;

  // Returns the context. Another thread may close it while the lock is released: a caller that
  // releases the lock copies the pointer. Throws InvalidArgument after it was closed.
  const std::shared_ptr<Context>& open() const;

  // Requires: the GIL, which is released while the context ends.
  ~ContextState();
};

template <>
struct Caster<std::shared_ptr<ContextState>> {
  static const std::shared_ptr<ContextState>& from(PyObject* object, const char* what);
};
template <>
struct Caster<std::shared_ptr<Group>> {
  static const std::shared_ptr<Group>& from(PyObject* object, const char* what) {
    return expect_object<std::shared_ptr<Group>>(object, what);
  }
};

// None means no watch (progress.cc).
template <>
struct Caster<std::shared_ptr<ProgressWatch>> {
  static std::shared_ptr<ProgressWatch> from(PyObject* object, const char* what);
};

// Methods on a Context release the lock: they wait at its gate.
template <>
struct Receiver<Context> {
  static constexpr bool kIsUnlocked = true;
  static std::shared_ptr<Context> of(PyObject* self);
};

// Returns the state of the calling thread's cgtree.default_context(); makes it if there is none.
// Throws PythonError.
std::shared_ptr<ContextState> default_context();

// A dict of the counts of calls.
template <>
struct Caster<FunctionStats> {
  static Reference to(const FunctionStats& stats);
};

// The pair that last_outcome() returns.
template <>
struct Caster<CallOutcome> {
  static Reference to(const CallOutcome& last) {
    return pack(name(last.outcome), last.skip_reason ? name(*last.skip_reason) : "");
  }
};

// ---- Options (options.cc) ----

// Read a dict of options; null means an empty dict. Throw InvalidArgument for an unknown key, and
// PythonError.
ContextOptions to_context_options(PyObject* dict);
CompileOptions to_compile_options(PyObject* dict);

// Reads a dict {axis: sizes}. Throws InvalidArgument and PythonError.
std::vector<Buckets> to_buckets(PyObject* dict);

// Reads a dict {name: int or str}. Throws InvalidArgument and PythonError.
Key to_key(PyObject* dict);
template <>
struct Caster<Key> : ReadBy<to_key> {};
// Adds the parts of the key to a dict. Throws PythonError.
void add_key(PyObject* dict, const Key& key);

// ---- Sizes of dynamic axes: histograms, suggested buckets and precapture (sizes.cc) ----

// The methods of a compiled function.
std::vector<Method> size_methods();

}  // namespace cgtree::python
