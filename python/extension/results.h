// The results of Python functions that are called while work is enqueued: None, a tensor, or a
// tuple or list of tensors.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "interop/tensor/tensor.h"
#include "python/extension/errors.h"

namespace cgtree::python {

// The form of a function's result, which replays and other bodies must return too.
enum class ResultKind { kUnknown, kNone, kTensor, kTuple, kList };

// Reads the result of the function named `who`, and notes its kind. Throws TypeError for items that
// are not tensors, and InvalidArgument for another result, and for a kind other than the known one;
// `why` is the reason in the message.
std::vector<Tensor> read_result(PyObject* result, std::string_view who, ResultKind& kind,
                                std::string_view why);
// Returns the tensors in the form of this kind; no tensors of an unknown kind are None.
Reference results_of(ResultKind kind, std::span<Tensor> tensors);

}  // namespace cgtree::python
