// The calling thread's current stream: where a step function launches its work.
#pragma once

#include <cstdint>

#include "interop/device/stream.h"

namespace cgtree {

// Inside a step function, the context's stream (which may be capturing); outside, the stream of the
// innermost StreamScope. Throws InvalidArgument when there is neither.
StreamRef current_stream();

// As above, but answers a StreamRef that names no stream.
StreamRef current_stream_or_none() noexcept;

// How often a StreamScope was opened on this thread: tells whether one was since.
std::uint64_t stream_scopes_opened() noexcept;

// Makes `stream` current on this thread until the scope ends. Scopes nest.
class StreamScope {
 public:
  explicit StreamScope(StreamRef stream) noexcept;
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  StreamRef previous_;
};

}  // namespace cgtree
