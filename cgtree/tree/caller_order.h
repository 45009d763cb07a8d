// CallerOrder: a caller on a stream of its own sees calls in the order of that stream.
#pragma once

#include "interop/device/stream.h"

namespace cgtree {

class CallerOrder {
 public:
  // What the lane does from now on waits for what `caller` has enqueued. `caller` may name none.
  CallerOrder(StreamRef lane, StreamRef caller) : lane_(lane), caller_(caller) {
    if (caller_ && caller_ != lane_) lane_.wait_for(caller_);
  }
  // What the caller enqueues from now on waits for the lane.
  void finish() const {
    if (caller_ && caller_ != lane_) caller_.wait_for(lane_);
  }

 private:
  StreamRef lane_;
  StreamRef caller_;
};

}  // namespace cgtree
