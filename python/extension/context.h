// The Python type cgtree.Context, and what is shared between it and its compiled functions.
#pragma once

#include <memory>
#include <optional>

#include "cgtree/context.h"
#include "python/extension/errors.h"

namespace cgtree::python {

// None once the context was closed.
struct ContextState {
  std::optional<Context> context;

  // Throws InvalidArgument once it was closed.
  Context& open();
};

// Throws TypeError for another type.
std::shared_ptr<ContextState> expect_context(PyObject* object);

// The counts of calls.
Reference dict_of(const FunctionStats& stats);

}  // namespace cgtree::python
