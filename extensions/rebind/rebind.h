// rebind(): has a recording use inputs and buffers where the caller has them.
#pragma once

#include "cgtree/record/examination.h"
#include "extensions/rebind/probe.h"

namespace cgtree {

// Compares the captured graph with the probe of the same step, null if there is none. An input that
// is rebound is taken from the nodes that will be added, gives back the room for its copy, and gets
// an Attachment among the tails of the recording. Throws std::bad_alloc, OutOfMemory; a refusal of
// the device is a reason to copy.
void rebind(CapturedStep& step, const Probe* probe);

}  // namespace cgtree
