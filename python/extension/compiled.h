// The state of a cgtree.CompiledFunction, and PythonStep: a Python function as a step function.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cgtree/compile.h"
#include "python/extension/context.h"
#include "python/extension/results.h"

namespace cgtree::python {

// Objects that recordings keep, each as often as they do. Guarded by the GIL.
using KeptObjects = std::vector<PyObject*>;

// A PythonStep calls a Python function with tensors as objects, and reads its result.
struct PythonStep {
  std::shared_ptr<void> function;  // null once the cycle collector has taken it
  std::shared_ptr<KeptObjects> kept = std::make_shared<KeptObjects>();
  ResultKind kind = ResultKind::kUnknown;
  std::size_t runs = 0;

  PyObject* object() const noexcept { return static_cast<PyObject*>(function.get()); }
  // Takes the GIL and calls the function. Throws PythonError, and InvalidArgument for a result that
  // is not None, a tensor or a tuple or list of tensors, or that has another kind than before.
  std::vector<Tensor> run(std::span<const Tensor> inputs);
};

// A ContextBinding is a compiled function in one context.
struct ContextBinding {
  const ContextState* place;  // another one may lie there once this one has expired
  std::weak_ptr<ContextState> context;
  CompiledCore core;
};

// A Compiled is bound to a context by its first call there, so that to compile a function, which
// modules do when they are imported, touches no device.
struct Compiled {
  std::shared_ptr<ContextState> context;  // null: the default context of the thread that calls
  std::shared_ptr<PythonStep> step;
  std::string name;
  CompileOptions options;
  std::vector<std::unique_ptr<ContextBinding>> bindings;

  template <typename Visit>
  void visit(const Visit& visit) const {
    if (step == nullptr) return;
    for (PyObject* const object : *step->kept)
      visit(object);
    visit(step->object());
  }
  void clear() {
    if (step != nullptr) step->function.reset();
  }
  void end() { end_without_gil(std::move(bindings)); }
};

// A Bound is what one use of a compiled function needs; it keeps the context.
struct Bound {
  std::shared_ptr<ContextState> kept;  // null if the function itself keeps it
  const Context* context;
  const CompiledCore* core;
};
// Throws InvalidArgument if the context was closed.
Bound bound(Compiled& compiled);

// Keeps an object for a recording of the step function that runs on this thread, or for anything
// else if none does. The cycle collector sees the object as that of the step function.
std::shared_ptr<void> keep_for_step(PyObject* object);
// Throws what a function of launch() has raised on this thread since the last call, if anything
// (host_launch.cc).
void throw_raised_in_launch();

}  // namespace cgtree::python
