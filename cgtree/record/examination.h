// Examination: looks at a step between its capture and its first launch.
//
// It reaches a step in three ways: before the capture it may have the recorder capture the step
// once more, with stand-ins for inputs (Recorder::try_capture()); it sees the capture that is kept
// before its root and tail nodes are added; and it reads the nodes of the graph when they are
// there.
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
  // The address of the output that each buffer may stand in place of, or 0.
  std::span<const std::uintptr_t> buffer_sources;
  GatherNode::Work& root;  // what the nodes will do that are added
  GatherNode::Work& tail;
  StepAllocations& allocations;
};

// An Examination is of one step that is recorded. Its functions are called in this order; all but
// give_up() may throw, and then nothing is recorded.
class Examination {
 public:
  virtual ~Examination() = default;

  // May take work from the nodes that will be added, and have an Attachment do it. `step`: stays
  // while the recording is made; never_patch() may come after it.
  virtual void examine(CapturedStep& step) = 0;
  // The executable graph of the step. kShared: the recording has it, and a share in it. kEarlier:
  // an earlier recording has changed, or gone, and with it the decision: the call is decided again.
  enum class Exec { kOwn, kShared, kEarlier };
  // The graphs have their root and tail nodes.
  virtual Exec share() = 0;
  // The recording is complete, but for what finish() adds. Returns how many storages that may have
  // it keep.
  virtual std::size_t prepare() = 0;
  // Whether finish() may refuse the recording, so that it must come before the launch.
  virtual bool may_refuse() const noexcept = 0;
  // Reads the graphs, and gives the recording its findings and what its graphs take. Throws
  // InvalidArgument, CaptureError.
  virtual void finish() = 0;
  // In place of finish(), after a launch: host memory has run out.
  virtual void give_up() noexcept = 0;
  // The device has refused to patch a node: from now on the inputs of the function are copied, and
  // its recordings share nothing. Returns false if that was so before.
  virtual bool never_patch() = 0;
};

}  // namespace cgtree
