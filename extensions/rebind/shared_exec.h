// SharedExec: one executable graph of several recordings, which are alike but for what patches
// change.
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

// A SharedExec is made from the graph of its first recording. It knows of each node in which two of
// its recordings differ, or have differed, what the executable graph has there now: a switch
// compares all these, and patches those that are not as they should be. Root and tail nodes are no
// part of this: each recording patches its own.
//
// Invariants:
//   a node of the step in which no recording has differed is as in the first one;
//   current_ == s implies that each other one is as in the recording whose share has the number s.
class SharedExec : public std::enable_shared_from_this<SharedExec> {
 public:
  // Gives the recording an executable graph. Throws DeviceError; then the recording is as before.
  SharedExec(DeviceAPI& api, Recording& first);

  // Returns the share of the first recording. To be called once.
  std::unique_ptr<Attachment> share_of_first();
  // Gives the recording the executable graph, and returns its share. Returns null, and
  // changes nothing of the recording, if its graph is not alike, if recordings would differ in more
  // than `max_nodes` nodes, or if the device refuses to patch one of them.
  std::unique_ptr<Attachment> join(Recording& recording, std::size_t max_nodes);

 private:
  class Share;

  // What a recording has in a node of the step.
  struct Difference {
    std::size_t node = 0;
    NodePatch patch;
  };
  // A node of the step is no root or tail node.
  struct Node {
    NodeHandle handle = NodeHandle::kNull;
    bool is_of_step = true;
    std::optional<NodePatch> first;  // what the first recording has; none if it cannot be patched
    std::size_t users = 0;           // recordings that there are, and that have something else
    bool differs = false;            // there is a user, or has been one
    // If it differs: what the executable graph has. Empty if a patch has failed.
    std::optional<std::vector<std::byte>> bytes;
    LaunchDims dims;
  };

  // Writes in what the recording differs from the first one. Returns false if a node of the two
  // cannot be compared.
  bool compare(const std::vector<NodeHandle>& nodes, const Recording& recording,
               std::vector<Difference>* differences);
  // Makes the executable graph do what a recording with these differences does. Stops at the first
  // patch that the device refuses, and returns its code.
  Code switch_to(const std::vector<Difference>& differences);

  DeviceAPI& api_;
  const int device_;
  const Graph graph_;
  const GraphExec exec_;
  std::vector<Node> nodes_;    // in the order of the graph's
  bool is_closed_ = false;     // the device has refused a patch
  std::uint64_t shares_ = 1;   // their numbers count from 1
  std::uint64_t current_ = 1;  // 0: the next take() switches
};

// The SharedExecs of a context, by function. One that exists counts among the costs of one of its
// recordings alone.
class SharedExecs {
 public:
  // Gives a recording of the function its executable graph: one that there is, or its own, which
  // later ones may share. Throws DeviceError.
  void share(std::uint32_t function, DeviceAPI& api, Recording& recording, std::size_t max_nodes);

 private:
  std::map<std::uint32_t, std::vector<std::weak_ptr<SharedExec>>> by_function_;
};

}  // namespace cgtree
