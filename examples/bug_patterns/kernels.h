// The kernels of a small engine, which knows nothing of graphs: they take bare pointers.
#pragma once

#include <cstdint>

#include "interop/device/stream.h"

namespace cgtree::bug_patterns {

// y[i] = x[i] * weights[i]
void launch_scale(StreamRef stream, const float* x, const float* weights, float* y,
                  std::int64_t count);

// y[i] = 2 * x[i], through workspace[i].
void launch_through_workspace(StreamRef stream, const float* x, float* workspace, float* y,
                              std::int64_t count);

// y[i] = x[plan[i]]
void launch_gather(StreamRef stream, const float* x, const std::int32_t* plan, float* y,
                   std::int64_t count);

// y[i] = x[i] for i < length, and 0 after it. The length is an argument of the kernel, or is read
// from the device's memory.
void launch_mask(StreamRef stream, const float* x, std::int64_t length, float* y,
                 std::int64_t count);
void launch_mask(StreamRef stream, const float* x, const std::int64_t* length, float* y,
                 std::int64_t count);

}  // namespace cgtree::bug_patterns
