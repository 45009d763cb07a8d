// StepFunction: the untyped form of what a user wraps.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "interop/tensor/tensor.h"

namespace cgtree {

// A StepFunction takes the inputs of a call and returns its outputs.
using StepFunction = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

}  // namespace cgtree
