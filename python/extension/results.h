// The results of Python functions that are called while work is enqueued: None, a tensor, or a
// tuple or list of tensors.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "interop/tensor/tensor.h"
#include "python/extension/errors.h"

namespace cgtree::python {

// The form of what a function returns, which replays and other bodies must return too.
enum class ResultKind { kUnknown, kNone, kTensor, kTuple, kList };

// Returns "a tensor" and so on.
const char* name_of(ResultKind kind);
// Throws InvalidArgument for another result; `who` has returned it.
ResultKind kind_of(PyObject* result, std::string_view who);
// Throws TypeError for items that are no tensors. Requires: the kind is that of the result.
std::vector<Tensor> tensors_of(PyObject* result, ResultKind kind);
// Returns the tensors in the form of this kind; none of an unknown one is None.
Reference results_of(ResultKind kind, std::span<Tensor> tensors);

}  // namespace cgtree::python
