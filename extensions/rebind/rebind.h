// rebind(): lets a recording use inputs and buffers at the caller's addresses.
#pragma once

#include "cgtree/record/examination.h"
#include "extensions/rebind/probe.h"

namespace cgtree {

// Compares the captured graph with the probe of the same step, which may be null. A rebound input
// is removed from the nodes that will be added, gives back the memory for its copy, and gets an
// Attachment among the tails of the recording. Throws std::bad_alloc, OutOfMemory; a refusal of the
// device is a reason to copy.
void rebind(CapturedStep& step, const Probe* probe);

}  // namespace cgtree
