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

// Objects that recordings keep; an object that several recordings keep is here several times.
// Guarded by the GIL.
using KeptObjects = std::vector<PyObject*>;

// A PythonStep calls a Python function with tensors as Python objects, and reads its result.
struct PythonStep {
  std::shared_ptr<void> function;  // null once the cycle collector has taken it
  std::shared_ptr<KeptObjects> kept = std::make_shared<KeptObjects>();
  ResultKind kind = ResultKind::kUnknown;
  std::size_t runs = 0;

  PyObject* object() const noexcept { return static_cast<PyObject*>(function.get()); }
  // Takes the GIL and calls the function. Throws PythonError, and InvalidArgument for a result that
  // is not None, a tensor or a tuple or list of tensors, or whose kind differs from the earlier
  // results.
  std::vector<Tensor> run(std::span<const Tensor> inputs);
};

// A ContextBinding is a compiled function in one context.
struct ContextBinding {
  const ContextState* place;  // another ContextState may lie there once this one has expired
  std::weak_ptr<ContextState> context;
  CompiledCore core;
};

// A Compiled is bound to a context by its first call there. So compiling a function, which modules
// do when they are imported, touches no device.
struct Compiled {
  std::shared_ptr<ContextState> context;  // null: the default context of the calling thread
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

// A Bound has the objects for one use of a compiled function; it keeps the context.
struct Bound {
  std::shared_ptr<ContextState> kept;  // null if the function itself keeps it
  const Context* context;
  const CompiledCore* core;
};
// Throws InvalidArgument if the context was closed.
Bound bound(Compiled& compiled);

// Keeps an object for a recording of the step function that runs on this thread; without a step
// function, for any owner. The cycle collector sees the object as the step function's.
std::shared_ptr<void> keep_for_step(PyObject* object);
// Throws the error that a function of launch() raised on this thread since the last call, if any
// (host_launch.cc).
void throw_raised_in_launch();

}  // namespace cgtree::python
