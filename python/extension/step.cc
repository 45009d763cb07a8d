// Calls a Python function with tensors as objects, and reads what it returns.
#include "python/extension/step.h"

#include <fmt/format.h>

#include "base/error.h"
#include "python/extension/python.h"
#include "python/extension/tensor.h"
#include "python/extension/values.h"

namespace cgtree::python {
namespace {

const char* name_of(ResultKind kind) {
  switch (kind) {
    case ResultKind::kNone:
      return "None";
    case ResultKind::kTensor:
      return "a tensor";
    case ResultKind::kTuple:
      return "a tuple";
    case ResultKind::kList:
      return "a list";
    case ResultKind::kUnknown:
      break;
  }
  return "nothing yet";
}

ResultKind kind_of(PyObject* result) {
  if (result == Py_None) return ResultKind::kNone;
  if (is_tensor(result)) return ResultKind::kTensor;
  if (PyTuple_Check(result)) return ResultKind::kTuple;
  if (PyList_Check(result)) return ResultKind::kList;
  const Reference type = checked(PyObject_Str(reinterpret_cast<PyObject*>(Py_TYPE(result))));
  throw InvalidArgument(fmt::format(
      "the step function returned {}: expected None, a cgtree.Tensor, or a tuple or list of them; "
      "arrays of CuPy, Numba or PyTorch come out of cgtree.compile(..., framework=...)",
      to_text(type.get(), "a type")));
}

Reference arguments_of(std::span<const Tensor> inputs) {
  Reference tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(inputs.size())));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    PyObject* const tensor = make_tensor(inputs[i]).release();
    check_status(PyTuple_SetItem(tuple.get(), static_cast<Py_ssize_t>(i), tensor));
  }
  return tuple;
}

std::vector<Tensor> tensors_of(PyObject* result, ResultKind kind) {
  if (kind == ResultKind::kNone) return {};
  if (kind == ResultKind::kTensor) return {tensor_of(result)};
  std::vector<Tensor> tensors;
  const Reference items = items_of(result);
  for (Py_ssize_t i = 0; i < PyTuple_Size(items.get()); ++i)
    tensors.push_back(
        expect_tensor(PyTuple_GetItem(items.get(), i), "what a step function returns"));
  return tensors;
}

}  // namespace

PythonStep::PythonStep(PyObject* given) : function(given) {
  Py_INCREF(given);
}

PythonStep::~PythonStep() {
  if (function == nullptr || !interpreter_is_alive()) return;
  const GilAcquire gil;
  Py_DECREF(function);
}

std::vector<Tensor> PythonStep::run(std::span<const Tensor> inputs) {
  const GilAcquire gil;
  if (function == nullptr) throw InvalidArgument("this step function was collected as garbage");
  const Reference arguments = arguments_of(inputs);
  const Reference callee = Reference::borrow(function);
  const Reference result = checked(PyObject_CallObject(callee.get(), arguments.get()));
  const ResultKind found = kind_of(result.get());
  if (kind != ResultKind::kUnknown && kind != found) {
    throw InvalidArgument(
        fmt::format("the step function returned {}, and {} before: a replay could not tell which",
                    name_of(found), name_of(kind)));
  }
  std::vector<Tensor> tensors = tensors_of(result.get(), found);
  kind = found;
  return tensors;
}

Reference PythonStep::results(std::span<Tensor> outputs) const {
  if (kind == ResultKind::kNone) return Reference::borrow(Py_None);
  if (kind == ResultKind::kTensor && outputs.size() == 1) return make_tensor(std::move(outputs[0]));
  Reference tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(outputs.size())));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    PyObject* const tensor = make_tensor(std::move(outputs[i])).release();
    check_status(PyTuple_SetItem(tuple.get(), static_cast<Py_ssize_t>(i), tensor));
  }
  return kind == ResultKind::kList ? checked(PySequence_List(tuple.get())) : std::move(tuple);
}

}  // namespace cgtree::python
