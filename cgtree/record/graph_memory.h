// Memory that a graph allocates and does not free. The recording owns it: each launch frees the
// memory of the previous launch, and destroying the recording frees that of the last.
#pragma once

#include <vector>

#include "cgtree/memory/context_memory.h"
#include "cgtree/record/recording.h"
#include "interop/tensor/storage.h"

namespace cgtree {

// Appends to `left` a storage for each allocation that no graph of the recording frees. If
// `*recording.frees_left`, the last reference frees the memory, in the order of the context's
// stream. Requires: `memory` outlives the storages. Returns kNotSupported if the device cannot
// report addresses, and kStreamCaptureUnsupported if a graph frees memory that the recording does
// not allocate.
//
// Source: CUDA Programming Guide, Graph Memory Nodes. Destroying a graph frees none of its memory.
Code find_left_allocations(Recording& recording, ContextMemory& memory,
                           std::vector<StorageRef>* left);

}  // namespace cgtree
