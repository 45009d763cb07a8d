// capture_trial(): one more capture of a call, which is not kept.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cgtree/record/open_recording.h"
#include "extensions/inspect/found_recording.h"
#include "extensions/inspect/inspect.h"
#include "interop/device/node_contents.h"

namespace cgtree {

// Does the work of a step with the inputs that it must see, and returns the outputs.
using TrialWork = std::function<std::vector<Tensor>(std::span<const Tensor> inputs)>;

// Captures the work, keeps nothing, and calls look(recording, inputs of the step) while the memory
// of the step is allocated. Returns the reason why nothing was captured, or "". Requires: the
// inputs of the call are held, and a recording was found.
std::string capture_trial(FoundRecording& found, CaptureMode mode, const TrialWork& work,
                          const OpenRecording::Look& look);

// Returns the value at the word's place in a node of the same form.
std::uint64_t value_of(const NodeContents& node, const InspectedWord& word);

}  // namespace cgtree
