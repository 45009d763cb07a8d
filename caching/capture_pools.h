// OpenCapture and CapturePools: what a private pool knows of a capture that it serves, and what
// that may ask of it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "allocator/pool/pool.h"
#include "allocator/segments/driver_gate.h"

namespace cgtree {

// CapturePools are the pools that the streams of a capture allocate from: one pool per line of
// streams, all with one lifetime. Pools are numbered, and none goes away while a capture is open.
// Implementations: PrivatePool, and a fake in the tests of CaptureSession.
//
// Thread safety: all functions may be called from any thread. All but add() are called with the
// session's lock held.
class CapturePools {
 public:
  virtual ~CapturePools() = default;

  virtual std::size_t count() const = 0;
  virtual Pool& pool(std::size_t number) = 0;

  // Gives a stream of the capture a pool that no other of its streams holds. Returns false if work
  // outside the capture may still use what is free in it. It is handed back with the stream that
  // held it last.
  virtual bool try_take(std::size_t number, StreamId stream) = 0;
  virtual void hand_back(std::size_t number, StreamId stream) noexcept = 0;

  // Makes one more pool, held by `stream` from the start.
  virtual std::size_t add(StreamId stream) = 0;

  // Throws InvalidArgument unless `address` is the start of a live block of the pool.
  virtual void expect_live(std::size_t number, void* address) = 0;

  // Notes that work outside the capture uses a block.
  virtual void use_outside(std::size_t number, void* address, StreamId stream) = 0;

  // Frees a block after the capture, by the rules outside of it.
  virtual void free_outside(std::size_t number, void* address) noexcept = 0;
};

// An OpenCapture says which stream of a capture may use which free memory of a pool. CaptureSession
// (caching/captures/) is the one there is.
//
// Thread safety: all functions may be called from any thread.
class OpenCapture {
 public:
  OpenCapture() = default;
  OpenCapture(const OpenCapture&) = delete;
  OpenCapture& operator=(const OpenCapture&) = delete;
  virtual ~OpenCapture() = default;

  // Returns memory for the next node on `stream`. Throws as Pool::allocate() does, and
  // InvalidArgument if the stream is not part of the capture or that has ended; nothing has changed
  // then.
  virtual void* allocate(std::size_t bytes, StreamId stream) = 0;

  // Notes that `stream`, of the capture or not, uses the block. Returns false if the block does not
  // belong to the capture. Throws InvalidArgument if the block is free already.
  virtual bool use(void* address, StreamId stream) = 0;

  // Frees a block of pool `number`: one of the capture, or one from before it, which stays until
  // the end. Returns false if the capture has ended. Throws InvalidArgument, and changes nothing,
  // unless `address` is the start of a live block.
  virtual bool free(void* address, std::size_t number) = 0;

  // Returns true if the stream is part of the capture, and that has not ended.
  virtual bool has(StreamId stream) = 0;

  // Frees all deferred blocks and hands the pools back. A second call does nothing.
  virtual void end() noexcept = 0;

  virtual std::size_t deferred_blocks() const = 0;
};

// Makes a capture over the pools, which outlive it, that holds the deferred frees until it ends.
using MakeCapture = std::function<std::shared_ptr<OpenCapture>(CapturePools&, DeferredFrees)>;

}  // namespace cgtree
