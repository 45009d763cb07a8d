// GatherNode: the root node of a recording, which copies the inputs that move to where it was
// recorded.
#pragma once

#include <cstdint>
#include <vector>

#include "cgtree/tree/lane_memory.h"
#include "interop/gather.h"
#include "interop/graph.h"

namespace cgtree {

// One kernel node with up to kMaxGatherSources sources; a recording with more copied inputs chains
// several. Patched only when a source has moved, by one driver call.
class GatherNode {
 public:
  struct Copy {
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

  std::size_t size() const noexcept { return size_; }
  // Notes where source i is now; the next patch() tells the graph if it has moved.
  void set_source(std::size_t i, const void* source) noexcept {
    moved_ = moved_ || sources_[i] != source;
    sources_[i] = source;
  }
  // True if the node had to be patched. Throws DeviceError.
  bool patch(const GraphExec& exec);

 private:
  LaunchDims dims() const noexcept;

  LaneMemory* memory_;  // null once moved from
  GatherKernel kernel_;
  std::size_t size_ = 0;
  std::vector<const void*> sources_;  // kernel_.capacity of them; beyond size_ null
  void* chunks_ = nullptr;            // the table, in device memory
  std::uint32_t chunk_count_ = 0;
  NodeHandle node_ = NodeHandle::kNull;
  bool moved_ = false;
};

}  // namespace cgtree
