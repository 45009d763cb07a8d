// order_import(): brings our work behind that of the library a tensor comes from.
#pragma once

#include <cstdint>

#include "interop/device/stream.h"

namespace cgtree {

// What an import does about the producer's stream. Source of the choices: CUDA Array Interface,
// version 3, Synchronization.
enum class SyncPolicy {
  kEventWait,    // our stream waits for the producer's; the host does not
  kSynchronize,  // the host waits for the producer's stream
  kEnqueue,      // our work is to go to the producer's stream; nobody waits
  kIgnore,       // nothing: whoever asks for it answers for the order
};

// Makes what is enqueued on `consumer` from now on see what the producer has enqueued. Returns the
// stream that orders the contents from now on: `consumer`, or for kEnqueue `producer`. `producer`
// may name none: then nothing is pending.
//
// While either stream captures, only one that belongs to the same capture can be waited for, and
// that becomes an edge of the graph. Else throws CaptureError, before it has touched a stream:
// import before the capture. Throws DeviceError.
StreamRef order_import(StreamRef producer, StreamRef consumer, SyncPolicy policy);

// Of the capture the stream is in; 0 if it is in none, or cannot be asked: a legacy stream refuses
// while others capture, and is in no capture itself.
std::uint64_t capture_of(StreamRef stream);

}  // namespace cgtree
