// Memory that a graph allocates and does not free. It is the recording's: each launch frees that of
// the launch before, and the end of the recording frees that of the last one.
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
