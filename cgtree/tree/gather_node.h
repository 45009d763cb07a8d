// GatherNode: the root node of a recording, which copies the inputs that move to where it was
// recorded, and tells its kernels where the generators are.
#pragma once

#include <cstdint>
#include <vector>

#include "cgtree/tree/recorded_draws.h"
#include "cgtree/tree/table.h"
#include "interop/gather.h"
#include "interop/graph.h"
#include "interop/input_list.h"

namespace cgtree {

// One kernel node with up to kMaxGatherSources arguments: one for each copied input, two for each
// generator. Patched by one driver call, only when a source has moved or there is something to
// draw.
class GatherNode {
 public:
  struct Copy {
    std::uint32_t input;  // which input of the call
    const void* source;
    std::uintptr_t destination;
    std::size_t bytes;
  };
  static constexpr std::size_t kArgumentsPerDraw = sizeof(PhiloxPosition) / sizeof(void*);

  // Uploads the table. Requires that no capture is open on the lane's stream, and that the
  // arguments fit. Throws OutOfMemory, DeviceError.
  GatherNode(LaneMemory& memory, const std::vector<Copy>& copies, std::vector<RecordedDraw> draws);

  // Puts the node in front of all there is in the graph. Throws DeviceError.
  void add_to(Graph& graph);

  // Tells the graph where the inputs are now, and moves the generators on. True if the node had to
  // be patched. Throws DeviceError; then the generators have not moved.
  bool bind(const GraphExec& exec, InputList inputs) {
    bool patched = must_patch_;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const auto* source = reinterpret_cast<const void*>(inputs[inputs_[i]].address());
      patched = patched || sources_[i] != source;
      sources_[i] = source;
    }
    if (patched) patch(exec);
    return patched;
  }
  // What was bound will not be launched: the generators go back, unless someone has drawn since.
  void give_back_draws() noexcept;

 private:
  LaunchDims dims() const noexcept;
  // Where the position of draws_[i] is among the sources.
  std::vector<const void*>::iterator draw_arguments(std::size_t i) noexcept {
    return sources_.begin() + static_cast<std::ptrdiff_t>(inputs_.size() + kArgumentsPerDraw * i);
  }
  void draw() noexcept;
  void patch(const GraphExec& exec);
  void upload(LaneMemory& memory, const std::vector<GatherChunk>& chunks);

  GatherKernel kernel_;
  std::vector<std::uint32_t> inputs_;  // source i is input inputs_[i] of the call
  std::vector<RecordedDraw> draws_;    // their positions follow the inputs' sources
  std::vector<const void*> sources_;   // kernel_.capacity of them; the rest is null
  Table chunks_;
  std::uint32_t chunk_count_ = 0;
  NodeHandle node_ = NodeHandle::kNull;
  bool must_patch_ = false;  // it draws; or a patch has failed, and the graph knows older sources
};

// As few nodes as take all copies and draws; none if there are none.
std::vector<GatherNode> make_roots(LaneMemory& memory, const std::vector<GatherNode::Copy>& copies,
                                   std::vector<RecordedDraw> draws);

}  // namespace cgtree
