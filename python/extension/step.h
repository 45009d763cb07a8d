// PythonStep: a Python function as a step function.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "interop/tensor/tensor.h"
#include "python/extension/errors.h"

namespace cgtree::python {

// What the Python function returns, apart from how many tensors: replays must hand out the same.
enum class ResultKind { kUnknown, kNone, kTensor, kTuple, kList };

struct PythonStep {
  PyObject* function = nullptr;  // owned; null once the cycle collector has taken it
  ResultKind kind = ResultKind::kUnknown;

  explicit PythonStep(PyObject* given);
  ~PythonStep();
  PythonStep(const PythonStep&) = delete;
  PythonStep& operator=(const PythonStep&) = delete;

  // Takes the GIL. Throws PythonError; InvalidArgument for a result that is no tensor, tuple or
  // list of tensors, or None, or of another kind than before.
  std::vector<Tensor> run(std::span<const Tensor> inputs);

  // Requires the GIL, and that a call has run.
  Reference results(std::span<Tensor> outputs) const;
};

}  // namespace cgtree::python
