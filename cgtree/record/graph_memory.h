// Memory that a graph allocates and does not free. It is the recording's: each launch frees what
// the launch before has left, and the end of the recording frees what the last one has left.
#pragma once

#include <memory>
#include <vector>

#include "cgtree/memory/context_memory.h"
#include "interop/device/graph.h"
#include "interop/tensor/storage.h"

namespace cgtree {

// Adds to `left` a storage for each allocation of the graph that the graph does not free. The last
// reference frees it in the order of the context's stream, if `*was_launched`. Requires: `memory`
// outlives the storages. Returns kNotSupported if the device cannot tell addresses.
//
// Source: CUDA Programming Guide, Graph Memory Nodes. Destroying a graph frees none of its memory.
Code find_left_allocations(const Graph& graph, ContextMemory& memory,
                           const std::shared_ptr<const bool>& was_launched,
                           std::vector<StorageRef>* left);

}  // namespace cgtree
