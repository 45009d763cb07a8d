// handshake_with(): a call waits for the libraries its inputs came from, and they for the call.
#pragma once

#include "interop/exchange/stream_synchronization.h"
#include "cgtree/input_list.h"

namespace cgtree {

// What `lane` does from now on waits for what the producers' streams have enqueued; to be finished
// after the call's work. It cannot be part of a recording: a capture must not wait for a stream
// outside of it. Throws CaptureError where a producer's stream captures, DeviceError.
inline StreamSynchronization handshake_with(StreamRef lane, InputList inputs) {
  StreamSynchronization handshake(lane);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    handshake.add(inputs[i]);
  handshake.begin();
  return handshake;
}

}  // namespace cgtree
