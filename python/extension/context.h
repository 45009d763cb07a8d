// The Python type cgtree.Context, and the state that it shares with its compiled functions; options
// of both, from the keywords of Python; and the sizes of their dynamic axes.
#pragma once

#include <memory>
#include <vector>

#include "base/mutex.h"
#include "cgtree/compile.h"
#include "cgtree/context.h"
#include "cgtree/values/options.h"
#include "cgtree/values/progress.h"
#include "extensions/ranks/group.h"
#include "extensions/sizes/precapture.h"
#include "python/extension/errors.h"

namespace cgtree::python {

// A ContextState holds a context until it is closed.
struct ContextState {
  std::shared_ptr<Context> context;
  // Held for a call by callers that take turns, where others get ConcurrentUse.
  mutable Mutex<LockRank::kTurns> turn;

  // Returns the context. While the lock is released, another thread may close it: a caller that
  // releases the lock copies the pointer. Throws InvalidArgument after it was closed.
  const std::shared_ptr<Context>& open() const;

  // Requires: the GIL, which is released while the context ends.
  ~ContextState();
};

// Returns the state of a cgtree.Context. Throws TypeError for another type.
std::shared_ptr<ContextState> expect_context(PyObject* object);

// Returns the state of the calling thread's cgtree.default_context(), which is made if there is
// none. Throws PythonError.
std::shared_ptr<ContextState> default_context();

// Returns the counts of calls as a dict.
Reference dict_of(const FunctionStats& stats);

// Returns the watch of a cgtree.ProgressWatch; null for None. Throws TypeError for another type.
std::shared_ptr<ProgressWatch> to_watch(PyObject* object);

// ---- Options (options.cc) ----

// Returns the group of a cgtree.Group. Throws TypeError for another type.
std::shared_ptr<Group> expect_group(PyObject* object);

// Reads the keywords of Context(), except for `device`, `stream` and `group`; `keywords` may be
// null. Throws InvalidArgument for an unknown key, and PythonError.
ContextOptions to_context_options(PyObject* keywords);

// Reads a dict {axis: sizes}. Throws InvalidArgument and PythonError.
std::vector<Buckets> to_buckets(PyObject* dict);

// Reads a dict {name: int or str}. Throws InvalidArgument and PythonError.
Key to_key(PyObject* dict);
// Adds the parts of the key to a dict. Throws PythonError.
void add_key(PyObject* dict, const Key& key);

// Reads the dict that cgtree/_context.py makes; it may be null. Throws InvalidArgument for an
// unknown key, and PythonError.
CompileOptions to_compile_options(PyObject* dict);

// ---- Sizes of dynamic axes: histograms, suggested buckets and precapture (sizes.cc) ----

// Returns the histogram of an axis as {size: count}.
Reference size_counts(const CompiledCore& core, PyObject* axis);

// suggest_buckets(axis, max_buckets, cost=None) of a compiled function.
Reference suggest_for(const CompiledCore& core, PyObject* arguments, PyObject* keywords);
// suggest_all_buckets(max_combinations) of a compiled function.
Reference suggest_all_for(const CompiledCore& core, PyObject* max_combinations);
// The module's suggest_buckets(histogram, max_buckets, cost=None).
Reference suggest_buckets_of(PyObject* module, PyObject* arguments, PyObject* keywords);

// precapture(make_inputs, *, sizes=None, key=None, max_time=None, progress=None),
// or predict_memory() with the same arguments.
Reference precapture(const CompiledCore& core, const Context& context, PyObject* arguments,
                     PyObject* keywords, bool only_predicts);

}  // namespace cgtree::python
