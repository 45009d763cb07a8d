// What other files use of cgtree.CompiledFunction.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "cgtree/compile.h"
#include "python/extension/context.h"

namespace cgtree::python {

// A Bound is what one use of a compiled function needs; it keeps the context.
struct Bound {
  std::shared_ptr<ContextState> kept;  // null if the function itself keeps it
  const Context* context;
  const CompiledCore* core;
};

// Throws InvalidArgument if the context was closed.
Bound bound_of(PyObject* compiled);
// Returns the context that the function was compiled for. Throws InvalidArgument if it has none.
std::shared_ptr<ContextState> state_of(PyObject* compiled);
// Returns how often the step function ran so far, so that a caller can tell replays from runs.
std::size_t runs_of(PyObject* compiled);
// Throws TypeError for anything but a cgtree.CompiledFunction.
void expect_compiled(PyObject* object);
// Keeps an object for a recording of the step function that runs on this thread, or for anything
// else if none does. The cycle collector sees the object as that of the step function.
std::shared_ptr<void> keep_for_step(PyObject* object);
// Throws what a function of launch() has raised on this thread since the last call, if anything
// (host_launch.cc).
void throw_raised_in_launch();
// Returns the pair that last_outcome() tells, or None.
Reference outcome_of(const std::optional<CallOutcome>& last);

}  // namespace cgtree::python
