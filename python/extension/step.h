// PythonStep: a Python function as a step function.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "interop/tensor/tensor.h"
#include "python/extension/errors.h"

namespace cgtree::python {

// The kind of result of a Python function, which replays must return too.
enum class ResultKind { kUnknown, kNone, kTensor, kTuple, kList };

struct PythonStep {
  PyObject* function = nullptr;  // owned; null once the cycle collector has taken it
  ResultKind kind = ResultKind::kUnknown;

  explicit PythonStep(PyObject* given);
  ~PythonStep();
  PythonStep(const PythonStep&) = delete;
  PythonStep& operator=(const PythonStep&) = delete;

  // Takes the GIL and calls the function. Throws PythonError, and InvalidArgument for a result that
  // is not None, a tensor or a tuple or list of tensors, or that has another kind than before.
  std::vector<Tensor> run(std::span<const Tensor> inputs);

  // Returns the outputs in the form that the function returns. Requires: the GIL; run() was called.
  Reference results(std::span<Tensor> outputs) const;
};

}  // namespace cgtree::python
