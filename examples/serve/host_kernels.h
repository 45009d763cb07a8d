// The kernels' bodies on the host device: plain loops over the whole grid.
#pragma once

#include "examples/serve/kernel_arguments.h"
#include "interop/device/kernel_function.h"

namespace cgtree::serve {

void rms_norm_on_host(const LaunchDims&, NormArguments a);
void attend_on_host(const LaunchDims&, AttentionArguments a);
void argmax_on_host(const LaunchDims&, ArgmaxArguments a);
void multiply_on_host(const LaunchDims&, ProductArguments a);

}  // namespace cgtree::serve
