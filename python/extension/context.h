// The Python type cgtree.Context, and the state that it shares with its compiled functions.
#pragma once

#include <memory>
#include <optional>

#include "cgtree/context.h"
#include "python/extension/errors.h"

namespace cgtree::python {

// A ContextState holds a context until it is closed.
struct ContextState {
  std::optional<Context> context;

  // Returns the context. Throws InvalidArgument after it was closed.
  Context& open();
};

// Returns the state of a cgtree.Context. Throws TypeError for another type.
std::shared_ptr<ContextState> expect_context(PyObject* object);

// Returns the counts of calls as a dict.
Reference dict_of(const FunctionStats& stats);

}  // namespace cgtree::python
