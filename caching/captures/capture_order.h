// CaptureOrder: what precedes what inside a capture. DagOrder finds it by walking the graph.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "allocator/pool/segment_source.h"

namespace cgtree {

// A NodeId is a node of the graph that is being captured.
using NodeId = std::uintptr_t;

// A CaptureOrder is what a CaptureSession asks about the captured graph. Implementations: DagOrder,
// and the fake capture of the allocator's tests.
//
// Thread safety: none; CaptureSession calls it with its lock held.
class CaptureOrder {
 public:
  virtual ~CaptureOrder() = default;

  // Returns the terminals of the stream: the nodes that its next node will depend on. Returns
  // nothing for a stream that is not part of the capture.
  virtual std::optional<std::vector<NodeId>> terminals(StreamId stream) = 0;

  // Returns true if each of the nodes is a terminal of the stream or an ancestor of one.
  virtual bool precedes(std::span<const NodeId> nodes, StreamId stream) = 0;
};

// A CaptureDag is the graph behind a DagOrder. Implementations: DeviceCaptureDag, and the fake
// capture of the allocator's tests.
class CaptureDag {
 public:
  virtual ~CaptureDag() = default;
  virtual std::optional<std::vector<NodeId>> terminals(StreamId stream) = 0;
  virtual std::vector<NodeId> dependencies(NodeId node) = 0;
};

// A DagOrder walks the graph backwards and remembers which nodes precede each stream's terminals.
// While the terminals move forward only new nodes are visited, so all questions of a capture cost
// O(nodes) per stream together. If they have moved elsewhere (cudaStreamUpdateCaptureDependencies)
// it starts anew.
class DagOrder final : public CaptureOrder {
 public:
  // `dag` must outlive it.
  explicit DagOrder(CaptureDag& dag) noexcept : dag_(dag) {}

  std::optional<std::vector<NodeId>> terminals(StreamId stream) override {
    return dag_.terminals(stream);
  }
  bool precedes(std::span<const NodeId> nodes, StreamId stream) override;

 private:
  struct Known {
    std::vector<NodeId> terminals;
    std::unordered_set<NodeId> reached;  // the terminals and all nodes before them
  };

  void advance(Known& known, const std::vector<NodeId>& terminals);
  bool walk(Known& known, const std::vector<NodeId>& terminals);

  CaptureDag& dag_;
  std::map<StreamId, Known> known_;
};

}  // namespace cgtree
