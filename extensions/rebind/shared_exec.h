// SharedExec: one executable graph of several recordings, which differ only in patched parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cgtree/record/attachment.h"
#include "cgtree/record/recording.h"
#include "interop/device/device_api.h"
#include "interop/device/graph.h"
#include "interop/device/node_contents.h"

namespace cgtree {

// A SharedExec is made from the graph of its first recording. For each node in which two of its
// recordings differ, or differed, it knows the present contents in the executable graph: a switch
// compares all these, and patches those that must change. Root and tail nodes are not included:
// each recording patches its own.
//
// Invariants:
//   a node of the step in which no recording ever differed is as in the first one; current_ == s
//   implies that every other node is as in the recording whose share has the number s.
class SharedExec : public std::enable_shared_from_this<SharedExec> {
 public:
  // Gives the recording an executable graph. Throws DeviceError; then the recording is as before.
  SharedExec(DeviceAPI& api, Recording& first);

  // Returns the share of the first recording. Must be called once.
  std::unique_ptr<Attachment> share_of_first();
  // Gives the recording the executable graph, and returns its share. Returns null, and changes
  // nothing of the recording, if its graph is not alike, if recordings would differ in more than
  // `max_nodes` nodes, or if the device refuses a patch.
  std::unique_ptr<Attachment> join(Recording& recording, std::size_t max_nodes);

 private:
  class Share;

  // The contents of a recording's node of the step.
  struct Difference {
    std::size_t node = 0;
    NodePatch patch;
  };
  // A node of the step; root and tail nodes are excluded.
  struct Node {
    NodeHandle handle = NodeHandle::kNull;
    bool is_of_step = true;
    std::optional<NodePatch> first;  // in the first recording; nullopt if it cannot be patched
    std::size_t users = 0;           // present recordings with other contents
    bool differs = false;            // it has or had a user
    // If it differs: the contents in the executable graph. Empty after a failed patch.
    std::optional<std::vector<std::byte>> bytes;
    LaunchDims dims;
  };

  // Writes the differences of the recording from the first one. Returns false if a node of the two
  // cannot be compared.
  bool compare(const std::vector<NodeHandle>& nodes, const Recording& recording,
               std::vector<Difference>* differences);
  // Patches the executable graph for a recording with these differences. Stops at the first patch
  // that the device refuses, and returns its code.
  Code switch_to(const std::vector<Difference>& differences);

  DeviceAPI& api_;
  const int device_;
  const Graph graph_;
  const GraphExec exec_;
  std::vector<Node> nodes_;    // in the order of the graph's
  bool is_closed_ = false;     // the device refused a patch
  std::uint64_t shares_ = 1;   // their numbers count from 1
  std::uint64_t current_ = 1;  // 0: the next take() switches
};

// The SharedExecs of a context, by function. An existing one counts among the costs of one
// recording.
class SharedExecs {
 public:
  // Gives a recording of the function its executable graph: an existing one, or a new one, which
  // later recordings may share. Throws DeviceError.
  void share(std::uint32_t function, DeviceAPI& api, Recording& recording, std::size_t max_nodes);

 private:
  std::map<std::uint32_t, std::vector<std::weak_ptr<SharedExec>>> by_function_;
};

}  // namespace cgtree
