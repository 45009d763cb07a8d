// The order of a capture, found by walking its graph backwards, each node once per stream.
#pragma once

#include <map>
#include <unordered_set>

#include "allocator/caching/capture_order.h"

namespace cgtree {

// Remembers which nodes come before each stream's terminals. While the terminals move forward only
// new nodes are visited, so that all questions of a capture cost O(nodes) per stream together.
// Where they have moved elsewhere (cudaStreamUpdateCaptureDependencies) it starts anew.
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
    std::unordered_set<NodeId> reached;  // the terminals and all before them
  };

  void advance(Known& known, const std::vector<NodeId>& terminals);
  bool walk(Known& known, const std::vector<NodeId>& terminals);

  CaptureDag& dag_;
  std::map<StreamId, Known> known_;
};

}  // namespace cgtree
