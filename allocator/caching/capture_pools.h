// The pools that the streams of a capture allocate from.
#pragma once

#include <cstddef>

#include "allocator/pool/pool.h"
#include "allocator/segments/stream_id.h"

namespace cgtree {

// One pool per line of streams, with one lifetime: what is free in one may be used by the stream
// that holds it. Pools are numbered, and none goes away while a capture is open.
//
// Threads: any; called with the session's lock held, but add().
class CapturePools {
 public:
  virtual ~CapturePools() = default;

  virtual std::size_t count() const = 0;
  virtual Pool& pool(std::size_t number) = 0;

  // Hands a pool that no stream of a capture holds to one; false when work outside the capture may
  // still use what is free in it. It is handed back with the stream that held it last.
  virtual bool try_take(std::size_t number, StreamId stream) = 0;
  virtual void hand_back(std::size_t number, StreamId stream) noexcept = 0;

  // Makes one more, held by `stream` from the start.
  virtual std::size_t add(StreamId stream) = 0;

  // Work outside the capture uses a block.
  virtual void use_outside(std::size_t number, void* address, StreamId stream) = 0;

  // Frees a block after the capture, by the rules outside of it.
  virtual void free_outside(std::size_t number, void* address) noexcept = 0;
};

}  // namespace cgtree
