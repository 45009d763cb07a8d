// Memory that a graph allocates and does not free. It is the recording's: each launch frees what
// the launch before has left, and the end of the recording frees what the last one has left.
#pragma once

#include <vector>

#include "cgtree/memory/context_memory.h"
#include "cgtree/record/recording.h"
#include "interop/tensor/storage.h"

namespace cgtree {

// Adds to `left` a storage for each allocation that no graph of the recording frees. The last
// reference frees it in the order of the context's stream, if `*recording.frees_left`. Requires:
// `memory` outlives the storages. Returns kNotSupported if the device cannot tell addresses, and
// kStreamCaptureUnsupported if memory is freed that the recording does not allocate.
//
// Source: CUDA Programming Guide, Graph Memory Nodes. Destroying a graph frees none of its memory.
Code find_left_allocations(Recording& recording, ContextMemory& memory,
                           std::vector<StorageRef>* left);

}  // namespace cgtree
