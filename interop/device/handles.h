// Handles: opaque numbers that a device gives to its objects, and the kinds of streams and
// captures.
#pragma once

#include <cstdint>

namespace cgtree {

// A type for each kind of object. On the cuda device a handle is CUDA's own, and the two numbers of
// streams below are CUDA's.
enum class StreamHandle : std::uintptr_t { kNull = 0, kLegacy = 1, kPerThread = 2 };
enum class EventHandle : std::uintptr_t { kNull = 0 };
enum class GraphHandle : std::uintptr_t { kNull = 0 };
enum class NodeHandle : std::uintptr_t { kNull = 0 };
enum class ExecHandle : std::uintptr_t { kNull = 0 };

// A StreamIdentity distinguishes a stream from all other streams of the process, of any device,
// permanently. A handle does not: see stream_identity.h.
enum class StreamIdentity : std::uint64_t { kNone = 0 };

// A blocking stream orders itself with the legacy stream; a non-blocking one does not.
enum class StreamKind { kBlocking, kNonBlocking };

// The threads for which an open capture forbids calls that may break it. Source:
// cudaStreamCaptureMode.
enum class CaptureMode { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

}  // namespace cgtree
