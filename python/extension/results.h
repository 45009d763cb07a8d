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

// Reads the result of `who`, and notes its kind. Throws TypeError for items that are no
// tensors, and InvalidArgument for another result, and for one of another kind than that which is
// known; `why` says why that must not be.
std::vector<Tensor> read_result(PyObject* result, std::string_view who, ResultKind& kind,
                                std::string_view why);
// Returns the tensors in the form of this kind; none of an unknown one is None.
Reference results_of(ResultKind kind, std::span<Tensor> tensors);

}  // namespace cgtree::python
