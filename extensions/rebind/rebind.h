// rebind(): has a recording use inputs and buffers where the caller has them.
#pragma once

#include "cgtree/record/examination.h"
#include "extensions/rebind/probe.h"

namespace cgtree {

// Compares the captured graph with the probe of the same step, null if there is none. What is
// rebound is taken from the nodes that will be added, gives back what was there for its copy, and
// gets an Attachment among the tails of the recording. Throws std::bad_alloc, OutOfMemory; what the
// device refuses is a reason to copy.
void rebind(CapturedStep& step, const Probe* probe);

}  // namespace cgtree
