// What comes before what inside a capture.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "allocator/segments/stream_id.h"

namespace cgtree {

// A node of the graph that is being captured.
using NodeId = std::uintptr_t;

// Threads: one at a time (CaptureSession's lock).
class CaptureOrder {
 public:
  virtual ~CaptureOrder() = default;

  // The nodes at which the stream stands: what its next node will depend on. Nothing for a stream
  // that is no part of the capture.
  virtual std::optional<std::vector<NodeId>> terminals(StreamId stream) = 0;

  // Whether each of the nodes is a terminal of the stream, or an ancestor of one.
  virtual bool precedes(std::span<const NodeId> nodes, StreamId stream) = 0;
};

// The graph behind an order, as the device tells it.
class CaptureDag {
 public:
  virtual ~CaptureDag() = default;
  virtual std::optional<std::vector<NodeId>> terminals(StreamId stream) = 0;
  virtual std::vector<NodeId> dependencies(NodeId node) = 0;
};

}  // namespace cgtree
