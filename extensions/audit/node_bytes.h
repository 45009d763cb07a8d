// Estimates the device memory of an executable graph by its nodes and branches: see
// record/graph_bytes.h.
#pragma once

#include <cstddef>
#include <span>

#include "interop/device/graph_api.h"
#include "interop/device/node_contents.h"

namespace cgtree {

// For a kernel, by the bytes of its parameters, and for a copy on the device. Memsets and host
// functions need no memory, nor do copies to and from the host, which are counted nevertheless.
inline constexpr std::size_t kGraphBytesPerNodeAbove1KiB = 3'328;
inline constexpr std::size_t kGraphBytesPerNodeAbove2KiB = 8'704;

// Returns the estimate for a graph with these nodes and edges.
std::size_t estimate_graph_bytes(std::span<const NodeContents> nodes,
                                 std::span<const GraphEdge> edges);

}  // namespace cgtree
