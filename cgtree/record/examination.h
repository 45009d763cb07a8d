// Examination: examines a step between its capture and its first launch.
//
// It examines a step at three points: before the capture it may have the recorder capture the step
// once more, with stand-ins for inputs (Recorder::try_capture()); it sees the capture that is kept
// before root and tail nodes are added; and it reads the nodes of the complete graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cgtree/memory/step_memory.h"
#include "cgtree/record/gather_node.h"
#include "cgtree/record/recording.h"

namespace cgtree {

// A CapturedStep is a step whose capture has ended, on its way to a recording.
struct CapturedStep {
  const Call& call;
  ContextMemory& memory;
  Recording& recording;             // has its inputs, outputs and graphs
  std::span<const Tensor> outputs;  // as they will be handed out
  // For each buffer, the address of the output that it may replace, or 0.
  std::span<const std::uintptr_t> buffer_sources;
  GatherNode::Work& root;  // the work of the nodes that will be added
  GatherNode::Work& tail;
  StepAllocations& allocations;
};

// An Examination belongs to one step that is recorded. Its functions are called in this order; all
// except give_up() may throw, and then nothing is recorded.
class Examination {
 public:
  virtual ~Examination() = default;

  // May move work from the nodes that will be added to an Attachment. `step`: valid while the
  // recording is made; never_patch() may follow.
  virtual void examine(CapturedStep& step) = 0;
  // The owner of the executable graph of the step. kShared: the recording has it, and a share in
  // it. kEarlier: an earlier recording changed or was dropped, so that the call is decided again.
  enum class Exec { kOwn, kShared, kEarlier };
  // Called when the graphs have their root and tail nodes.
  virtual Exec share() = 0;
  // Called when the recording is complete, except for the results of finish(). Returns the largest
  // number of storages that those may have it keep.
  virtual std::size_t prepare() = 0;
  // Returns whether finish() may refuse the recording, so that it must precede the launch.
  virtual bool may_refuse() const noexcept = 0;
  // Reads the graphs, and adds to the recording its findings and the memory of its graphs. Throws
  // InvalidArgument, CaptureError.
  virtual void finish() = 0;
  // Called instead of finish() after a launch if host memory has run out.
  virtual void give_up() noexcept = 0;
  // Says that the device refused to patch a node: from now on the inputs of the function are
  // copied, and its recordings share nothing. Returns false if this was known.
  virtual bool never_patch() = 0;
};

}  // namespace cgtree
