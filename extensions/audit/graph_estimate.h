// Estimates the device memory of a recording's executable graphs.
#pragma once

#include <cstddef>

#include "cgtree/record/graph_bytes.h"
#include "cgtree/record/recording.h"
#include "extensions/audit/node_bytes.h"
#include "interop/device/graph_api.h"

namespace cgtree {

// Returns the estimate for the graphs of a recording; what it has now if one cannot be read.
std::size_t estimate_graph_bytes(Recording& recording, GraphAPI& api);

}  // namespace cgtree
