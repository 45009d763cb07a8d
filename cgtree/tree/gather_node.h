// GatherNode: the root node of a recording, which copies the inputs that move to where it was
// recorded.
#pragma once

#include <cstdint>
#include <vector>

#include "cgtree/tree/lane_memory.h"
#include "interop/gather.h"
#include "interop/graph.h"
#include "interop/input_list.h"

namespace cgtree {

// One kernel node with up to kMaxGatherSources sources; a recording with more copied inputs chains
// several. Patched only when a source has moved, by one driver call.
class GatherNode {
 public:
  struct Copy {
    std::uint32_t input;  // which input of the call
    const void* source;
    std::uintptr_t destination;
    std::size_t bytes;
  };

  // Uploads the table. Requires that no capture is open on the lane's stream. Throws OutOfMemory,
  // DeviceError.
  GatherNode(LaneMemory& memory, const std::vector<Copy>& copies);
  ~GatherNode();
  GatherNode(GatherNode&& other) noexcept;
  GatherNode& operator=(GatherNode&&) = delete;

  // Launches the kernel; while the stream captures, this adds the node.
  void launch(StreamRef stream) const;
  // Which node of the graph it became.
  void set_node(NodeHandle node) noexcept { node_ = node; }

  // Tells the graph where the inputs are now. True if one has moved since the last time. Throws
  // DeviceError.
  bool bind(const GraphExec& exec, InputList inputs) {
    bool moved = stale_;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const auto* source = reinterpret_cast<const void*>(inputs[inputs_[i]].address());
      moved = moved || sources_[i] != source;
      sources_[i] = source;
    }
    if (moved) patch(exec);
    return moved;
  }

 private:
  LaunchDims dims() const noexcept;
  void patch(const GraphExec& exec);

  LaneMemory* memory_;  // null once moved from
  GatherKernel kernel_;
  std::vector<std::uint32_t> inputs_;  // source i is input inputs_[i] of the call
  std::vector<const void*> sources_;   // kernel_.capacity of them; beyond inputs_.size() null
  void* chunks_ = nullptr;             // the table, in device memory
  std::uint32_t chunk_count_ = 0;
  NodeHandle node_ = NodeHandle::kNull;
  bool stale_ = false;  // a patch has failed: the graph knows older sources
};

}  // namespace cgtree
