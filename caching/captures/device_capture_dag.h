// DeviceCaptureDag: the graph of a capture that is open on a device.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "caching/captures/capture_order.h"
#include "interop/device/graph_api.h"
#include "interop/device/stream.h"

namespace cgtree {

// A DeviceCaptureDag asks the device for the terminals of streams and the dependencies of nodes.
class DeviceCaptureDag final : public CaptureDag {
 public:
  // `origin` is the stream on which the capture was begun. Throws InvalidArgument if it does not
  // capture, and DeviceError.
  explicit DeviceCaptureDag(StreamRef origin);

  std::optional<std::vector<NodeId>> terminals(StreamId stream) override;
  std::vector<NodeId> dependencies(NodeId node) override;

 private:
  GraphAPI& graphs_;
  std::uint64_t capture_ = 0;  // the id of the capture in the process
};

}  // namespace cgtree
