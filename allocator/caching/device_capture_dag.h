// DeviceCaptureDag: the graph of an open capture, as the device tells it.
#pragma once

#include <cstdint>

#include "allocator/caching/capture_order.h"
#include "interop/device/stream.h"

namespace cgtree {

class DeviceCaptureDag final : public CaptureDag {
 public:
  // `origin` is the stream whose capture was begun, and is open. Throws InvalidArgument if it does
  // not capture, DeviceError.
  explicit DeviceCaptureDag(StreamRef origin);

  std::optional<std::vector<NodeId>> terminals(StreamId stream) override;
  std::vector<NodeId> dependencies(NodeId node) override;

 private:
  GraphAPI& graphs_;
  std::uint64_t capture_ = 0;  // which capture of the process
};

}  // namespace cgtree
