// Reads results of Python functions, and makes results of the same form from tensors.
#include "python/extension/results.h"

#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "python/extension/tensor.h"

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

ResultKind kind_of(PyObject* result, std::string_view who) {
  if (result == Py_None) return ResultKind::kNone;
  if (is_tensor(result)) return ResultKind::kTensor;
  if (PyTuple_Check(result)) return ResultKind::kTuple;
  if (PyList_Check(result)) return ResultKind::kList;
  const Reference type = checked(PyObject_Str(reinterpret_cast<PyObject*>(Py_TYPE(result))));
  throw InvalidArgument(str_format(
      "{} returned {}: expected None, a cgtree.Tensor, or a tuple or list of them; arrays of CuPy, "
      "Numba or PyTorch come out of cgtree.compile(..., framework=...)",
      who, to_text(type.get(), "a type")));
}

}  // namespace

std::vector<Tensor> read_result(PyObject* result, std::string_view who, ResultKind& kind,
                                std::string_view why) {
  const ResultKind found = kind_of(result, who);
  if (kind != ResultKind::kUnknown && kind != found) {
    throw InvalidArgument(
        str_format("{} returned {}, and {} before: {}", who, name_of(found), name_of(kind), why));
  }
  kind = found;
  if (kind == ResultKind::kNone) return {};
  if (kind == ResultKind::kTensor) return {tensor_of(result)};
  std::vector<Tensor> tensors;
  for_each_item(result, [&](PyObject* item) {
    tensors.push_back(expect_object<Tensor>(item, "what a step function returns"));
  });
  return tensors;
}

Reference results_of(ResultKind kind, std::span<Tensor> tensors) {
  if (kind == ResultKind::kNone || kind == ResultKind::kUnknown) return Reference::borrow(Py_None);
  if (kind == ResultKind::kTensor && tensors.size() == 1) return make_tensor(std::move(tensors[0]));
  const auto tensor = [&](std::size_t i) { return make_tensor(std::move(tensors[i])); };
  return kind == ResultKind::kList ? new_list(tensors.size(), tensor)
                                   : new_tuple(tensors.size(), tensor);
}

}  // namespace cgtree::python
