// Estimates the device memory of a recording's executable graphs.
#pragma once

#include <cstddef>

#include "cgtree/record/graph_bytes.h"
#include "cgtree/record/recording.h"
#include "extensions/audit/node_bytes.h"
#include "interop/device/graph_api.h"

namespace cgtree {

// Returns the estimate for a recording's graphs, or its present one if a graph cannot be read.
std::size_t estimate_graph_bytes(Recording& recording, GraphAPI& api);

}  // namespace cgtree
